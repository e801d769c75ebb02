"""Prepared data of every kind, and the hashes of all files that were written for it when they were recorded.

`python -m tests.unit.stored_data` rewrites `tests/fixtures/stores.json`. Run it only after an intended change of the
stored data; such a change makes older token folders unusable.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from glassformer.base.config import TASK_FACTS, Config
from glassformer.runs.run_text import prepare_run_text

EXPECTED = Path(__file__).parents[1] / "fixtures" / "stores.json"
WORDS = ["river", "stone", "মানুষ", "night", "Straße", "夜", "quick", "émigré", "lamp", "🇧🇩", "over", "under"]


def _sentence(number: int) -> str:
    return " ".join(WORDS[(number * step + number // 3) % len(WORDS)] for step in range(1, 4 + number % 5))


def write_sources(folder: Path) -> None:
    """Write the files that the cases read into a folder."""
    (folder / "mails" / "spam").mkdir(parents=True)
    (folder / "mails" / "ham").mkdir()
    sentences = [_sentence(number) for number in range(240)]
    blank = ["", "   ", *sentences[:120], sentences[3], sentences[5], "", *sentences[120:]]
    pairs = [(text, text.upper()[::-1]) for text in sentences]
    files = {
        "book.txt": "\n\n".join(". ".join(sentences[at : at + 9]) for at in range(0, 240, 9)) + "\n",
        "one.txt": " ".join(sentences),
        "huge.txt": " ".join(sentences * 500) + "\n\n" + "\n\n".join(sentences[:40]) + "\n",
        "lines.txt": "\n".join(blank) + "\n",
        "prose.csv": "id,text\n" + "".join(f'{at},"{text}, and {at}"\n' for at, text in enumerate(sentences)),
        "source.txt": "".join(f"{source}\n" for source, _ in pairs),
        "target.txt": "".join(f"{target}\n" for _, target in pairs),
        "pairs.tsv": "".join(f"{source}\t{target}\n" for source, target in [*pairs, ("", "x"), *pairs[:9]]),
        "own.tsv": "".join(f"{source}\t{target}\n" for source, target in pairs[5:17:2]),
        "mails.jsonl": "".join(
            json.dumps({"kind": f"k{at % 3}" if at % 17 else " rare ", "title": text, "body": text[::-1]}) + "\n"
            for at, text in enumerate(sentences)
        ),
        "own.jsonl": "".join(
            json.dumps({"kind": f"k{at % 5}", "title": text, "body": "of another year"}) + "\n"
            for at, text in enumerate(sentences[:20])
        ),
    } | {f"mails/{'spam' if at % 3 else 'ham'}/{at:02}.txt": text for at, text in enumerate(sentences[:40])}
    for name, text in files.items():
        (folder / name).write_bytes(text.encode("utf-8"))


BPE = {"tokenizer.vocab_size": "300"}
CHARACTERS = {"tokenizer.kind": "characters", "tokenizer.min_count": "2"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "lm end": ("lm", {"source": "book.txt"}),
    "lm one document": ("lm", {"source": "one.txt"}),
    "lm paragraphs": ("lm", {"source": "book.txt", "document": "paragraph", "clean": True}),
    "lm random": ("lm", {"source": "lines.txt", "document": "line", "split": "random", "seed": 3}),
    "lm random exact": ("lm", {"source": "lines.txt", "document": "line", "split": "random", "duplicates": "exact"}),
    "lm near": ("lm", {"source": "lines.txt", "document": "line", "duplicates": "near", "min_words": 4}),
    "lm limit": ("lm", {"source": "book.txt", "validation_limit": 50, "document": "paragraph", "split": "random"}),
    "lm table": ("lm", {"source": "prose.csv", "column": "text", "max_words": 7}),
    "lm huge": ("lm", {"source": "huge.txt", "document": "paragraph", "split": "random", "duplicates": "near"}),
    "lm folder": ("lm", {"source": "mails"}),
    "lm corpus": ("lm", {"source": "stories", "size": 60}),
    "masked": ("masked", {"source": "book.txt", "document": "paragraph"}),
    "masked random": ("masked", {"source": "lines.txt", "document": "line", "split": "random"}),
    "classify end": ("classify", {"source": "mails.jsonl", "label_column": "kind"}),
    "classify random": ("classify", {"source": "mails.jsonl", "column": "title,body", "split": "random", "seed": 5}),
    "classify own": ("classify", {"source": "mails.jsonl", "column": "title", "validation": "own.jsonl"}),
    "classify folder": ("classify", {"source": "mails", "split": "random"}),
    "classify corpus": ("classify", {"source": "topics", "size": 60, "min_words": 5}),
    "translate parallel": ("translate", {"source": "source.txt", "target": "target.txt"}),
    "translate table": ("translate", {"source": "pairs.tsv", "split": "random", "max_words": 5}),
    "translate own": ("translate", {"source": "pairs.tsv", "validation": "own.tsv"}),
    "translate corpus": ("translate", {"source": "sort", "size": 60, "validation": "sort"}),
    "summarize": ("summarize", {"source": "pairs.tsv", "validation_limit": 300}),
}
TOKENIZERS = {
    "bpe": BPE,
    "characters": CHARACTERS,
    "apart": {"tokenizer.kind": "characters", "tokenizer.joint": "false", "model.shared_embedding": "false"},
}


def config_of(task: str, data: dict[str, Any], tokenizer: str) -> Config:
    """Return the settings of a case."""
    found = Config.model_validate({"train": {"task": task}, "model": {"family": TASK_FACTS[task].family}, "data": data})
    return found.with_changes(TOKENIZERS[tokenizer])


def stored(cache: Path, cases: Collection[str] = tuple(CASES)) -> dict[str, dict[str, Any]]:
    """Prepare cases in the current folder; return, for each case and tokenizer, the folder's name and hashes of the
    text, the notes and the files."""
    found: dict[str, dict[str, Any]] = {}
    for name in cases:
        task, data = CASES[name]
        kinds = ("bpe", "characters", "apart") if task == "translate" else ("bpe", "characters")
        for kind in kinds:
            prepared = prepare_run_text(config_of(task, data, kind), cache, lambda text: None)
            files = {file.name: _sum(file) for file in sorted(prepared.folder.iterdir())}
            notes = hashlib.sha256("\n".join(prepared.notes).encode("utf-8")).hexdigest()
            facts = {"folder": prepared.folder.name, "notes": notes, "text_hash": prepared.text_hash, "files": files}
            found[f"{name}, {kind}"] = facts
    return found


def _sum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        os.chdir(made)
        write_sources(Path(made))
        EXPECTED.write_text(json.dumps(stored(Path("cache")), indent=1) + "\n", encoding="utf-8")
