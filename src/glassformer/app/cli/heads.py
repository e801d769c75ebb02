"""Score the roles of each attention head of a run, with chance levels and confidence intervals.

  glass heads runs/book
  glass heads runs/book --head dec.1.self.2
  glass heads runs/book --text other.txt --sort entropy
  glass heads runs/book --importance
  glass heads runs/en-de --text "the old dog sleeps ."
  glass heads runs/book --plot roles.png
  glass heads runs/book --history --role induction
  glass heads runs/book --history --out heads.html

Roles are scored on the run's own validation text, or on --text, and on random tokens with and without repetition. A
head has a role if its score reaches the role's threshold and 5 times chance (the score of uniform attention), and if
the score's 95 % confidence interval over sequences is above chance. Heads are named dec.LAYER.self.HEAD, enc.… and
dec.LAYER.cross.HEAD, counted from 0. For a run that translates, a line of --text may contain its target after a tab;
otherwise the run generates the target.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from glassformer.app.cli import heads_history
from glassformer.app.cli.texts import add_table_flags, table_flags, texts_of, warn_unknown
from glassformer.base.errors import GlassError, nearest_file
from glassformer.base.files import output_path
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import counted

if TYPE_CHECKING:
    from glassformer.inspection.heads import HeadReport
    from glassformer.inspection.heads.of_run import TextSample
    from glassformer.tasks import AnyTextModel

SORTS = ("layer", "role", "entropy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass heads`."""
    heads_history.add_arguments(parser)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--text", metavar="FILE|TEXT", help="score the heads on this text instead of the run's own")
    add_table_flags(parser, "--text")
    parser.add_argument("--head", metavar="NAME", help="print all scores of one head, such as dec.1.self.2")
    parser.add_argument(
        "--importance", action="store_true", help="also measure how much the validation loss depends on each head"
    )
    parser.add_argument("--sort", choices=SORTS, help="order of the heads (default: layer, then number)")
    parser.add_argument("--plot", type=output_path, metavar="FILE", help="write a picture of all scores: .png or .svg")
    parser.add_argument("--checkpoint", choices=("best", "last"), help="checkpoint to load (default: best)")
    parser.add_argument("--device", help="auto, cpu, cuda, cuda:N or mps (default: auto)")


def run(arguments: argparse.Namespace) -> int:
    """Score the heads and print their roles, or their history with `--history`."""
    if arguments.history:
        return heads_history.run(arguments)
    heads_history.refuse_unused(arguments)
    from glassformer.base.locks import is_held
    from glassformer.inspection.heads.of_run import heads_of_run
    from glassformer.inspection.heads.report import head_lines, table_lines
    from glassformer.inspection.plots import refuse_no_picture
    from glassformer.inspection.sites import find_head
    from glassformer.runs.folder import open_run
    from glassformer.runs.opening import OpenedRun

    if arguments.plot is not None:
        refuse_no_picture(arguments.plot, "--plot")
    folder = open_run(arguments.run).folder
    checkpoint: Literal["best", "last"] = arguments.checkpoint or "best"
    if is_held(folder):
        _note(f"{folder} is still training: these are the heads of its {checkpoint} checkpoint so far")
    opened = OpenedRun.load(folder, checkpoint, arguments.device or "auto", note=_note)
    selected_head = None if arguments.head is None else find_head(opened.model, arguments.head)
    is_file = arguments.text is not None and _is_file(arguments.text)
    reading = table_flags(arguments, "--text", is_file)
    texts = None if arguments.text is None else _given_texts(opened.text_model, arguments.text, reading)
    report = heads_of_run(opened, texts)
    if arguments.importance:
        from glassformer.inspection.pruning.importance import head_importance

        rows = opened.held_out(opened.config.train.evaluate_tokens)
        report = report.with_importance(head_importance(opened.model, rows))
    heads = [head_report for head_report in report.heads if selected_head in (None, head_report.head)]
    heads.sort(key=lambda head_report: _sort_key(head_report, arguments.sort))
    if arguments.plot is not None:
        _plot(heads, arguments.plot)
    facts = {**report.facts(), "heads": [head_report.facts() for head_report in heads]}
    lines = table_lines(report, heads) if selected_head is None else head_lines(report, heads[0])
    emit(SimpleReport(facts, lines), arguments.json)
    return 0


def _plot(heads: list[HeadReport], path: Path) -> None:
    """Draw the scores of the heads in all measured roles.

    Raises:
        GlassError: no role could be measured.
    """
    import numpy as np

    from glassformer.inspection.plots import draw_roles, save

    roles = list(dict.fromkeys(role for head_report in heads for role in head_report.roles))
    if not roles:
        raise GlassError("no role could be measured for the heads of this run", "Remove --plot.")
    scores, chances = np.full((2, len(heads), len(roles)), np.nan)  # (heads, roles) each
    earned = np.zeros(scores.shape, dtype=np.bool_)
    for row, head_report in enumerate(heads):
        for role, scored in head_report.roles.items():
            cell = row, roles.index(role)
            scores[cell] = scored.score
            earned[cell] = scored.earned
            chances[cell] = np.nan if scored.chance is None else scored.chance
    names = [role.replace("_", " ") for role in roles]
    save(draw_roles([str(head_report.head) for head_report in heads], names, scores, chances, earned), path)
    _note(f"{path} shows {counted(len(heads), 'heads')} and {counted(len(roles), 'roles')}")


def _given_texts(model: AnyTextModel, text: str, reading: Mapping[str, str]) -> TextSample:
    """Return the texts of `--text`: the lines or rows of the file with that name, or the text itself.

    Raises:
        GlassError: the text is empty, or looks like the name of a file that does not exist.
    """
    from glassformer.inspection.heads.of_run import TextSample
    from glassformer.tasks import Translator

    path = Path(text)
    is_file = _is_file(text)
    if not is_file and not text.strip():
        raise GlassError("--text is empty", "Give a text, or a file.")
    if not is_file and path.suffix and len(text.split()) == 1 and len(text) < 200:  # looks like the name of a file
        raise GlassError(
            f"{text} does not exist", nearest_file(path, "Give an existing file, or a text of at least two words.")
        )
    texts = texts_of(path, model.config, reading, "text", isinstance(model, Translator)) if is_file else [text]
    pairs = [line.partition("\t") if isinstance(model, Translator) else (line, "", "") for line in texts]
    warn_unknown(model, [text for text, _, _ in pairs], [target for _, _, target in pairs])
    return TextSample(texts, text if is_file else "--text", is_file)


def _is_file(text: str) -> bool:
    """Return whether `text` names a file; False also if it is not a valid path, for example because it is too long."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


def _sort_key(head_report: HeadReport, sort: str | None) -> tuple[float, ...] | tuple[str, float]:
    """Return the sort key of a head; heads with equal keys keep their order."""
    if sort == "role":  # by role, largest score first; heads without a role last
        return (
            (head_report.names[0], -head_report.roles[head_report.names[0]].score) if head_report.names else ("~", 0.0)
        )
    return (head_report.statistics.get("entropy", 0.0),) if sort == "entropy" else ()


def _note(text: str) -> None:
    print(text, file=sys.stderr)
