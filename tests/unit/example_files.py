"""Files of examples, and what the tests of them ask again and again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from glassformer.base.config import DataConfig, Task, TokenizerConfig
from glassformer.text.examples import PreparedExamples
from glassformer.text.prepare_examples import prepare_examples

CHARACTERS = TokenizerConfig(kind="characters")
BYTES = TokenizerConfig(kind="bytes")
PAIRS = [(f"the {n} cats sleep", f"les {n} chats dorment à côté") for n in range(40)]
SPAM = [(f"win {n} pounds now", "spam") for n in range(12)] + [(f"see you at {n} then", "ham") for n in range(28)]
Write = Callable[[str, str | bytes], str]


def writer(folder: Path) -> Write:
    """Writes a file below `folder` and tells its path."""

    def written(name: str, content: str | bytes) -> str:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return str(path)

    return written


def lines(texts: Iterable[str]) -> str:
    """One text in each line."""
    return "".join(f"{text}\n" for text in texts)


def tsv(rows: Iterable[Iterable[str]]) -> str:
    """Rows with tabs."""
    return lines("\t".join(row) for row in rows)


def jsonl(rows: Iterable[object]) -> str:
    """One object in each line."""
    return lines(json.dumps(row, ensure_ascii=False) for row in rows)


LABELLED = tsv((label, text) for text, label in SPAM)


def made(folder: Path, task: Task, tokenizer: TokenizerConfig = BYTES, **data: Any) -> PreparedExamples:
    """Prepared in a cache below `folder`, split at random unless said otherwise."""
    data.setdefault("split", "random")
    return prepare_examples(task, DataConfig(**data), tokenizer, folder / "cache")


def texts(found: PreparedExamples) -> list[tuple[str, str]]:
    """Of both sides, training first."""
    return [*found.train.texts(), *found.validation.texts()]


def notes(found: PreparedExamples) -> str:
    """All of them, in lines."""
    return "\n".join(found.notes)
