"""List generated corpora and recipes, inspect training data, or encode a text once for many runs.

glass data list
glass data show stories --size 5
glass data look book.txt
glass data look mails.csv --task classify
glass data encode book.txt --out tokens/book
glass data encode texts --out tokens/texts --engine datatrove --workers 8 --data.duplicates near
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.app.cli import data_encode
from glassformer.app.cli.run_arguments import add_chat_template_argument, chat_template_setting
from glassformer.app.cli.settings import add_setting_flags, changes_from
from glassformer.base.config import Config
from glassformer.base.errors import GlassError, nearest
from glassformer.base.recipes import load_recipe, recipe_names
from glassformer.base.report import SimpleReport, emit
from glassformer.corpora import (
    ConversationCorpus,
    Corpus,
    Generated,
    LabelledCorpus,
    MinimalPairCorpus,
    PairCorpus,
    corpus_names,
    find_corpus,
)
from glassformer.launch.request import merge_settings, source_settings
from glassformer.text.left_out import Tally
from glassformer.text.records import END_MARK

if TYPE_CHECKING:
    from glassformer.text.prepare import Prepared
    from glassformer.text.reading import SourceFile
    from glassformer.text.source import Source

ACTIONS = ("list", "show", "look", "encode")
SHOWN = 10
"""Default number of documents or examples of a corpus to show."""
SHOWN_FIRST = 5
"""Maximum number of rows of DATA to show, from its beginning."""
LINE = 100
"""Maximum number of characters of a text on a line of the terminal."""
MOST_CHARACTERS = 1000
"""Maximum number of characters of a text with `--json`, and of a conversation."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass data`."""
    parser.add_argument("action", metavar="ACTION", help="list, show CORPUS, look DATA or encode DATA")
    parser.add_argument(
        "name", nargs="?", metavar="CORPUS|DATA", help="the corpus to show, or the data to inspect or encode"
    )
    parser.add_argument("target", nargs="?", metavar="TARGET", help="look: file with the targets, parallel to DATA")
    parser.add_argument("--task", metavar="TASK", help="look, encode: task to prepare the data for (sets train.task)")
    parser.add_argument(
        "--size",
        type=int,
        metavar="N",
        help=f"documents or examples of a corpus to generate (default: {SHOWN} for show, otherwise data.size)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="seed of a generated corpus (sets data.seed)")
    add_chat_template_argument(parser)
    data_encode.add_arguments(parser)
    add_setting_flags(parser, ("data", "tokenizer"))


def run(arguments: argparse.Namespace) -> int:
    """Run the action: list, show, look or encode."""
    if arguments.action not in ACTIONS:
        raise GlassError(f"unknown action {arguments.action!r} of glass data", nearest(arguments.action, ACTIONS))
    if arguments.action != "look" and arguments.chat_template is not None:
        raise GlassError(f"glass data {arguments.action} takes no --chat-template", "Remove it, or use look.")
    if arguments.action not in ("look", "encode") and (arguments.target, arguments.task) != (None, None):
        raise GlassError(
            f"glass data {arguments.action} takes no TARGET and no --task", "Remove them, or use look or encode."
        )
    if arguments.action != "encode":
        data_encode.refuse_arguments(arguments)
    if arguments.action == "list":
        return _list(arguments.json)
    if arguments.name is None:
        raise GlassError(
            f"glass data {arguments.action} needs a name",
            f"Give a name, for example: glass data {arguments.action} stories"
            f"{' --out tokens/stories' if arguments.action == 'encode' else ''}",
        )
    if arguments.action == "encode":
        return data_encode.run(arguments, _changes(arguments))
    return _show(arguments) if arguments.action == "show" else _inspect(arguments)


def _list(as_json: bool) -> int:
    corpora = {name: find_corpus(name) for name in corpus_names()}
    recipes = {name: load_recipe(name).summary for name in recipe_names()}
    described = {name: {"summary": corpus.summary, "tasks": corpus.tasks} for name, corpus in corpora.items()}
    lines = ["Generated corpora (glass train NAME), with their tasks (--task):"]
    lines += [f"  {name:<18} {corpus.summary} [{', '.join(corpus.tasks)}]" for name, corpus in corpora.items()]
    lines.append("Recipes (--recipe NAME):")
    lines += [f"  {name:<18} {summary}" for name, summary in recipes.items()]
    emit(SimpleReport({"corpora": described, "recipes": recipes}, lines), as_json)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    corpus = find_corpus(arguments.name)
    data = Config().with_changes({"data.size": str(SHOWN), **_changes(arguments)}).data
    emit(CorpusReport(corpus, _generate_records(corpus, data.size, data.seed)), arguments.json)
    return 0


@dataclass(frozen=True)
class CorpusReport:
    """Report on a generated corpus.

    Attributes:
        corpus: generated corpus.
        kinds: generated records by kind (documents, pairs, labelled texts, conversations, minimal pairs).
    """

    corpus: Generated
    kinds: dict[str, list[Any]]

    def facts(self) -> dict[str, Any]:
        """Return the name and tasks of the corpus, its known statistics (such as entropy), and the records by kind."""
        facts: dict[str, Any] = {"corpus": self.corpus.name, "tasks": self.corpus.tasks}
        if isinstance(self.corpus, Corpus):
            facts["entropy_per_document"] = self.corpus.entropy()
            facts["characters_per_document"] = self.corpus.mean_characters()
        if isinstance(self.corpus, LabelledCorpus):
            facts["bayes_error"] = self.corpus.bayes_error()
        return facts | self.kinds

    def text(self) -> str:
        """Return the records of the first kind, and the minimal pairs, as text for the terminal."""
        first = next(iter(self.kinds.values()))
        if "conversations" in self.kinds:
            return "\n\n".join("\n".join(map(": ".join, map(dict.values, each))) for each in first)
        lines = [line if isinstance(line, str) else "\t".join(line.values()) for line in first]
        if "minimal_pairs" in self.kinds:
            lines.append("\nMinimal pairs (right, wrong):")
            lines += [f"{pair['good']}\t{pair['bad']}" for pair in self.kinds["minimal_pairs"]]
        return "\n".join(lines)


def _generate_records(corpus: Generated, size: int, seed: int) -> dict[str, list[Any]]:
    """Generate records of a corpus, by kind (documents, pairs, labelled texts, conversations, minimal pairs)."""
    kinds: dict[str, list[Any]] = {}
    if isinstance(corpus, Corpus):
        kinds["documents"] = list(islice(corpus.documents(size, seed), size))
    if isinstance(corpus, PairCorpus):
        pairs = islice(corpus.pairs(size, seed), size)
        kinds["pairs"] = [{"source": source, "target": target} for source, target in pairs]
    if isinstance(corpus, LabelledCorpus):
        texts = islice(corpus.labelled(size, seed), size)
        kinds["labelled"] = [{"label": label, "text": text} for text, label in texts]
    if isinstance(corpus, ConversationCorpus):
        kinds["conversations"] = list(islice(corpus.conversations(size, seed), size))
    if isinstance(corpus, MinimalPairCorpus):
        kinds["minimal_pairs"] = [asdict(pair) for pair in islice(corpus.minimal_pairs(size, seed), size)]
    return kinds


def _inspect(arguments: argparse.Namespace) -> int:
    """Read, split and encode the data as in training, in a temporary folder, and print the first rows and notes."""
    config = merge_settings(None, None, _changes(arguments))
    with tempfile.TemporaryDirectory(prefix="glass-look-", ignore_cleanup_errors=True) as folder:
        facts = _prepare(config, Path(folder))
    lines = [*facts["notes"], "the first rows as they are read:"]
    for row in facts["first"]:
        if "pieces" in row:
            lines.append("  " + _shaded(row["pieces"]))
            continue
        parts = [_in_one_line(row[name]) for name in ("label", "source", "text", "target") if name in row]
        lines.append("  " + (" => " if "source" in row else ": ").join(parts))
    if any("pieces" in row for row in facts["first"]):
        lines.append(
            f"text that counts in the loss is {'shaded' if sys.stdout.isatty() else 'in [[ ]]'}; | is an end token"
        )
    emit(SimpleReport({"source": config.data.source, **facts}, lines), arguments.json)
    return 0


def _in_one_line(text: str) -> str:
    """Return the beginning of a text on one line, with control characters escaped."""
    beginning = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text[:LINE])
    return beginning + " ..." if len(text) > LINE else beginning


def _first_conversations(source: Source) -> list[dict[str, Any]]:
    """Return the first conversations, truncated and split into pieces that count in the loss and pieces that do not."""
    first = []
    for record in islice(source.records(Tally()), SHOWN_FIRST):
        text = record.texts[0][:MOST_CHARACTERS]
        borders = [0, *(min(border, len(text)) for span in record.loss_spans for border in span), len(text)]
        pieces = [
            {"text": text[start:stop].replace(END_MARK, "|"), "counts": bool(number % 2)}
            for number, (start, stop) in enumerate(pairwise(borders))
            if start < stop
        ]
        first.append({"pieces": pieces})
    return first


def _shaded(pieces: list[dict[str, Any]]) -> str:
    """Return a conversation on one line, with the pieces that count in the loss in reverse video or in brackets."""
    begin, end = ("\x1b[7m", "\x1b[0m") if sys.stdout.isatty() else ("[[", "]]")
    texts = []
    for piece in pieces:
        text = "".join(character if character.isprintable() else repr(character)[1:-1] for character in piece["text"])
        texts.append(f"{begin}{text}{end}" if piece["counts"] else text)
    return "".join(texts)


def _first(names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[dict[str, str]]:
    """Return the first rows as dictionaries of their fields, with long texts truncated."""
    first = islice(rows, SHOWN_FIRST)
    return [{name: text[:MOST_CHARACTERS] for name, text in zip(names, row, strict=True)} for row in first]


def _tables(files: Iterable[SourceFile]) -> list[dict[str, Any]]:
    """Return the chosen columns of each table; for CSV and TSV, also the format (header, delimiter, quoting, ...)."""
    tables: list[dict[str, Any]] = []
    for file in files:
        if file.table is not None and file.chosen is not None:
            columns = [file.table.names[index] for index in file.chosen.indices]
            facts: dict[str, Any] = {"file": file.name, "columns": columns}
            if file.table.dialect is not None:
                facts |= {"header": file.table.header, "delimiter": file.table.dialect.delimiter}
                facts |= {"quoting": file.table.dialect.quoting, "extra_fields": file.table.extra_fields}
            tables.append(facts)
    return tables


def _prepare(config: Config, folder: Path) -> dict[str, Any]:
    from glassformer.text.prepare import prepare_source
    from glassformer.text.records import RECORD_KINDS
    from glassformer.text.source import open_sources
    from glassformer.text.survey import first_records

    kind = RECORD_KINDS[config.train.task]
    with open_sources(kind, config.data, folder) as (source, validation_source):
        names = kind.roles if kind.labels == "none" else (*kind.roles, "label")
        first: list[Any] = _first_conversations(source) if kind.loss_spans else _first(names, first_records(source))
        tables = _tables(source.files)
        prepared = prepare_source(source, validation_source, config.tokenizer, folder)
    facts = data_encode.facts_of(prepared) if kind.running_text else _facts_of_examples(prepared)
    return {"first": first, "tables": tables, **facts}


def _facts_of_examples(prepared: Prepared) -> dict[str, Any]:
    names = ("source", "target")
    return {
        "notes": prepared.notes,
        "tokenizer": prepared.tokenizer.description(),
        "source_tokenizer": prepared.source_tokenizer.description(),
        "labels": prepared.labels,
        "training_examples": len(prepared.train),
        "validation_examples": len(prepared.validation),
        "longest_tokens": {
            name: int(tokens.lengths.max()) for name, tokens in zip(names, prepared.train.tokens.values(), strict=False)
        },
        "unknown_share": prepared.train.unknown_fraction,
    }


def _changes(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the settings given by the arguments; for `show`, the name of the corpus is not one of them."""
    if arguments.size is not None and arguments.size < 1:
        raise GlassError(f"--size {arguments.size} is below 1", "Give a number of at least 1.")
    if arguments.size is not None and arguments.action != "show" and arguments.name not in corpus_names():
        raise GlassError(
            f"--size {arguments.size} is for generated corpora, but {arguments.name} is not one", "Remove --size."
        )
    short = {"data.size": arguments.size, "data.seed": arguments.seed, "train.task": arguments.task}
    others = {key: str(value) for key, value in short.items() if value is not None}
    if arguments.action != "show":
        others |= source_settings(arguments.name, arguments.target)
    return changes_from(arguments, others | chat_template_setting(arguments.chat_template))
