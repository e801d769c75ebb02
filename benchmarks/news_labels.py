"""Accuracy of a small news classifier trained from random weights, compared with two baselines.

The baselines are TF-IDF with logistic regression, and the most frequent class.

Splits AG News (a CSV file of class, title, description) into a test part with the same number of texts of each class
and a training split with all other texts, and runs the command line on them; the test split is used only for the final
evaluation.

    python benchmarks/news_labels.py ag_news_test.csv
    python benchmarks/news_labels.py ag_news_test.csv --test 1000 --seed 0 --set train.steps=2000
"""

from __future__ import annotations

import argparse
import csv
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path


def split(source: Path, folder: Path, test: int, seed: int) -> tuple[Path, Path]:
    """Write `train.csv` and `test.csv`, with the same number of test rows from each class."""
    rows = defaultdict(list)
    with source.open(encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            rows[row[0]].append(row)
    numbers = random.Random(seed)
    parts: dict[str, list[list[str]]] = {"train": [], "test": []}
    for label in sorted(rows):
        numbers.shuffle(rows[label])
        each = test // len(rows)
        parts["test"] += rows[label][:each]
        parts["train"] += rows[label][each:]
    paths = []
    for name, chosen in parts.items():
        numbers.shuffle(chosen)
        path = folder / f"{name}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(chosen)
        print(f"{name}: {len(chosen):,} texts", file=sys.stderr)
        paths.append(path)
    return paths[0], paths[1]


def main() -> None:
    """Split the data, train a classifier, and evaluate it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the CSV file")
    parser.add_argument("--test", type=int, default=1000, metavar="N", help="texts to test on (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the split (default: 0)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.FIELD=VALUE", help="setting for glass train"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, test = split(options.source, folder, options.test, options.seed)
        glass = [sys.executable, "-m", "glassformer"]
        changes = [word for change in options.set for word in ("--set", change)]
        run = str(folder / "run")
        subprocess.run([*glass, "train", str(train), "--recipe", "classify-small", "--out", run, *changes], check=True)
        subprocess.run([*glass, "evaluate", run, str(test)], check=True)


if __name__ == "__main__":
    main()
