"""Attribute an answer to the parts of the model, to tokens and to layers.

  glass attribute runs/book "Once upon a" --view logits
  glass attribute runs/book "Once upon a" --view logits --position 2 --token " time" --against " day"
  glass attribute runs/book "Once upon a" --view lens --plot lens.png
  glass attribute runs/en-de "A man is sleeping." --view rollout
  glass attribute runs/book "Once upon a" --view agreement
  glass attribute runs/book "The dog is" --view patching --corrupt "The dogs are"

Views: logits (each logit as the sum of the contributions of all parts), lens (the likeliest answer after each layer),
rollout and flow (attention traced back to the tokens), occlusion (the drop in the answer's log-probability when a
token is replaced), agreement (rank correlations of attention, rollout and occlusion), patching (the effect, at each
layer and position, of replacing an activation of a corrupted text by the activation of the given text).

The explained answers are the next tokens of the text and the likeliest token after its end; for runs of task translate
or summarize, the next tokens of the target and the likeliest token after its end (with --target: the end token); for
runs of task masked, the likeliest token at each [MASK] (lens: at every position); for classifiers, the likeliest label.
--token replaces the answer at every position. The views logits and lens do not support post-norm models, whose blocks
normalize the residual stream; logits does not support models with model.head_transform either. Layers, heads and
positions count from 0.
"""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path

from glassformer.app.cli.attribute_views import TOP, VIEWS, AttributionRequest
from glassformer.base.errors import GlassError, nearest
from glassformer.base.files import output_path
from glassformer.base.report import SimpleReport, emit

USES = {
    "logits": ("target", "token", "against", "position", "layer", "head", "top"),
    "lens": ("target", "token", "position", "top", "plot"),
    "rollout": ("target", "position", "layer", "plot"),
    "flow": ("target", "position", "layer"),
    "occlusion": ("target", "token", "position", "replace"),
    "agreement": ("target", "token", "replace"),
    "patching": ("target", "token", "against", "position", "corrupt", "part"),
}
"""Options of each view, by view name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass attribute`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, of any task")
    parser.add_argument("text", metavar="TEXT", help="input text of the model; - reads standard input")
    parser.add_argument(
        "--view", default="logits", metavar="VIEW", help=f"view to print: {', '.join(USES)} (default: logits)"
    )
    parser.add_argument(
        "--target", metavar="TEXT", help="target of a translation or summary (default: the model generates it)"
    )
    parser.add_argument("--token", metavar="TEXT|ID", help="the answer to explain: a token, or a label")
    parser.add_argument(
        "--against", metavar="TEXT|ID", help="explain the difference from the logit of this token or label"
    )
    parser.add_argument(
        "--position",
        type=int,
        metavar="N",
        help="explain only the answer at this position (default: depends on the view)",
    )
    parser.add_argument(
        "--layer",
        type=int,
        metavar="N",
        help="logits: show the neurons of this layer; rollout, flow: stop at this layer",
    )
    parser.add_argument("--head", metavar="NAME", help="logits: head to split by source token, such as dec.1.self.2")
    parser.add_argument(
        "--top", type=int, metavar="N", help=f"number of parts, neurons or answers to list (default: {TOP}; lens: 3)"
    )
    parser.add_argument("--replace", metavar="TEXT|ID", help="the token that replaces an occluded token")
    parser.add_argument(
        "--corrupt",
        metavar="TEXT",
        help="patching: corrupted text with as many tokens, into which the activations of the given text are patched",
    )
    parser.add_argument(
        "--part",
        metavar="PART",
        help="patching: activations to patch: resid, self, cross, feedforward or heads (default: resid)",
    )
    parser.add_argument("--plot", type=output_path, metavar="FILE", help="lens, rollout: write a picture, .png or .svg")
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="checkpoint to load (default: best)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")


def run(arguments: argparse.Namespace) -> int:
    """Compute the attribution and print the chosen view."""
    _check(arguments)
    request = _request(arguments)
    facts, lines = VIEWS[arguments.view](request)
    inputs = {"view": arguments.view, "text": arguments.text, "row": request.row, "source": request.source or None}
    emit(SimpleReport({**inputs, **facts}, chain(request.subject.notes, lines)), arguments.json)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    if arguments.view not in USES:
        raise GlassError(f"there is no view {arguments.view!r}", nearest(arguments.view, USES))
    for name in dict.fromkeys(option for uses in USES.values() for option in uses):
        if getattr(arguments, name) is not None and name not in USES[arguments.view]:
            views = ", ".join(view for view, uses in USES.items() if name in uses)
            raise GlassError(
                f"--{name} has no effect with --view {arguments.view}",
                f"Remove --{name}, or use one of the views: {views}.",
            )
    if arguments.top is not None and arguments.top < 1:
        raise GlassError(f"--top {arguments.top} is below 1", "Give a number of at least 1.")
    if arguments.view == "patching" and arguments.corrupt is None:
        raise GlassError(
            "--view patching was given without --corrupt",
            "Add --corrupt with another text of the same number of tokens.",
        )
    if arguments.layer is not None and arguments.head is not None:
        raise GlassError("--layer and --head were both given", "Remove one of the two.")
    if arguments.plot is not None:
        from glassformer.inspection.plots import refuse_no_picture

        refuse_no_picture(arguments.plot, "--plot")


def _request(arguments: argparse.Namespace) -> AttributionRequest:
    """Open the run, encode the text and return the inputs of the view."""
    from glassformer.app.cli.texts import note_still_training, standard_input, warn_unknown
    from glassformer.inspection.attribution import case_of
    from glassformer.inspection.explain import unshortened_subject_of
    from glassformer.runs.folder import open_run
    from glassformer.runs.opening import OpenedRun
    from glassformer.tasks import Translator

    folder = open_run(arguments.run).folder
    note_still_training(folder, arguments.checkpoint)
    model = OpenedRun.load(folder, arguments.checkpoint, arguments.device).text_model
    text = standard_input() if arguments.text == "-" else arguments.text
    subject = unshortened_subject_of(model, text, arguments.target, str(arguments.run))
    warn_unknown(model, [text], [arguments.target])
    end = model.tokenizer.end_id if isinstance(model, Translator) and arguments.target is not None else None
    answer = None if arguments.token is None else model.output_id(arguments.token)
    case = case_of(subject, answer, end, everywhere=arguments.view == "lens")
    row = subject.labels if subject.target_labels is None else subject.target_labels
    return AttributionRequest(
        arguments, model, subject, case, row, () if subject.target_labels is None else subject.labels
    )
