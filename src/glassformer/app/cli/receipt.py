"""Explain one token by direct logit attribution: its logit as the sum of the contributions of all parts.

  glass receipt runs/book "Once upon a"
  glass receipt runs/book "Once upon a" --token " time" --against " day"
  glass receipt runs/book "Once upon a" --step 5 --seed 3 --top-p 0.9
  glass receipt runs/en-de "A man is sleeping." --step 2
  glass receipt runs/book "Once upon a" --snippet check.py

The receipt also shows how the token was sampled. The parts are the embeddings, each attention head (split by source
token), the feed-forward layers and the biases. Their sum is the logit, with the scale of the final norm held fixed.
This sum does not exist for models with model.norm_order = post or with model.head_transform. A contribution measures
the direct effect of a part on the logit, not its effect through later parts.

Without --token, the receipt explains the token that glass generate (for task chat, glass chat) generates for the same
text and settings; for tasks masked and classify, the prediction of glass fill or glass classify.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.app.cli.generate import refuse_unused_penalty, sampling_changes, stop_changes
from glassformer.app.cli.settings import add_section_flags
from glassformer.app.cli.texts import standard_input, warn_truncated, warn_unknown
from glassformer.base.config import WRITERS, Config, SampleConfig
from glassformer.base.errors import GlassError
from glassformer.base.files import output_path
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import quoted

if TYPE_CHECKING:
    from glassformer.tasks import AnyTextModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass receipt`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, of any task")
    parser.add_argument(
        "text", metavar="TEXT", help="input of the model, as for generate, fill or classify; - reads standard input"
    )
    parser.add_argument(
        "--token",
        metavar="TEXT|ID",
        help="token or label to explain (default: the prediction); a number is an id: for the token with the text 5, "
        "give '\"5\"'",
    )
    parser.add_argument(
        "--against", metavar="TEXT|ID", help="explain the difference from the logit of this token or label"
    )
    parser.add_argument("--step", type=int, metavar="N", help="explain the N-th generated token (default: 1)")
    parser.add_argument("--mask", type=int, metavar="N", help="explain the N-th [MASK] of the text (default: 1)")
    parser.add_argument("--top", type=int, default=12, metavar="N", help="number of parts to list (default: 12)")
    parser.add_argument(
        "--snippet",
        type=output_path,
        nargs="?",
        const="-",
        metavar="FILE",
        help="write a short NumPy script that computes the same logit from the run's files; without FILE, print it",
    )
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="checkpoint to load (default: best)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    group = parser.add_argument_group("sampling (defaults: the run's own [sample] settings)")
    add_section_flags(group, "sample", SampleConfig, leave_out=("prompt",))


def run(arguments: argparse.Namespace) -> int:
    """Print the receipt; with `--snippet`, also write the script to a file, or print the script instead."""
    from glassformer.base.files import new_output, refuse_no_file, write_text
    from glassformer.inspection.receipt import write_receipt
    from glassformer.inspection.receipt.receipt import table
    from glassformer.inspection.receipt.snippet import snippet
    from glassformer.runs.opening import OpenedRun

    for name in ("step", "mask", "top"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise GlassError(f"--{name} {value} is below 1", "Give a number of at least 1.")
    printed = arguments.snippet == Path("-")
    if arguments.snippet is not None and not printed:
        refuse_no_file(arguments.snippet, "--snippet")
        if arguments.snippet.exists():
            raise GlassError(f"{arguments.snippet} already exists", "Give another FILE for --snippet.")
    opened = OpenedRun.load(arguments.run, arguments.checkpoint, arguments.device)
    model = opened.text_model
    config = _settings(arguments, model.config)
    text = arguments.text
    if text == "-":
        text = standard_input(keep_line_end=config.train.task == "lm")
    receipt = write_receipt(
        model, text, arguments.token, arguments.against, config.sample, arguments.step or 1, arguments.mask or 1
    )
    _warn(model, text)
    script = snippet(receipt, arguments.run, opened.checkpoint.name) if arguments.snippet else None
    if script is not None and not printed:
        with new_output(arguments.snippet) as temporary:
            write_text(temporary, script)
        print(f"{arguments.snippet} is written; run it: python {quoted(arguments.snippet)}", file=sys.stderr)
    if printed and not arguments.json:
        print(script, end="")
        return 0
    emit(SimpleReport({**receipt.facts(), "snippet": script}, [table(receipt, arguments.top)]), arguments.json)
    return 0


def _settings(arguments: argparse.Namespace, config: Config) -> Config:
    """Return the run's settings, overridden by the arguments.

    Raises:
        GlassError: an option has no effect for the run's task, contradicts another option, or is not valid, or
            `--step` is above `--tokens`.
    """
    flags = {key: value for key, value in vars(arguments).items() if key.startswith("sample.") and value is not None}
    task = config.train.task
    generates_text = task in WRITERS
    unused_options = (
        [f"--{key.removeprefix('sample.').replace('_', '-')}" for key in flags] if not generates_text else []
    )
    unused_options += ["--step"] if arguments.step is not None and not generates_text else []
    unused_options += ["--mask"] if arguments.mask is not None and task != "masked" else []
    if unused_options:
        raise GlassError(
            f"{unused_options[0]} has no effect for a run of train.task = {task}", f"Remove {unused_options[0]}."
        )
    config = config.with_changes({**flags, **stop_changes(flags), **sampling_changes(flags)})
    refuse_unused_penalty(flags, config.sample)
    if "sample.tokens" in flags and (arguments.step or 1) > config.sample.tokens:
        raise GlassError(
            f"--step {arguments.step} is above --tokens {config.sample.tokens}",
            "Give a smaller --step, or a larger --tokens.",
        )
    return config


def _warn(model: AnyTextModel, text: str) -> None:
    """Print warnings about unknown characters and about text longer than the context."""
    from glassformer.tasks import TextClassifier, Translator

    warn_unknown(model, [text])
    if isinstance(model, Translator | TextClassifier):
        warn_truncated([model.unread_tokens(text)], "texts", model.config.model.context)
