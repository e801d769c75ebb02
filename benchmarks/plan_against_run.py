"""Forecasts of `glass plan` compared with measurements of `glass train` with the same settings.

Runs of all three families, with several contexts, precisions, batch sizes and tokenizers, and with rows of equal and of
different lengths, are first planned and then trained, both on the command line. The number of steps is chosen so that
training takes --seconds according to a first plan, but is at least 20. The compared time is the training time; the
compared memory is the peak memory of the training process (on Linux without memory-mapped files).

    python benchmarks/plan_against_run.py --texts ~/texts --seconds 40 --out benchmarks/results/plan_against_run
    python benchmarks/plan_against_run.py --texts ~/texts --seconds 15 --only classify

The folder --texts must have: shakespeare/input.txt, bangla/tagore.txt, multi30k/train.en.gz and .de.gz,
agnews/ag_news_test.csv; the conversations are generated. --out writes NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from isa import add_isa, restrict

SHAKESPEARE = ["shakespeare/input.txt"]
TAGORE = ["bangla/tagore.txt"]
PAIRS = ["multi30k/train.en.gz", "multi30k/train.de.gz", "--task", "translate"]
NEWS = ["agnews/ag_news_test.csv", "--task", "classify", "--data.label_column", "1", "--data.column", "3"]
MODERN = "model.positions=rotary model.norm=rmsnorm model.qk_norm=head model.activation=relu2 train.optimizer=muon"
CHARACTERS = "tokenizer.kind=characters"
SMALL = "model.layers=2 model.width=64 model.heads=4"
MIDDLE = "model.layers=4 model.width=128 model.heads=4"
CASES: dict[str, tuple[list[str], str]] = {
    "lm characters, context 64": (SHAKESPEARE, f"{CHARACTERS} {MIDDLE} model.context=64 train.batch=12"),
    "lm characters, context 256": (SHAKESPEARE, f"{CHARACTERS} {MIDDLE} model.context=256 train.batch=8"),
    "lm characters, modern": (SHAKESPEARE, f"{CHARACTERS} {MIDDLE} {MODERN} model.context=128 train.batch=16"),
    "lm characters, modern, bf16": (SHAKESPEARE, f"{CHARACTERS} {MIDDLE} {MODERN} train.precision=bf16"),
    "lm byte pairs, context 128": (SHAKESPEARE, f"tokenizer.vocab_size=2048 {MIDDLE} model.context=128 train.batch=16"),
    "lm Bangla, byte pairs, bf16": (TAGORE, f"{MIDDLE} {MODERN} model.context=128 train.precision=bf16"),
    "lm Bangla, wide": (TAGORE, f"model.layers=2 model.width=384 {MODERN} model.context=128 train.batch=8"),
    "lm lines": (
        PAIRS[:1],
        f"data.document=line data.windows=documents {MIDDLE} {MODERN} model.context=64 train.batch=32",
    ),
    "masked, context 128": ([*TAGORE, "--task", "masked"], f"{MIDDLE} model.context=128 train.batch=16"),
    "classify, any length": (NEWS, f"{SMALL} model.context=256 train.batch=32 tokenizer.vocab_size=4000"),
    "classify, similar length": (NEWS, f"{SMALL} model.context=256 train.batch_tokens=2048 tokenizer.vocab_size=4000"),
    "translate, any length": (PAIRS, f"{SMALL} model.context=96 train.batch=32 tokenizer.vocab_size=4000"),
    "translate, similar length": (
        PAIRS,
        f"{MIDDLE} model.context=96 train.batch_tokens=2048 tokenizer.vocab_size=4000",
    ),
    "chat": (["talk", "--task", "chat", "--data.size", "4000"], f"{MIDDLE} model.positions=alibi train.precision=bf16"),
    "translate, characters": (PAIRS, f"{CHARACTERS} {SMALL} model.context=160 train.batch=16"),
}
SAME = ["--train.threads", "1", "--sample.beams", "1", "--sample.tokens", "50"]


def said(command: str, words: list[str], folder: Path) -> dict[str, Any]:
    """Run a `glass` command, and return its JSON output."""
    done = subprocess.run(
        [sys.executable, "-m", "glassformer", command, *words, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"glass {command} {' '.join(words)}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def words_of(name: str, texts: Path) -> list[str]:
    """Return the arguments of one case."""
    data, settings = CASES[name]
    found = [str((texts / word).resolve()) if "/" in word else word for word in data]
    return [*found, *SAME, *(f"--set={setting}" for setting in settings.split())]


def against(name: str, texts: Path, seconds: float, probe: float, folder: Path) -> dict[str, Any]:
    """Plan a case and train it, and return the forecasts and the measurements.

    A first plan gives the number of steps that take `seconds`; the case is planned again with this number, or with 20
    steps if the number is smaller.
    """
    words = words_of(name, texts)
    asked = ["--probe", str(probe)]
    step = said("plan", [*words, *asked, "--steps", "1000", "--out", "run"], folder)["seconds_per_step"]
    steps = max(20, round(seconds / step))
    words += ["--steps", str(steps), "--set=train.evaluate_every=" + str(max(5, steps // 4)), "--out", "run"]
    plan = said("plan", [*words, *asked], folder)
    run = said("train", words, folder)
    band = plan["loss_band"]
    return {
        "case": name,
        "steps": steps,
        "parameters": plan["parameters"],
        "time": {"estimated": plan["train_seconds"], "measured": run["train_seconds"]},
        "memory": {"estimated": plan["peak_memory_bytes"], "measured": run["peak_memory_bytes"]},
        "loss": {"band": band, "measured": run["loss"], "inside": band and band["low"] <= run["loss"] <= band["high"]},
    }


def error(pair: dict[str, float]) -> float:
    """Return the relative error of a forecast: (forecast - measured) / measured."""
    return pair["estimated"] / pair["measured"] - 1


def table(results: list[dict[str, Any]], machine: str) -> str:
    """Return the results as a Markdown table."""
    lines = [
        "# Forecasts of `glass plan` and measurements of `glass train`",
        "",
        machine,
        "",
        "| run | steps | parameters | time, s | | memory, MiB | | loss | forecast |",
        "|" + "---|" * 9,
    ]
    for each in results:
        time = each["time"]
        memory = each["memory"]
        loss = each["loss"]
        band = "-" if loss["band"] is None else f"{loss['band']['low']:.3f} to {loss['band']['high']:.3f}"
        outside = "" if loss["inside"] in (True, None) else " (outside)"
        lines.append(
            f"| {each['case']} | {each['steps']:,} | {each['parameters']:,} "
            f"| {time['measured']:.1f} | {error(time):+.0%} "
            f"| {memory['measured'] / 2**20:,.0f} | {error(memory):+.0%} | {loss['measured']:.3f} | {band}{outside} |"
        )
    errors = {kind: [abs(error(each[kind])) for each in results] for kind in ("time", "memory")}
    losses = [each["loss"]["inside"] for each in results if each["loss"]["inside"] is not None]
    lines += [
        "",
        "The percentages are (forecast - measurement) / measurement. Largest and median absolute error: "
        + "; ".join(f"{kind} {max(found):.0%}, {statistics.median(found):.0%}" for kind, found in errors.items())
        + f". Losses inside the forecast interval: {sum(losses)} of {len(losses)}.",
    ]
    return "\n".join(lines) + "\n"


def described() -> str:
    """Describe the machine and its load."""
    import torch

    busy = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"
    return f"{platform.machine()}, {os.cpu_count()} cores, one thread used, {busy}; torch {torch.__version__}"


def main() -> int:
    """Plan and train each case, and print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, help="the folder of texts")
    parser.add_argument("--seconds", type=float, default=40.0, help="seconds of training for each run")
    parser.add_argument("--probe", type=float, default=6.0, help="seconds of the probe, as in glass plan")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--out", type=Path, help="NAME of NAME.json and NAME.md")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    add_isa(parser)
    options = parser.parse_args()
    restrict(options.isa)
    machine = described()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in (name for name in CASES if options.only in name):
            with tempfile.TemporaryDirectory(dir=temporary) as folder:
                results.append(against(name, options.texts, options.seconds, options.probe, Path(folder)))
            found = results[-1]
            print(
                f"{name}: time {error(found['time']):+.0%}, memory {error(found['memory']):+.0%}",
                file=sys.stderr,
                flush=True,
            )
            if options.out is not None:
                facts = json.dumps({"machine": machine, "runs": results}, indent=1)
                options.out.with_suffix(".json").write_text(facts + "\n", encoding="utf-8")
                options.out.with_suffix(".md").write_text(table(results, machine), encoding="utf-8")
    print(json.dumps({"machine": machine, "runs": results}) if options.json else table(results, machine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
