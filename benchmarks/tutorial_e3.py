"""The notebook's model of the assignment "Tiny Transformer", and a better one, in bits per character on the same lines.

TEXT is tinyshakespeare. The script trains three runs, each of which resumes where an earlier call was stopped:

* `protocol`: recipe `tutorial-e3` on the whole text, as in the notebook, whose split leaks;
* `notebook`: the same recipe on four fifths of the lines. Its validation rows are still chosen as in the notebook;
* `better`: recipe `tutorial-e3-better` on the same four fifths of the lines, of which it holds out a tenth.

It then scores the last fifth of the lines, which `notebook` and `better` have not seen, with the best and the last
checkpoint of both. `notebook` predicts tokens 2 to 16 of a line; the nats of `better` are summed over the characters of
these tokens only, so that the bits per character of both are about the same characters, spaces included. `better` also
has a figure for all characters of the lines.

    python benchmarks/tutorial_e3.py input.txt --out e3 --epochs 25
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from glassformer.base.config import Config
from glassformer.base.recipes import load_recipe
from glassformer.model.evaluation_mode import inference
from glassformer.runs.folder import Which
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import TextModel

SEED = 1


def clean_lines(text: Path) -> list[str]:
    """Return the lines that the recipes keep."""
    data = Config.from_dict(load_recipe("tutorial-e3").settings).data
    lines = [line.strip() for line in text.read_text(encoding="utf-8").splitlines()]
    most = data.max_words or math.inf
    return [line for line in lines if data.min_words <= len(line.split()) <= most and len(line) >= data.min_characters]


def train(text: Path, recipe: str, run: Path, steps: int | None, settings: Sequence[str]) -> None:
    """Train a run, or resume it if its folder exists."""
    words = ["train", str(text), "--recipe", recipe, *(part for each in settings for part in ("--set", each))]
    if (run / "config.toml").exists():
        words = ["train", str(text), "--resume"]
    words += ["--out", str(run), *([] if steps is None else ["--steps", str(steps)])]
    subprocess.run([sys.executable, "-m", "glassformer", *words], check=True)


def nats_by_character(model: TextModel, line: str, tokens: int | None = None) -> list[float]:
    """Return the nats of each character of a line; a token's nats are on its first character.

    Args:
        model: the run.
        line: ASCII text.
        tokens: number of tokens to score; None: all. The first token has NaN unless the run's rows begin with the start
            token.
    """
    ids = model.tokenizer.encode(line)[:tokens]
    start = [model.tokenizer.start_id] if model.config.data.windows == "documents" else []
    with inference(model.model):
        logits = model.model(torch.tensor([start + ids[:-1]]))[0]  # (T, V)
    targets = ids if start else ids[1:]
    scored = -logits.log_softmax(dim=-1)[torch.arange(len(targets)), targets]  # (T)
    nats: list[float] = []
    for id, value in zip(ids, [*([] if start else [math.nan]), *scored.tolist()], strict=True):
        nats += [value, *[0.0] * (len(model.tokenizer.token_bytes(id)) - 1)]
    return nats


def score(runs: Path, held_out: Sequence[str], which: Which) -> dict[str, float]:
    """Return bits per character of the held-out lines for one checkpoint of `notebook` and of `better`."""
    notebook, better = (OpenedRun.load(runs / name, which=which).writer for name in ("notebook", "better"))
    sums = {"notebook": 0.0, "better": 0.0, "better, whole lines": 0.0}
    characters = {"same": 0, "all": 0}
    for line in held_out:
        ids = notebook.tokenizer.encode(line)
        first = len(notebook.tokenizer.token_bytes(ids[0]))  # characters of the token that the notebook cannot predict
        of_notebook = nats_by_character(notebook, line, notebook.config.model.context + 1)
        of_better = nats_by_character(better, line)
        sums["notebook"] += sum(of_notebook[first:])
        sums["better"] += sum(of_better[first : len(of_notebook)])
        sums["better, whole lines"] += sum(of_better)
        characters["same"] += len(of_notebook) - first
        characters["all"] += len(line)
    bits = {name: total / math.log(2) / characters["same"] for name, total in sums.items()}
    bits["better, whole lines"] *= characters["same"] / characters["all"]
    return bits


def losses(run: Path) -> dict[str, Any]:
    """Return the best and the last validation loss in `metrics.jsonl`, with their steps."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    evaluated = [(line["validation_loss"], line["step"]) for line in lines if "validation_loss" in line]
    return {"best": min(evaluated), "last": evaluated[-1]}


def main() -> None:
    """Train, score and print the table; write it to `results.json` in the folder of the runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=100, help="epochs of the notebook's model (default: its 100)")
    parser.add_argument("--steps", type=int, help="steps of the better model (default: the recipe's)")
    parser.add_argument("--lines", type=int, help="score only this many held-out lines")
    parser.add_argument("--set", action="append", default=[], help="a setting of all runs, such as train.threads=1")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    lines = clean_lines(options.text)
    random.Random(SEED).shuffle(lines)
    held_out = lines[: len(lines) // 5]
    part = options.out / "train.txt"
    part.write_text("\n".join(lines[len(held_out) :]) + "\n", encoding="utf-8")
    for name, text, count in (("protocol", options.text, len(lines)), ("notebook", part, len(lines) - len(held_out))):
        rows = 15 * count  # at most
        steps = round(options.epochs * 0.8 * rows / 64)
        epoch = max(1, steps // options.epochs)
        settings = [f"train.evaluate_every={epoch}", f"train.save_every={epoch}", *options.set]
        train(text, "tutorial-e3", options.out / name, steps, settings)
    better = ["data.validation_fraction=0.1", *options.set]
    train(part, "tutorial-e3-better", options.out / "better", options.steps, better)
    results: dict[str, Any] = {name: losses(options.out / name) for name in ("protocol", "notebook", "better")}
    checkpoints: tuple[Which, ...] = ("best", "last")
    for which in checkpoints:
        results[f"bits per character, {which} checkpoint"] = score(options.out, held_out[: options.lines], which)
    print(json.dumps(results, indent=1))
    (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
