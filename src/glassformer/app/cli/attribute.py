"""Attribution of an answer to the parts of the model, to tokens and to layers.

  glass attribute runs/book "Once upon a" --view logits
  glass attribute runs/book "Once upon a" --view logits --place 2 --token " time" --against " day"
  glass attribute runs/book "Once upon a" --view lens --plot lens.png
  glass attribute runs/en-de "A man is sleeping." --view rollout
  glass attribute runs/book "Once upon a" --view agreement
  glass attribute runs/book "The dog is" --view patching --corrupt "The dogs are"

Views: logits (every logit as a sum of what each part gave), lens (the answer after each layer), rollout and flow
(attention followed down to the tokens), blank (what an answer loses when a token is replaced), agreement (do these say
the same?), patching (of two texts, which place of which layer decides).

The answers are the tokens that follow in the text, and after its end the likeliest; of runs that fill in, the likeliest
in each hole; of runs that classify, the likeliest label. --token asks for another one, everywhere. Logits and lens need
a residual stream: they refuse post-norm models. Layers, heads and places count from 0.
"""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path

from glassformer.app.cli.attribute_views import TOP, VIEWS, AttributionRequest, named
from glassformer.base.errors import GlassError, nearest
from glassformer.base.report import SimpleReport, emit

USES = {
    "logits": ("target", "token", "against", "place", "layer", "head", "top"),
    "lens": ("target", "token", "place", "top", "plot"),
    "rollout": ("target", "place", "layer", "plot"),
    "flow": ("target", "place", "layer"),
    "blank": ("target", "token", "place", "replace"),
    "agreement": ("target", "token", "replace"),
    "patching": ("target", "token", "against", "place", "corrupt", "part"),
}
"""View -> the options that mean something to it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass attribute`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, of any task")
    parser.add_argument("text", metavar="TEXT", help="what its model shall read; - reads standard input")
    parser.add_argument("--view", default="logits", metavar="VIEW", help=f"{', '.join(USES)} (default: logits)")
    parser.add_argument("--target", metavar="TEXT", help="of a run that translates or summarizes; else it writes one")
    parser.add_argument("--token", metavar="TEXT|ID", help="the answer to explain: a token, or a label")
    parser.add_argument("--against", metavar="TEXT|ID", help="take this one's logit off")
    parser.add_argument("--place", type=int, metavar="N", help="only the answer at this place (of most views the last)")
    parser.add_argument("--layer", type=int, metavar="N", help="logits: its neurons; rollout, flow: up to this layer")
    parser.add_argument("--head", metavar="NAME", help="logits: one head by its source tokens, such as dec.1.self.2")
    parser.add_argument(
        "--top", type=int, metavar="N", help=f"parts or tokens with a line of their own (default: {TOP})"
    )
    parser.add_argument("--replace", metavar="TEXT|ID", help="the token that stands in for a blanked one")
    parser.add_argument("--corrupt", metavar="TEXT", help="patching: another text of as many tokens")
    parser.add_argument(
        "--part", metavar="PART", help="patching: resid, self, cross, feedforward or heads (default: resid)"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="lens, rollout: a picture, .png or .svg")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="which weights (default: best)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")


def run(arguments: argparse.Namespace) -> int:
    """Compute the attribution and print the chosen view."""
    _check(arguments)
    asked = _ask(arguments)
    facts, lines = VIEWS[arguments.view](asked)
    asked_facts = {"view": arguments.view, "text": arguments.text, "row": asked.row, "source": asked.source or None}
    emit(SimpleReport({**asked_facts, **facts}, chain(asked.subject.notes, lines)), arguments.json)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    if arguments.view not in USES:
        raise GlassError(f"there is no view {arguments.view!r}", nearest(arguments.view, USES))
    for name in dict.fromkeys(option for uses in USES.values() for option in uses):
        if getattr(arguments, name) is not None and name not in USES[arguments.view]:
            views = ", ".join(view for view, uses in USES.items() if name in uses)
            raise GlassError(f"--{name} has no meaning for --view {arguments.view}", f"It is for {views}.")
    if arguments.top is not None and arguments.top < 1:
        raise GlassError(f"--top {arguments.top} asks for nothing", "Give a number of at least 1.")
    if arguments.view == "patching" and arguments.corrupt is None:
        raise GlassError("--view patching was asked for without --corrupt", "Give another text of as many tokens.")
    if arguments.layer is not None and arguments.head is not None:
        raise GlassError("--layer and --head were both given", "Give one of them.")
    if arguments.plot is not None:
        from glassformer.inspection.plots import refuse_no_picture

        refuse_no_picture(arguments.plot, "--plot")


def _ask(arguments: argparse.Namespace) -> AttributionRequest:
    """Open the run, and read the text."""
    from glassformer.app.cli.texts import say_training, say_unknown, standard_input
    from glassformer.inspection.attribution import case_of
    from glassformer.inspection.explain import whole_subject_of
    from glassformer.runs.folder import open_run
    from glassformer.runs.opening import OpenedRun
    from glassformer.tasks import MaskFiller, Translator

    folder = open_run(arguments.run).folder
    say_training(folder, arguments.checkpoint)
    model = OpenedRun.load(folder, arguments.checkpoint, arguments.device).text_model
    text = standard_input() if arguments.text == "-" else arguments.text
    subject = whole_subject_of(model, text, arguments.target, str(arguments.run))
    reader = model.source_tokenizer if isinstance(model, Translator) else model.tokenizer
    say_unknown(reader, model.parts(text) if isinstance(model, MaskFiller) else [text])
    end = model.tokenizer.end_id if isinstance(model, Translator) and arguments.target is not None else None
    answer = named(model, arguments.token)
    case = case_of(subject, answer, end, everywhere=arguments.view == "lens")
    row = subject.labels if subject.target_labels is None else subject.target_labels
    return AttributionRequest(
        arguments, model, subject, case, row, () if subject.target_labels is None else subject.labels
    )
