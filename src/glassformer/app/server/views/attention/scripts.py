"""Script template shared by the attention views."""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import TextQuestion, script
from glassformer.app.server.views.attention.attention_pass import attention_pass_of
from glassformer.tasks import Translator

IMPORTS = (
    "import torch",
    "from glassformer.inspection.explain import whole_subject_of",
    "from glassformer.inspection.recording import record",
)


def recorded(
    opened: ServedModel, question: TextQuestion, kinds: Sequence[str], *lines: str, more: Sequence[str] = ()
) -> str:
    """A script that records some values of the pass into `found`, and goes on with lines.

    Args:
        opened: the run.
        question: about which text.
        kinds: what is kept, by name.
        lines: that print it.
        more: imports.
    """
    if attention_pass_of(opened, question.text, question.target).which == "observed":
        kinds = [*kinds, "pattern"]  # all layers are observed, as in the pass that made the view's numbers
    keep = ", ".join(map(repr, kinds))
    target = "torch.tensor([subject.target_ids])" if isinstance(opened.model, Translator) else "None"
    return script(
        opened,
        f"subject = whole_subject_of(model, {question.text!r}, {question.target!r})",
        "tokens = torch.tensor([subject.ids])",
        f"target = {target}",
        f"found = record(subject.model, tokens, target, keep=({keep},), budget=2 * 10**9)",
        *lines,
        imports=[*IMPORTS, *more],
    )
