"""Look at what can be learnt from: generated corpora, recipes, and your own text.

glass data list
glass data show stories --size 5
glass data look book.txt
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import islice
from pathlib import Path

from glassformer.cli.settings import add_setting_flags, changes_from
from glassformer.cli.train import chosen_settings
from glassformer.config import Config
from glassformer.data.corpora import corpus_names, find_corpus
from glassformer.errors import GlassError, nearest
from glassformer.recipes import load_recipe, recipe_names

ACTIONS = ("list", "show", "look")
SHOWN = 10  # documents


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass data`."""
    parser.add_argument("action", metavar="ACTION", help="list; show CORPUS; look DATA")
    parser.add_argument("name", nargs="?", metavar="CORPUS|DATA", help="what to show or look at")
    parser.add_argument(
        "--size",
        type=int,
        metavar="N",
        help=f"documents to make of a corpus (default: show {SHOWN}, look as data.size)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of a corpus (sets data.seed)")
    add_setting_flags(parser, ("data", "tokenizer"))


def run(arguments: argparse.Namespace) -> int:
    """List, show or look."""
    if arguments.action not in ACTIONS:
        raise GlassError(f"glass data cannot {arguments.action!r}", nearest(arguments.action, ACTIONS))
    if arguments.action == "list":
        return _list(arguments.json)
    if arguments.name is None:
        raise GlassError(
            f"glass data {arguments.action} needs a name", f"Such as: glass data {arguments.action} stories"
        )
    return _show(arguments) if arguments.action == "show" else _look(arguments)


def _list(as_json: bool) -> int:
    corpora = {name: find_corpus(name).summary for name in corpus_names()}
    recipes = {name: load_recipe(name).summary for name in recipe_names()}
    if as_json:
        print(json.dumps({"corpora": corpora, "recipes": recipes}, ensure_ascii=False))
        return 0
    for title, entries in (("Generated corpora (glass train NAME):", corpora), ("Recipes (--recipe NAME):", recipes)):
        print(title)
        for name, summary in entries.items():
            print(f"  {name:<18} {summary}")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    corpus = find_corpus(arguments.name)
    data = Config().with_changes({"data.size": str(SHOWN), **_changes(arguments)}).data
    documents = list(islice(corpus.documents(data.size, data.seed), data.size))
    if arguments.json:
        exact = {"entropy_per_document": corpus.entropy(), "characters_per_document": corpus.mean_characters()}
        print(json.dumps({"corpus": corpus.name, **exact, "documents": documents}, ensure_ascii=False))
        return 0
    print("\n".join(documents))
    return 0


def _look(arguments: argparse.Namespace) -> int:
    """Read, split and encode as training would, into a folder that is thrown away, and say what was found."""
    from glassformer.data.prepare import prepare

    config = chosen_settings(arguments.name, None, None, _changes(arguments))
    with tempfile.TemporaryDirectory(prefix="glass-look-", ignore_cleanup_errors=True) as folder:
        found = prepare(config.data, config.tokenizer, Path(folder))
        tokens = len(found.train) - found.train.documents  # without the end tokens, which stand for no text
        facts = {
            "source": config.data.source,
            "notes": found.notes,
            "tokenizer": found.tokenizer.description(),
            "training_tokens": len(found.train),
            "validation_tokens": len(found.validation),
            "tokens_per_character": tokens / max(1, found.train.characters),
            "tokens_per_byte": tokens / max(1, found.train.bytes),
        }
    if arguments.json:
        print(json.dumps(facts, ensure_ascii=False))
    else:
        print("\n".join(found.notes))
    return 0


def _changes(arguments: argparse.Namespace) -> dict[str, str]:
    """The settings that the flags give, with the short ones of this command."""

    if arguments.size is not None and arguments.size < 1:
        raise GlassError(f"--size {arguments.size} asks for nothing", "Give a number of at least 1.")
    short = {"data.size": arguments.size, "data.seed": arguments.seed}
    return changes_from(arguments) | {key: str(value) for key, value in short.items() if value is not None}
