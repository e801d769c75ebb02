"""Probe the abilities of a run, such as agreement, recall and word senses, and measure its surprisal.

  glass probe runs/book
  glass probe runs/agreement agreement
  glass probe runs/book --pairs pairs.jsonl
  glass probe runs/book surprisal --text another-book.txt

Probes: agreement (of verbs with distant subjects, by cell and number of attractors), coreference (the noun that "it"
refers to), pronouns-bn (of Bangla verbs with pronouns), induction (repeated random tokens), recall (the value of a
given key), brackets (the matching closing bracket, by distance), senses (of the word "bank", in its vectors after each
layer), surprisal (-ln P of each token of a text, by position, frequency and repetition). Without PROBE, --pairs and
--text, all probes that apply to the run are computed.

Each accuracy is printed with its confidence interval, the chance level, and the accuracy of simple rules on the same
questions. Runs of task masked are scored by pseudo-log-likelihood; only runs of task lm or masked can be probed.
--pairs reads your own minimal pairs, one JSON object per line: {"sentence_good": "...", "sentence_bad": "...",
"UID": "..."}.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from glassformer.app.cli.texts import add_table_flags, note_still_training, table_flags
from glassformer.base.errors import GlassError
from glassformer.base.report import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass probe`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("probe", nargs="*", metavar="PROBE", help="names of probes (default: all that apply)")
    parser.add_argument("--pairs", type=Path, metavar="FILE", help="your own minimal pairs, as JSONL")
    parser.add_argument(
        "--text", type=Path, metavar="FILE", help="text for surprisal (default: the held-out part of the run's text)"
    )
    add_table_flags(parser, "--text")
    parser.add_argument(
        "--size",
        type=int,
        default=1280,
        metavar="N",
        help="number of minimal pairs and of sentences; it scales the other probes in proportion (default: 1280)",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the questions (default: 1)")
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="checkpoint to load (default: best)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")


def run(arguments: argparse.Namespace) -> int:
    """Run the probes and print the report."""
    from glassformer.evaluation.probes.probe import ProbeRequest, probe_run
    from glassformer.runs.folder import open_run

    if arguments.size < 1:
        raise GlassError(f"--size {arguments.size} is below 1", "Give a number of at least 1.")
    if arguments.seed < 0:
        raise GlassError(f"--seed {arguments.seed} is below 0", "Give a number of at least 0.")
    reading = table_flags(arguments, "--text", arguments.text is not None)
    note_still_training(open_run(arguments.run).folder, arguments.checkpoint)
    report = probe_run(
        ProbeRequest(
            folder=arguments.run,
            probes=arguments.probe,
            pairs=arguments.pairs,
            text=arguments.text,
            reading=reading,
            size=arguments.size,
            seed=arguments.seed,
            which=arguments.checkpoint,
            device=arguments.device,
            note=lambda text: print(text, file=sys.stderr),
        )
    )
    emit(report, arguments.json)
    return 0
