"""What `glass train TEXT --minutes M` reaches without other options, beside Kneser-Ney and nanoGPT: bits per byte.

The texts are those of `vocabulary.py`. Bits per byte are those of the whole held-out text. The 5-gram model with
Kneser-Ney smoothing, which `glass evaluate` reports, is the best of three: over characters, 2,048 and 8,192 byte pairs.
nanoGPT trains with the recipe that it publishes for CPUs, over characters, with as many steps as take M minutes on this
machine; its evaluations are not counted. Each result is a line of the file `--out`, and is not repeated: the script can
be stopped at any time.

    python benchmarks/default.py data --nanogpt ../nanoGPT --out benchmarks/results/default.jsonl
    python benchmarks/default.py data --out benchmarks/results/default.jsonl --table
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from isa import add_isa, restrict
from peers.reaching import run_nanogpt
from vocabulary import AS_CHOSEN, CHOICES, TEXTS, glass, machine, read, trained, written

from glassformer.base.config import Config
from glassformer.runs.run_text import prepare_run_text
from glassformer.runs.text_location import token_cache

KNESER_NEY = ("characters", "2,048", "8,192")
"""Choices of `vocabulary.py` whose tokens are counted."""
TRIAL = 250
"""Steps of nanoGPT that are timed, to find the number of steps."""


def five_gram(text: Path, choice: str) -> dict[str, Any]:
    """Return a result: the bits per byte of the 5-gram model over a choice's tokens, None if a character is unknown."""
    with tempfile.TemporaryDirectory() as name:
        glass(["train", str(text), "--out", "run", *CHOICES[choice], "--steps", "1"], Path(name))
        evaluation = glass(["evaluate", "run"], Path(name))
    (found,) = [each["bits_per_byte"] for each in evaluation["baselines"] if each["name"] == "5-gram"]
    return {"bits_per_byte": found}


def splits(text: Path, folder: Path) -> tuple[str, str]:
    """Return the training text and the held-out text of a run, from byte pairs, which spell every character."""
    glass(["train", str(text), "--out", "split", *CHOICES["8,192"], "--steps", "1"], folder)
    config = Config.read(folder / "split" / "config.toml")
    data = prepare_run_text(config, token_cache(folder / "split"), lambda _: None)
    train, held_out = ("".join(each.source.iter_text(data.tokenizer)) for each in (data.train, data.validation))
    return train, held_out


def nanogpt(text: Path, checkout: Path, minutes: float, seed: int) -> dict[str, Any]:
    """Train nanoGPT for some minutes, and return a result: its bits per byte, steps and times."""
    with tempfile.TemporaryDirectory() as name:
        train, held_out = splits(text, Path(name))
        symbols = {each: number for number, each in enumerate(sorted(set(train + held_out)))}
        ids = [np.array([symbols[each] for each in split], dtype=np.uint16) for split in (train, held_out)]
        trial = run_nanogpt(checkout, Path(name) / "trial", *ids, len(symbols), TRIAL)
        steps = round(60 * minutes / (trial.training / TRIAL))
        reached = run_nanogpt(checkout, Path(name) / "run", *ids, len(symbols), steps, seed)
    bits = reached.loss / math.log(2) * len(held_out) / len(held_out.encode())
    return {"bits_per_byte": bits, "steps": steps, "train_seconds": reached.training, "wall_seconds": reached.whole}


def table(runs: list[dict[str, Any]]) -> str:
    """Return the results as a Markdown table: the means, and in brackets each seed's value.

    The column of the 5-gram model has the value of its best choice.
    """
    lines = ["| text | minutes | machine | 5-gram | nanoGPT | default | default / 5-gram |"]
    lines.append("|---|---:|---|---|---|---|---:|")
    timed = [run for run in runs if run["minutes"] is not None]
    rows = dict.fromkeys((run["text"], run["minutes"], run["processor"], run["cores"]) for run in timed)
    for text, minutes, processor, cores in rows:
        counted = {run["choice"]: run["bits_per_byte"] for run in runs if run["text"] == text and run["seed"] is None}
        known = [(value, name) for name, value in counted.items() if value is not None]
        best = min(known, default=(math.nan, "not counted"))
        cells = []
        for choice in ("nanoGPT", AS_CHOSEN):
            key = {"text": text, "minutes": minutes, "processor": processor, "cores": cores, "choice": choice}
            cells.append([run["bits_per_byte"] for run in runs if key.items() <= run.items()])
        shown = [f"{mean(each):.3f} ({', '.join(f'{x:.3f}' for x in each)})" if each else "-" for each in cells]
        excess = f"{mean(cells[-1]) / best[0] - 1:+.1%}" if cells[-1] else "-"
        where = f"{processor}, {cores} core{'s' * (cores > 1)}"
        lines.append(f"| {text} | {minutes:g} | {where} | {best[0]:.3f} ({best[1]}) | {' | '.join(shown)} | {excess} |")
    return "\n".join(lines)


def main() -> int:
    """Measure what is still missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the texts")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the results, a line each")
    parser.add_argument("--nanogpt", type=Path, metavar="FOLDER", help="checkout of nanoGPT (default: without it)")
    texts = ["kjv", "shakespeare", "tagore"]
    parser.add_argument("--texts", nargs="+", choices=TEXTS, default=texts, help=f"default: {' '.join(texts)}")
    parser.add_argument("--minutes", type=float, default=5.0, metavar="M", help="default: 5")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="default: 0 1 2")
    parser.add_argument("--table", action="store_true", help="only print the table")
    add_isa(parser)
    options = parser.parse_args()
    restrict(options.isa)

    def add(measure: Callable[[], dict[str, Any]], **key: Any) -> None:
        if any(key.items() <= run.items() for run in read(options.out)):
            return
        run = key | measure()
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")
        print(f"{', '.join(map(str, key.values()))}: {run['bits_per_byte']}", flush=True)

    with tempfile.TemporaryDirectory() as name:
        for text in options.texts if not options.table else ():
            path = written(text, options.data.resolve(), Path(name))
            for choice in KNESER_NEY:
                add(partial(five_gram, path, choice), text=text, minutes=None, choice=choice, seed=None)
            for seed in options.seeds:
                key = {"text": text, "minutes": options.minutes, "seed": seed, **machine()}
                add(partial(trained, path, options.minutes, AS_CHOSEN, seed), choice=AS_CHOSEN, **key)
                if options.nanogpt is not None:
                    add(partial(nanogpt, path, options.nanogpt, options.minutes, seed), choice="nanoGPT", **key)
    print(table(read(options.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
