"""Data and fit of the loss band of `glass plan`: short language-model runs of many sizes on several texts.

`collect` trains with random texts and sizes, and appends a line for each run to a file, so that it can be stopped at
any time; to continue, give another --seed, because the same seed repeats the same runs. `add` appends finished runs of
task lm. `fit` fits the formula of `glassformer.training.forecast` to that file, prints its coefficients, and prints how
often the loss of a run on an unseen text is inside its band.

    python benchmarks/loss_band.py collect --texts ~/texts --minutes 30
    python benchmarks/loss_band.py add runs/one runs/two
    python benchmarks/loss_band.py fit

The texts: every .txt and .gz file below --texts, column 3 of its .csv files, columns 1 and 2 of its .tsv files, and
three packages of the Python standard library of this machine; files with `val` or `test_2016` in their path are left
out. Each run tokenizes its text as characters or with BPE, chosen at random. There are no runs on generated corpora,
because models learn them at a different speed, and their true entropy is known.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.evaluation.simple_predictors import fast_baselines
from glassformer.runs.folder import open_run
from glassformer.runs.run_text import find_or_encode_text
from glassformer.training import forecast
from glassformer.training.loop import train
from glassformer.training.plan import plan_run
from glassformer.training.reporting import Silent
from glassformer.training.setup import new_training, text_of_run

RESULTS = Path(__file__).parent / "results" / "loss_band.jsonl"
MODERN = {"positions": "rotary", "norm": "rmsnorm", "qk_norm": "head", "activation": "relu2", "tied": False}
"""Model settings of runs with Muon: the settings of an earlier version of the recipe auto."""
LEAST = 1e10
MOST = 3e12
"""Approximate limits of the FLOPs of a run: 6 x parameters x tokens."""
PENALTY = 0.3
"""Penalty on the squares of the weights."""
COVERAGE = 0.85
"""Fraction of runs on unseen texts for which the band is made wide enough."""


def sources(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the settings of `data` for each text, by name."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if "val" in name or "test_2016" in name:
            continue  # parts of other texts
        if path.suffix in (".txt", ".gz"):
            found[name] = {"source": str(path)}
        if path.suffix == ".csv":
            found[name] = {"source": str(path), "column": "3"}
        if path.suffix == ".tsv":
            found |= {f"{name} {column}": {"source": str(path), "column": str(column)} for column in (1, 2)}
    library = Path(sysconfig.get_path("stdlib"))
    return found | {f"library {name}": {"source": str(library / name)} for name in ("asyncio", "email", "idlelib")}


def random_config(rng: random.Random, data: dict[str, Any], kind: str) -> Config:
    """Return random settings of a run; its FLOPs are about log-uniform between `LEAST` and `MOST`."""
    width = rng.choice([32, 48, 64, 96, 128])
    layers = rng.randint(1, 3)
    context = rng.choice([32, 64, 128])
    vocabulary = rng.choice([512, 1024, 2048])
    near = 12 * layers * width**2 + width * (100 if kind == "characters" else vocabulary)
    tokens = math.exp(rng.uniform(math.log(LEAST), math.log(MOST))) / (6 * near)
    batch = rng.choice([8, 16, 32])
    steps = max(60, min(4000, round(tokens / (batch * context))))
    muon = rng.random() < 0.85
    return Config.from_dict(
        {
            "data": data | {"validation_limit": 60_000},
            "tokenizer": {"kind": kind, "vocab_size": vocabulary},
            "model": {"width": width, "layers": layers, "heads": width // 16, "context": context}
            | (MODERN if muon else {}),
            "train": {
                "steps": steps,
                "batch": batch,
                "threads": 1,
                "evaluate_every": max(20, steps // 8),
                "save_every": 10**6,
                "evaluate_tokens": 50_000,
                "schedule": "linear" if muon else "cosine",
                "final_rate": 0.0 if muon else 0.1,
                "optimizer": "muon" if muon else "adamw",
                "learning_rate": rng.choice([3e-3, 1e-2] if muon else [1e-3, 2e-3, 4e-3]),
            },
            "sample": {"tokens": 1},
        }
    )


def measured(name: str, config: Config, folder: Path) -> dict[str, Any]:
    """Train a run, and return its facts known before training, its validation loss and its training time."""
    facts = facts_of(name, config, text_of_run(config, folder / "run", lambda text: None))
    with (
        tempfile.TemporaryDirectory(dir=folder) as temporary,
        new_training(config, Path(temporary) / "run", Silent()) as trainer,
    ):
        outcome = train(trainer)
    assert outcome is not None
    found = {"loss": outcome.validation.loss, "best_step": outcome.step}
    return {**facts, **found, "train_seconds": round(outcome.train_seconds, 1)}


def facts_of(name: str, config: Config, data: Any) -> dict[str, Any]:
    """Return the facts of a run that are known before training."""
    known = forecast.forecast_inputs(plan_run(config, data, None), fast_baselines(config, data))
    if known is None:
        raise GlassError(f"the loss of {name} cannot be forecast", "Use a run of task lm with steps.")
    model = {name: getattr(config.model, name) for name in ("context", "layers", "width")}
    return {"text": name, "tokenizer": config.tokenizer.kind, **known.facts(), **model}


def finished(folder: Path) -> dict[str, Any]:
    """Return the facts of a finished run known before training, its best validation loss and its training time."""
    run = open_run(folder)
    lines = [json.loads(line) for line in run.metrics_file.read_text(encoding="utf-8").splitlines()]
    own = run.config()
    config = own.replace(train={**own.train.model_dump(), "steps": lines[-1]["step"], "minutes": None})
    measures = {line["step"]: line["validation_loss"] for line in lines if "validation_loss" in line}
    best = min(measures, key=lambda step: measures[step])
    seconds = round(lines[-1]["train_seconds"], 1)
    facts = facts_of(Path(own.data.source).name, config, find_or_encode_text(run, own, lambda text: None))
    return {**facts, "loss": measures[best], "best_step": best, "train_seconds": seconds}


def collect(texts: Path, minutes: float, seed: int, to: Path) -> None:
    """Train runs with random texts and sizes, one after the other, until `minutes` have passed."""
    rng = random.Random(seed)
    ends = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as temporary:
        while time.monotonic() < ends:
            name, data = rng.choice(list(sources(texts).items()))
            kind = rng.choice(["characters", "bpe"])
            line = measured(name, random_config(rng, data, kind), Path(temporary))
            append(to, line)


def append(to: Path, line: dict[str, Any]) -> None:
    """Append a run to the file, and print it."""
    with to.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"{line['text']} {line['tokenizer']}: {line['loss']:.3f} after {line['train_seconds']:.0f} s", flush=True)


def read(path: Path) -> list[tuple[str, forecast.RunFacts, float]]:
    """Read the runs of a file: text, facts before training, and loss."""
    names = {field.name for field in fields(forecast.RunFacts)}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(line["text"], forecast.RunFacts(**{name: line[name] for name in names}), line["loss"]) for line in lines]


def left_at(known: forecast.RunFacts, loss: float) -> float:
    """Return ln s for a loss, where s is (loss - floor) / (unigram loss - floor): the inverse of `RunFacts.loss_at`."""
    return math.log(max(1e-3, loss - known.floor) / (known.unigram - known.floor))


def weights_of(runs: Sequence[tuple[str, forecast.RunFacts, float]]) -> NDArray[np.float64]:
    """Fit the weights by least squares, with a small penalty on all except the constant."""
    x = np.array([list(known.features().values()) for _, known, _ in runs])  # (N, P)
    y = np.array([left_at(known, loss) for _, known, loss in runs])  # (N,)
    penalty = PENALTY * np.eye(x.shape[1])  # (P, P)
    penalty[0, 0] = 0.0
    return np.linalg.solve(x.T @ x + penalty, x.T @ y)


def unseen(runs: Sequence[tuple[str, forecast.RunFacts, float]]) -> NDArray[np.float64]:
    """Return the errors of ln s, (N,): each run minus the prediction of a fit to runs on all other texts."""
    errors = np.empty(len(runs))
    for text in {text for text, _, _ in runs}:
        weights = weights_of([run for run in runs if run[0] != text])
        for number, (own, known, loss) in enumerate(runs):
            if own == text:
                errors[number] = left_at(known, loss) - float(np.dot(weights, list(known.features().values())))
    return errors


def half_width_of(runs: Sequence[tuple[str, forecast.RunFacts, float]]) -> float:
    """Return the half-width in ln s of a band that contains the fraction `COVERAGE` of runs on unseen texts."""
    return float(np.quantile(np.abs(unseen(runs)), COVERAGE))


def inside_unseen(runs: Sequence[tuple[str, forecast.RunFacts, float]]) -> list[bool]:
    """Return whether each run is inside a band whose weights and width come only from runs on other texts."""
    errors = np.abs(unseen(runs))
    texts = np.array([text for text, _, _ in runs])
    return [bool(errors[n] <= np.quantile(errors[texts != text], COVERAGE)) for n, text in enumerate(texts)]


def fit(path: Path) -> None:
    """Print the fitted coefficients, and how often runs on unseen texts are inside a band fitted without them."""
    runs = read(path)
    inside = inside_unseen(runs)
    errors = unseen(runs)
    ratios = [
        abs(math.log(loss / known.loss_at(left_at(known, loss) - error)))
        for (_, known, loss), error in zip(runs, errors, strict=True)
    ]
    weights = zip(runs[0][1].features(), weights_of(runs).tolist(), strict=True)
    print(f"{len(runs)} runs on {len({text for text, _, _ in runs})} texts; BELOW = {forecast.BELOW}")
    print("WEIGHTS =", {name: round(weight, 4) for name, weight in weights})
    print(f"HALF_WIDTH = {half_width_of(runs):.3f}")
    print(f"LARGEST = {max(6 * known.parameters * known.tokens for _, known, _ in runs):.3g}")
    print(f"on unseen texts: {np.mean(inside):.1%} of {len(inside)} runs inside, median error {np.median(ratios):.1%}")


def main() -> int:
    """Run the command: collect, add or fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["collect", "add", "fit"])
    parser.add_argument("runs", nargs="*", type=Path, help="add: run folders")
    parser.add_argument("--texts", type=Path, help="collect: the folder of texts")
    parser.add_argument("--minutes", type=float, default=30.0, help="collect: duration in minutes")
    parser.add_argument("--seed", type=int, default=0, help="collect: seed of the random texts and sizes")
    parser.add_argument("--file", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.what == "fit":
        fit(options.file)
        return 0
    if options.what == "add":
        for folder in options.runs:
            append(options.file, finished(folder))
        return 0
    if options.texts is None:
        parser.error("collect needs --texts")
    collect(options.texts, options.minutes, options.seed, options.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
