"""Script template shared by the attention views."""

from __future__ import annotations

from collections.abc import Sequence

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import TextQuestion, script
from glassformer.app.server.views.attention.attention_pass import attention_pass_of
from glassformer.tasks import Translator

IMPORTS = (
    "import torch",
    "from glassformer.inspection.explain import unshortened_subject_of",
    "from glassformer.inspection.recording import record",
)


def recording_script(
    opened: ServedModel, question: TextQuestion, kinds: Sequence[str], *lines: str, more: Sequence[str] = ()
) -> str:
    """Return a script that records activations of the forward pass as `found`, and runs the given lines.

    Args:
        opened: loaded checkpoint of the run.
        question: request with the text.
        kinds: names or kinds of the activations to record.
        lines: lines that print the activations.
        more: further imports.
    """
    if attention_pass_of(opened, question.text, question.target).kind == "observed":
        kinds = [*kinds, "pattern"]  # record all layers, as in the forward pass of the view
    keep = ", ".join(map(repr, kinds))
    target = "torch.tensor([subject.target_ids])" if isinstance(opened.model, Translator) else "None"
    return script(
        opened,
        f"subject = unshortened_subject_of(model, {question.text!r}, {question.target!r})",
        "tokens = torch.tensor([subject.ids])",
        f"target = {target}",
        f"found = record(subject.model, tokens, target, keep=({keep},), budget=2 * 10**9)",
        *lines,
        imports=[*IMPORTS, *more],
    )
