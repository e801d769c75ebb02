"""Comparison of glassformer with other libraries on the same work: speed, time to a loss, memory, start-up.

The peers are packages of PyPI: GPT-2 and `generate` of transformers, torch's own layers, tokenizers, sentencepiece; and
nanoGPT if a local checkout is given. All do the same work in every turn, and ratios compare adjacent turns: the median,
with the lowest and the highest. For steps, generation, beams and start, the first turn is a warm-up. The peak speeds of
the hardware (matrix multiplications, memory) are measured in the same run. The folder `--out` gets JSON, Markdown and,
if matplotlib is installed, a chart.

`--clock processor --threads 1` measures CPU time instead of wall time (except for `beams` and `until`), which is better
on a busy machine.

    python benchmarks/peers.py --quick --out results/look
    python benchmarks/peers.py --out benchmarks/results/laptop --threads 2 --nanogpt ../nanoGPT
    python benchmarks/peers.py --only steps --only generation --repeats 7 --out results/speed
    python benchmarks/peers.py --only until --until-text input.txt --recipe shakespeare-nano --out results/until

Kinds of work (`--only`): see `KINDS`. Each is documented in its module in `benchmarks/peers/`.
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
    """Measure each kind, and write the results after each, so that they are not lost if a later kind fails."""
    options = arguments()
    torch.set_num_threads(options.threads)
    found: dict[str, Any] = {"machine": describe(options.threads), "peaks": peaks(CLOCKS[options.clock], options.quick)}
    found |= {"settings": _settings(options), "results": []}
    for kind in options.only or KINDS:
        for row in KINDS[kind](options):
            found["results"].append(row.as_json())
            print(_line(found["results"][-1]), flush=True)
        report.write(options.out, found)
    print(f"all results are in {options.out}/results.md", file=sys.stderr)


def _line(row: dict[str, Any]) -> str:
    ratios = ", ".join(f"{each['median']:.2f} x {name}" for name, each in row["ratio"].items())
    library, value = next(iter(row["median"].items()))
    return f"{row['kind']}: {row['work']}: {library} {value:,.4g} {row['unit']}" + (f"; {ratios}" if ratios else "")


def _settings(options: Options) -> dict[str, Any]:
    """Return the options that affect the figures.

    Paths are omitted: `nanogpt` is whether a checkout was given, and `files` lists only the languages of the texts.
    """
    plain = {name: value for name, value in vars(options).items() if isinstance(value, int | float | str | bool)}
    return {
        **plain,
        "only": options.only or list(KINDS),
        "nanogpt": options.nanogpt is not None,
        "files": [each.split("=", 1)[0] for each in options.text],
    }


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--only", action="append", choices=KINDS, help="measure only this kind; may be repeated")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, for a test in about a minute")
    parser.add_argument(
        "--repeats", type=int, default=5, help="measured turns of each; default 5, with --quick at most 2"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of all libraries")
    parser.add_argument("--device", default="cpu", help="steps and generation: cpu or cuda; default cpu")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="wall time or CPU time; default wall")
    parser.add_argument("--compile", action="store_true", help="steps: also ours with train.compile")
    parser.add_argument("--nanogpt", type=Path, metavar="PATH", help="a local checkout of nanoGPT")
    parser.add_argument(
        "--text", action="append", default=[], metavar="NAME=FILE", help="tokenizers: text of a language"
    )
    parser.add_argument("--megabytes", type=int, default=10, help="tokenizers: size of each text; default 10")
    parser.add_argument(
        "--corpora", type=int, nargs="+", default=[10, 100], help="corpora: megabytes of text; default 10 100"
    )
    parser.add_argument("--until", type=float, default=1.88, help="until: the loss to reach; default 1.88")
    parser.add_argument(
        "--until-text", type=Path, metavar="FILE", help="until: the text; without it, this kind is not measured"
    )
    parser.add_argument("--until-repeats", type=int, default=1, help="until: runs of each; default 1")
    parser.add_argument(
        "--until-commands", action="store_true", help="until: whole commands only, without Hugging Face's loop"
    )
    parser.add_argument("--recipe", default="shakespeare-nano", help="until: our recipe; default shakespeare-nano")
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
