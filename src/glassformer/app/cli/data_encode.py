"""Encode a text into a folder of tokens for `glass train`, in one or several processes (`glass data encode`)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.base.config import EXAMPLES, Config
from glassformer.base.errors import GlassError, nearest
from glassformer.base.files import output_path
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import quoted
from glassformer.launch.request import merge_settings

if TYPE_CHECKING:
    from glassformer.text.prepare import Prepared

ENGINES = ("local", "datatrove")
ENCODE_OPTIONS = ("out", "engine", "workers", "parts", "tokenizer")
"""Options that only `encode` takes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass data encode`."""
    group = parser.add_argument_group("encode")
    group.add_argument("--out", type=output_path, metavar="FOLDER", help="the folder to create")
    group.add_argument("--engine", metavar="ENGINE", help="local (default): this process; datatrove: several processes")
    group.add_argument("--workers", type=int, metavar="N", help="datatrove: number of processes (default: 1)")
    group.add_argument(
        "--parts",
        type=int,
        metavar="N",
        help="datatrove: approximate number of parts to split the text into (default: one for each 64 MB)",
    )
    group.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FILE",
        help="a tokenizer.json written by glassformer, to use instead of training a tokenizer",
    )


def refuse_arguments(arguments: argparse.Namespace) -> None:
    """Raise a `GlassError` if an option of `encode` was given to another action."""
    for name in ENCODE_OPTIONS:
        if getattr(arguments, name) is not None:
            raise GlassError(f"glass data {arguments.action} takes no --{name}", f"Remove --{name}, or use encode.")


def run(arguments: argparse.Namespace, changes: dict[str, str]) -> int:
    """Encode the text and print the report."""
    config = _config(arguments, changes)
    engine = arguments.engine or "local"
    if engine not in ENGINES:
        raise GlassError(f"unknown engine {engine!r}", nearest(engine, ENGINES))
    for name in ("workers", "parts"):
        value = getattr(arguments, name)
        if value is not None and (engine == "local" or value < 1):
            raise GlassError(
                f"--{name} {value} cannot be used with --engine {engine}",
                "Give a number of at least 1, with --engine datatrove." if value < 1 else "Add --engine datatrove.",
            )
    prepared = _encode(config, arguments, engine)
    facts = {"folder": str(arguments.out), "engine": engine, **facts_of(prepared)}
    task = " --task masked" if config.train.task == "masked" else ""
    lines = [*prepared.notes, f"{arguments.out} is ready: glass train {quoted(arguments.out)}{task}"]
    emit(SimpleReport(facts, lines), arguments.json)
    return 0


def _config(arguments: argparse.Namespace, changes: dict[str, str]) -> Config:
    if arguments.out is None:
        raise GlassError("glass data encode was given without --out", "Add --out FOLDER.")
    config = merge_settings(None, None, changes)
    if config.train.task in EXAMPLES:
        raise GlassError(
            f"glass data encode does not encode examples of train.task = {config.train.task}",
            "Use it for running text (--task lm or masked); give examples to glass train directly.",
        )
    if arguments.tokenizer is not None and (
        tokenizer_settings := [key for key in changes if key.startswith("tokenizer.")]
    ):
        raise GlassError(
            f"--tokenizer {arguments.tokenizer} was given with {tokenizer_settings[0]}", "Remove one of the two."
        )
    return config


def _encode(config: Config, arguments: argparse.Namespace, engine: str) -> Prepared:
    from glassformer.text.encoded import encode_here
    from glassformer.text.prepare import TokenizerOrigin
    from glassformer.text.records import RECORD_KINDS

    def note(text: str) -> None:
        print(text, file=sys.stderr)

    kind = RECORD_KINDS[config.train.task]
    tokenizer_origin = TokenizerOrigin(config.tokenizer, arguments.tokenizer)
    if tokenizer_origin.file is not None:
        # refuse an unreadable tokenizer, or one without a mask token, before any work
        tokenizer_origin.tokenizer(kind, ())
    if engine == "local":
        return encode_here(kind, config.data, tokenizer_origin, arguments.out, note)
    from glassformer.base.locks import folder_lock
    from glassformer.text.encode_jobs.local import encode_with_datatrove

    return encode_with_datatrove(
        kind,
        config.data,
        tokenizer_origin,
        arguments.out,
        note,
        arguments.workers or 1,
        arguments.parts,
        alone=lambda folder: folder_lock(folder, doing="encoding"),
    )


def facts_of(prepared: Prepared) -> dict[str, Any]:
    """Return the notes, tokenizer and token counts of an encoded text, and its tokens per character and per byte."""
    train = prepared.train.tokens["text"]
    tokens = len(train) - train.documents  # without the end tokens, which represent no text
    return {
        "notes": prepared.notes,
        "tokenizer": prepared.tokenizer.description(),
        "training_tokens": len(train),
        "validation_tokens": len(prepared.validation.tokens["text"]),
        "tokens_per_character": tokens / max(1, train.characters),
        "tokens_per_byte": tokens / max(1, train.bytes),
    }
