"""Few labels: masked training on many texts without labels first, against a classifier from nothing.

All texts are made by the corpus `topics`, whose best possible error is known. Each word that tells about a topic stands
for four invented ones, drawn anew at each place: 176 words that a classifier must know. For each seed, 20,000 texts
without labels, 300 with labels and 2,000 to test on are drawn; no text is in two of them. The plain command line then
trains

* `taught`: a masked model on the texts without labels, and from it (`--from`) a classifier on the 300;
* `alone`: a classifier on the 300, as large and as regularized as the recipe for labels chooses, in as many minutes
  as the other two runs have together.

`glass evaluate` puts TF-IDF with logistic regression beside each, learnt from the 300.

    python benchmarks/few_labels.py --out benchmarks/results/few_labels.json
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from glassformer.corpora.topics import WORDS, Topics

FINE_TUNING = 3  # minutes of the recipe `fine-tune`
SYNONYMS = 4  # invented words for each word that tells about a topic
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
WORD = re.compile(r"[a-z]+")


def invented_words(numbers: random.Random) -> dict[str, list[str]]:
    """Return for each word that tells about a topic the words that stand for it; no two words have one of them."""
    words = [word for lists in WORDS.values() for row in lists.values() for word in row.split()]
    invented: set[str] = set()
    while len(invented) < SYNONYMS * len(words):
        invented.add("".join(numbers.choices(SYLLABLES, k=3)))
    shuffled = sorted(invented)
    numbers.shuffle(shuffled)
    return {word: shuffled[SYNONYMS * i : SYNONYMS * (i + 1)] for i, word in enumerate(words)}


def write_texts(folder: Path, seed: int, options: argparse.Namespace) -> None:
    """Write `unlabelled.txt`, `labels.csv` and `test.csv`."""
    topics = Topics()
    drawn = dict(topics.labelled(options.unlabelled + options.labels + options.test + 1000, seed))
    numbers = random.Random(seed)
    invented = invented_words(numbers)

    def synonym(found: re.Match[str]) -> str:
        return numbers.choice(invented.get(found.group(), [found.group()]))

    texts = [(WORD.sub(synonym, text), label) for text, label in drawn.items()]
    texts = texts[: options.unlabelled + options.labels + options.test]
    assert len(texts) == options.unlabelled + options.labels + options.test
    unlabelled = texts[: options.unlabelled]
    (folder / "unlabelled.txt").write_text("".join(text + "\n" for text, _ in unlabelled), encoding="utf-8")
    labelled = texts[options.unlabelled :]
    for name, rows in (("labels", labelled[: options.labels]), ("test", labelled[options.labels :])):
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            writer.writerows(rows)


def glass(folder: Path, *words: str) -> dict[str, Any]:
    """Run a command of `glass` in a folder; return what it says with --json."""
    command = [sys.executable, "-m", "glassformer", *words, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the errors on the texts to test on, with their intervals, and that of TF-IDF."""
    again = ["--train.seed", str(seed), "--data.seed", str(seed), "--tokenizer.kind", "words"]
    lines = ["--task", "masked", "--data.document", "line", "--data.windows", "documents"]
    labels = ["--task", "classify"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_texts(folder, seed, options)
        minutes = ["--minutes", str(options.minutes)]
        glass(folder, "train", "unlabelled.txt", *lines, *minutes, "--out", "masked", *again)
        glass(folder, "train", "labels.csv", *labels, "--from", "masked", "--out", "taught", *again[:4])
        minutes = ["--minutes", str(options.minutes + FINE_TUNING)]
        glass(folder, "train", "labels.csv", *labels, *minutes, "--out", "alone", *again)
        found = {name: glass(folder, "evaluate", name, "test.csv") for name in ("taught", "alone")}
    errors = {}
    for name, answer in found.items():
        low, high = answer["accuracy_ci95"]
        errors[name] = {"error": 1 - answer["accuracy"], "error_ci95": [1 - high, 1 - low]}
    (simple,) = [each for each in found["alone"]["baselines"] if each["name"].startswith("TF-IDF")]
    return {"seed": seed, **errors, "tf_idf": {"error": 1 - simple["accuracy"]}}


def main() -> None:
    """Measure each seed, print a table, and keep all answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="default: 0 1 2")
    parser.add_argument("--unlabelled", type=int, default=20_000, help="texts without labels; default 20000")
    parser.add_argument("--labels", type=int, default=300, help="texts with labels; default 300")
    parser.add_argument("--test", type=int, default=2000, help="texts to test on; default 2000")
    parser.add_argument("--minutes", type=float, default=3.0, help="of masked training; default 3")
    parser.add_argument("--out", type=Path, help="a JSON file for all answers")
    options = parser.parse_args()
    print(f"best possible error: {Topics().bayes_error():.3f}")
    found = []
    for seed in options.seeds:
        found.append(measure(seed, options))
        print(json.dumps(found[-1]), flush=True)
    if options.out is not None:
        settings = {name: value for name, value in vars(options).items() if name != "out"}
        facts = {"settings": settings, "best_possible_error": Topics().bayes_error(), "runs": found}
        options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
