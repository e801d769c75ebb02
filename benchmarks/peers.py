"""Ours and the peers, in turn, in one run, on the same work: speed, time to a loss, memory, start-up.

The peers are what PyPI provides: the GPT-2 and the `generate` of transformers, the layers of torch itself, tokenizers,
sentencepiece; and nanoGPT where a local checkout is named. Everyone does the same work in every turn, the first turn
only warms up, and ratios are of turns side by side: their median, with the lowest and the highest. What the hardware
gives at most (matrix products, memory) is measured in the same run. Results go to `--out`: JSON, Markdown, a picture.

On a busy machine `--clock processor --threads 1` counts the processor's time, not the wall clock's (but for `beams` and
`until`).

    python benchmarks/peers.py --quick --out results/look
    python benchmarks/peers.py --out benchmarks/results/laptop --threads 2 --nanogpt ../nanoGPT
    python benchmarks/peers.py --only steps --only generation --repeats 7 --out results/speed
    python benchmarks/peers.py --only until --until-text input.txt --recipe shakespeare-nano --out results/until

Kinds of work (`--only`): see `KINDS`. What each of them measures stands in its file under `benchmarks/peers/`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from isa import add_isa, restrict
from peers import memory, reaching, report, starting, stepping, tokens, writing
from peers.machine import describe, peaks
from peers.rows import CLOCKS, Options, Row

KINDS: dict[str, Callable[[Options], Iterator[Row]]] = {
    "steps": stepping.measure,
    "generation": writing.measure,
    "beams": writing.measure_beams,
    "tokenizers": tokens.measure,
    "memory": memory.measure,
    "corpora": memory.measure_corpora,
    "start": starting.measure,
    "until": reaching.measure,
}


def main() -> None:
    """Measure, and write after every kind, so that what is there stays if a later one fails."""
    options = arguments()
    torch.set_num_threads(options.threads)
    found: dict[str, Any] = {"machine": describe(options.threads), "peaks": peaks(CLOCKS[options.clock], options.quick)}
    found |= {"settings": _settings(options), "results": []}
    for kind in options.only or KINDS:
        for row in KINDS[kind](options):
            found["results"].append(row.as_json())
            print(_line(found["results"][-1]), flush=True)
        report.write(options.out, found)
    print(f"{options.out}/results.md has it all", file=sys.stderr)


def _line(row: dict[str, Any]) -> str:
    ratios = ", ".join(f"{each['median']:.2f} x {name}" for name, each in row["ratio"].items())
    who, value = next(iter(row["median"].items()))
    return f"{row['kind']}: {row['work']}: {who} {value:,.4g} {row['unit']}" + (f"; {ratios}" if ratios else "")


def _settings(options: Options) -> dict[str, Any]:
    """Those that change figures; of files only whether they were given."""
    plain = {name: value for name, value in vars(options).items() if isinstance(value, int | float | str | bool)}
    return {
        **plain,
        "only": options.only or list(KINDS),
        "nanogpt": options.nanogpt is not None,
        "files": [each.split("=", 1)[0] for each in options.text],
    }


def arguments() -> argparse.Namespace:
    """What to measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--only", action="append", choices=KINDS, help="this kind alone; may be given again")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, for a look in about a minute")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each; default 5, with --quick 2")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of everyone")
    parser.add_argument("--device", default="cpu", help="steps and generation: cpu or cuda; default cpu")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="whose seconds count; default wall")
    parser.add_argument("--compile", action="store_true", help="steps: also ours with train.compile")
    parser.add_argument("--nanogpt", type=Path, metavar="PATH", help="a local checkout of nanoGPT")
    parser.add_argument("--text", action="append", default=[], metavar="NAME=FILE", help="tokenizers: of a language")
    parser.add_argument("--megabytes", type=int, default=10, help="tokenizers: of each text; default 10")
    parser.add_argument("--corpora", type=int, nargs="+", default=[10, 100], help="megabytes of text; default 10 100")
    parser.add_argument("--until", type=float, default=1.88, help="the loss to reach; default 1.88")
    parser.add_argument("--until-text", type=Path, metavar="FILE", help="the text to learn; without it no such row")
    parser.add_argument("--until-repeats", type=int, default=1, help="runs of each; default 1")
    parser.add_argument(
        "--until-commands", action="store_true", help="for --until: whole commands only, without Hugging Face's loop"
    )
    parser.add_argument("--recipe", default="shakespeare-nano", help="ours, for --until; default shakespeare-nano")
    add_isa(parser)
    options = parser.parse_args()
    restrict(options.isa)
    if options.only == ["until"] and options.until_text is None:
        parser.error("--only until needs --until-text")
    if options.quick:
        options.repeats = min(options.repeats, 2)
    return options


if __name__ == "__main__":
    main()
