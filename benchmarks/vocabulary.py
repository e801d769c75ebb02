"""Which tokenizer for which text and time: bits per byte of the held-out text after `glass train TEXT --minutes M`.

The texts are the first 0.1 MB of tinyshakespeare, all of it, Tagore's stories in Bangla, Chinese poems of the Tang
dynasty, the King James Bible, and 20 MB of the Python files of this interpreter's standard library. Settings that a
choice does not name are those of `auto`. The bits per byte are those of `glass evaluate` on the whole validation split.

Each finished run is a line of the file `--out`, and is not repeated: the script can be stopped at any time. Results of
another kind of processor or number of cores count for themselves: a cell is measured on one machine. The runs of 20
minutes need those of 5 minutes on the same text, whose three best choices they use.

    python benchmarks/vocabulary.py data --out benchmarks/results/vocabulary.jsonl
    python benchmarks/vocabulary.py data --out benchmarks/results/vocabulary.jsonl --table
    python benchmarks/vocabulary.py data --out look.jsonl --texts tagore --choices characters "as chosen" --minutes 1
    taskset -c 0 python benchmarks/vocabulary.py data --out one-core.jsonl --texts tang
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from isa import add_isa, restrict

TEXTS = {
    "shakespeare 0.1 MB": "shakespeare/input.txt",
    "shakespeare": "shakespeare/input.txt",
    "tagore": "bangla/tagore.txt",
    "tang": "chinese/tang.txt",
    "kjv": "english/kjv.txt",
    "python": "",
}
"""Name -> file below the folder of the texts; "python" is made from the standard library."""
LIMITS = {"shakespeare 0.1 MB": 100_000, "python": 20_000_000}
"""Name -> maximum number of bytes."""
PLAIN = ("--model.dropout_embedding", "0", "--model.dropout_residual", "0")
DROPOUT = ("--model.dropout_embedding", "0.1", "--model.dropout_residual", "0.1")
PIECES = ("--tokenizer.kind", "bpe", "--tokenizer.vocab_size")
CHOICES: dict[str, tuple[str, ...]] = {
    "characters": ("--tokenizer.kind", "characters", *PLAIN),
    "512": (*PIECES, "512", *PLAIN),
    "2,048": (*PIECES, "2048", *PLAIN),
    "2,048 dropout": (*PIECES, "2048", *DROPOUT),
    "8,192": (*PIECES, "8192", *PLAIN),
    "8,192 dropout": (*PIECES, "8192", *DROPOUT),
    "unigram 2,048": ("--tokenizer.kind", "unigram", "--tokenizer.vocab_size", "2048", *PLAIN),
}
"""Name -> options of `glass train`."""
AS_CHOSEN = "as chosen"
"""`glass train` without options: what the sizing rule chooses."""
CELLS = [(text, 5.0) for text in TEXTS] + [("shakespeare 0.1 MB", 1.0), ("shakespeare", 1.0), ("kjv", 20.0)]
"""Text and minutes of the runs, unless `--minutes` names other minutes."""
LONG = 20.0
"""Minutes of the runs that only the best choices take."""
BEST = 3
"""Number of choices that are tried for `LONG` minutes, besides `AS_CHOSEN`."""
TIE = 0.01
"""Relative difference up to which a choice is listed beside the best one."""

Run = dict[str, Any]


def written(name: str, data: Path, folder: Path) -> Path:
    """Write a text into a folder and return its path."""
    if TEXTS[name]:
        source = (data / TEXTS[name]).read_bytes()
    else:
        library = Path(sysconfig.get_path("stdlib"))
        files = [path for path in sorted(library.rglob("*.py")) if "site-packages" not in path.parts]
        source = b"\n".join(path.read_bytes() for path in files)
    cut = source[: LIMITS.get(name, len(source))].decode("utf-8", errors="ignore")
    path = folder / f"{name.replace(' ', '-')}.txt"
    path.write_text(cut, encoding="utf-8", newline="")
    return path


class RefusedError(Exception):
    """A command ended with an error of its input, such as too small a vocabulary."""


def glass(words: list[str], folder: Path) -> dict[str, Any]:
    """Run a command with --json, and return its result.

    Raises:
        RefusedError: the command refused its input.
    """
    done = subprocess.run(
        [sys.executable, "-m", "glassformer", *words, "--json"], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode == 2:
        raise RefusedError(done.stderr)
    if done.returncode:
        raise SystemExit(f"glass {' '.join(words)} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout))


def trained(text: Path, minutes: float, choice: str, seed: int) -> Run:
    """Train a run and evaluate it on its whole validation split."""
    options = [*CHOICES.get(choice, ()), "--minutes", f"{minutes:g}", "--seed", str(seed)]
    with tempfile.TemporaryDirectory() as name:
        began = time.monotonic()
        train = glass(["train", str(text), "--out", "run", *options], Path(name))
        wall = time.monotonic() - began
        evaluation = glass(["evaluate", "run"], Path(name))
        count = glass(["count", "run"], Path(name))
        settings = (Path(name) / "run" / "config.toml").read_text(encoding="utf-8")
        metrics = (Path(name) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    last = json.loads(metrics[-1])
    wanted = ("kind", "layers", "width", "context", "tied", "batch", "weight_decay", "dropout_residual", "precision")
    chosen = dict(line.split(" = ", 1) for line in settings.splitlines() if line.split(" = ", 1)[0] in wanted)
    chosen["vocab_size"] = count["vocab_size"]
    return {
        "bits_per_byte": evaluation["bits_per_byte"],
        "baselines": {each["name"]: each["bits_per_byte"] for each in evaluation["baselines"]},
        "parameters": count["parameters"],
        "settings": chosen,
        "steps": train["steps_done"],
        "train_seconds": train["train_seconds"],
        "training_loss": last["loss"],
        "wall_seconds": wall,
    }


def read(path: Path) -> list[Run]:
    """Return the finished runs."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def machine() -> dict[str, Any]:
    """Return what the results depend on besides the choices: the processor's vector instructions, and its cores."""
    return {"processor": torch.backends.cpu.get_cpu_capability(), "cores": len(os.sched_getaffinity(0))}


def wanted_runs(options: argparse.Namespace) -> Iterator[tuple[str, float, str]]:
    """Yield the text, the minutes and the choice of each run; later runs depend on the results of earlier ones."""
    cells = [cell for cell in CELLS if cell[0] in options.texts and options.minutes in (None, cell[1])]
    if options.minutes is not None and not cells:
        cells = [(text, options.minutes) for text in options.texts]
    for text, minutes in cells:
        choices = options.choices
        if minutes == LONG:
            best = sorted(found(read(options.out), text, 5.0, machine()).items(), key=lambda each: each[1])
            choices = [*[name for name, _ in best if name in CHOICES][:BEST], AS_CHOSEN]
        for choice in choices:
            yield text, minutes, choice


def found(runs: list[Run], text: str, minutes: float, where: dict[str, Any]) -> dict[str, float]:
    """Return choice -> mean bits per byte over the seeds of the runs of a cell; `where` is a `machine()`.

    A choice that the text does not allow, or to which characters of the held-out text are unknown, is left out: it has
    no bits per byte.
    """
    cell = {"text": text, "minutes": minutes, **where}
    values: dict[str, list[float]] = {}
    for run in runs:
        if cell.items() <= run.items() and run["bits_per_byte"] is not None:
            values.setdefault(run["choice"], []).append(run["bits_per_byte"])
    return {name: sum(each) / len(each) for name, each in values.items()}


def table(runs: list[Run]) -> str:
    """Return the results as a Markdown table: a row for each cell, the best choice in bold and last its equals."""
    names = [*CHOICES, AS_CHOSEN]
    lines = ["| text | minutes | machine | " + " | ".join(names) + " | best |"]
    lines.append("|---|---|---" + "|---:" * len(names) + "|---|")
    cells = dict.fromkeys((run["text"], run["minutes"], run["processor"], run["cores"]) for run in runs)
    for text, minutes, processor, cores in cells:
        values = found(runs, text, minutes, {"processor": processor, "cores": cores})
        ranked = sorted((value, name) for name, value in values.items() if name != AS_CHOSEN)
        winners = [name for value, name in ranked if value <= ranked[0][0] * (1 + TIE)]
        row = []
        for name in names:
            shown = f"{values[name]:.3f}" if name in values else "–"
            row.append(f"**{shown}**" if ranked and name == ranked[0][1] else shown)
        verdict = ", ".join(winners)
        if ranked and AS_CHOSEN in values:
            excess = values[AS_CHOSEN] / ranked[0][0] - 1
            verdict += f" (as chosen: {excess:+.1%})"
        lines.append(
            f"| {text} | {minutes:g} | {processor}, {cores} core{'s' * (cores > 1)} | "
            + " | ".join(row)
            + f" | {verdict} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Train the runs that are still missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the texts")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the finished runs, a line each")
    parser.add_argument("--texts", nargs="+", choices=TEXTS, default=list(TEXTS), help="default: all")
    every = [*CHOICES, AS_CHOSEN]
    parser.add_argument(
        "--choices", nargs="+", choices=every, default=every, help=f"default: all; not for {LONG:g} minutes"
    )
    parser.add_argument("--minutes", type=float, metavar="M", help="only runs of M minutes (default: all)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="N", help="default: 0")
    parser.add_argument("--table", action="store_true", help="only print the table")
    add_isa(parser)
    options = parser.parse_args()
    restrict(options.isa)
    if not options.table:
        with tempfile.TemporaryDirectory() as name:
            for text, minutes, choice in wanted_runs(options):
                for seed in options.seeds:
                    key = {"text": text, "minutes": minutes, "choice": choice, "seed": seed, **machine()}
                    if any(key.items() <= run.items() for run in read(options.out)):
                        continue
                    try:
                        run = trained(written(text, options.data.resolve(), Path(name)), minutes, choice, seed)
                    except RefusedError as error:
                        run = {"bits_per_byte": None, "refused": str(error).splitlines()[-2:]}
                    with options.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({**key, **run}) + "\n")
                    print(f"{text}, {minutes:g} minutes, {choice}: {run['bits_per_byte']}", flush=True)
    print(table(read(options.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
