"""Files of examples, and functions that their tests share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from glassformer.base.config import DataConfig, Task, TokenizerConfig
from glassformer.text.evaluation_data import encode_evaluation_data
from glassformer.text.prepare import Prepared, prepare
from glassformer.text.record_store import RecordStore
from glassformer.text.records import RECORD_KINDS
from glassformer.text.tokenizers import Tokenizer

CHARACTERS = TokenizerConfig(kind="characters")
BYTES = TokenizerConfig(kind="bytes")
PAIRS = [(f"the {n} cats sleep", f"les {n} chats dorment à côté") for n in range(40)]
SPAM = [(f"win {n} pounds now", "spam") for n in range(12)] + [(f"see you at {n} then", "ham") for n in range(28)]
Write = Callable[[str, str | bytes], str]


def writer(folder: Path) -> Write:
    """Return a function that writes a file below `folder` and returns its path."""

    def written(name: str, content: str | bytes) -> str:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return str(path)

    return written


def lines(texts: Iterable[str]) -> str:
    """Join texts, one per line."""
    return "".join(f"{text}\n" for text in texts)


def tsv(rows: Iterable[Iterable[str]]) -> str:
    """Join rows with tabs."""
    return lines("\t".join(row) for row in rows)


def jsonl(rows: Iterable[object]) -> str:
    """Join objects, one per line."""
    return lines(json.dumps(row, ensure_ascii=False) for row in rows)


LABELLED = tsv((label, text) for text, label in SPAM)


def made(folder: Path, task: Task, tokenizer: TokenizerConfig = BYTES, **data: Any) -> Prepared:
    """Prepare data in a cache below `folder`, with a random split by default."""
    data.setdefault("split", "random")
    return prepare(RECORD_KINDS[task], DataConfig(**data), tokenizer, folder / "cache")


def texts(found: Prepared) -> list[tuple[str, ...]]:
    """Return the texts of both splits, training first."""
    return [*found.train.texts(), *found.validation.texts()]


def notes(found: Prepared) -> str:
    """Return all notes, one per line."""
    return "\n".join(found.notes)


def encoded(
    task: Task, data: DataConfig, tokenizers: tuple[Tokenizer, Tokenizer], labels: tuple[str, ...], folder: Path
) -> tuple[RecordStore, list[str]]:
    """Encode data for evaluation with these tokenizers of source and target; return the data and the notes."""
    kind = RECORD_KINDS[task]
    by_role = {kind.roles[-1]: tokenizers[1], kind.roles[0]: tokenizers[0]}
    found = encode_evaluation_data(kind, data, by_role, folder, labels)
    return found.store, found.notes
