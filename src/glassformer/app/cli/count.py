"""Count a model without making it: parameters, bytes, arithmetic and cache per token; what many GPUs would need.

glass count shakespeare-nano
glass count runs/book
glass count tutorial-d7 --set model.tied=true
glass count serve --model.layers 48 --model.width 4096 --gpus 8,64 --gpu h100 --tokens 100
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from glassformer.app.cli import count_gpus
from glassformer.app.cli.settings import add_setting_flags, changes_from
from glassformer.base.config import Config, settings_of
from glassformer.base.errors import GlassError, nearest
from glassformer.base.recipes import Recipe, load_recipe, recipe_names
from glassformer.base.wording import counted

Sizes = tuple[int, int | None, int | None]
"""Tokens, tokens of sources with a vocabulary of their own, and labels."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass count`."""
    parser.add_argument("what", metavar="RUN|RECIPE", help=f"a run folder, or one of: {', '.join(recipe_names())}")
    count_gpus.add_arguments(parser)
    add_setting_flags(parser, ("model", "tokenizer"))


def run(arguments: argparse.Namespace) -> int:
    """Print the account."""
    from glassformer.model.count import MIB, count_model, embedding_rows

    config, sizes, published = _what(arguments.what, changes_from(arguments))
    vocab_size, components = sizes[0], count_model(config.model, *sizes)
    total = sum(part.parameters for part in components)
    about, estimates = count_gpus.estimates(arguments, config, sizes)
    widths = embedding_rows(vocab_size)
    if arguments.json:
        rows = [{**part.__dict__, "bytes": part.bytes} for part in components]
        print(json.dumps({"vocab_size": vocab_size, "parameters": total, "bytes": 4 * total, "components": rows,
                          "embedding_by_width": [{"width": w, "parameters": n, "mib": mib} for w, n, mib in widths],
                          "published": published, **count_gpus.facts(estimates)}))  # fmt: skip
        return 0
    layers = counted(config.model.layers, "layers")
    print(f"{arguments.what}: {vocab_size:,} tokens, {layers}, {config.model.width} wide\n")
    print(f"{'component':<20} {'parameters':>14} {'MiB (fp32)':>11} {'FLOPs/token':>14} {'cache B/token':>14}")
    for part in components:
        _row(part.name, part.parameters, part.bytes / MIB, part.flops, part.cache_bytes)
    sums = (sum(part.flops for part in components), sum(part.cache_bytes for part in components))
    _row("all", total, 4 * total / MIB, *sums)
    if any(part.name == "output head" and not part.parameters for part in components):
        print("The output head is the token embedding (tied): it adds no parameters.")
    print(f"\nThe token embedding alone, for {vocab_size:,} tokens at several widths:")
    for width, parameters, mib in widths:
        print(f"  width {width:>5}: {parameters:>12,} parameters, {mib:>7.2f} MB (MiB, float32)")
    if published:
        _compare(published, {part.name: part.parameters for part in components}, total)
    if estimates:
        print("\n".join(count_gpus.table(about, estimates, arguments.tokens)))
    return 0


def _what(name: str, changes: dict[str, str]) -> tuple[Config, Sizes, dict[str, Any]]:
    """Settings, sizes and published figures of a run or recipe."""
    from glassformer.runs.folder import open_run, runs_near

    if name in recipe_names():
        recipe = load_recipe(name)
        config = settings_of([recipe.settings], changes)
        published = {} if changes else recipe.published
        return config, (_vocabulary(config, recipe), None, None), published
    if not Path(name).exists():
        known = [*recipe_names(), *runs_near(Path(name))]
        raise GlassError(f"{name} is neither a run folder nor a recipe", nearest(name, known))
    from glassformer.text.tokenizers import Tokenizer

    found = open_run(Path(name))
    config = found.config().with_changes(changes)
    source = None  # it has a tokenizer of its own only where nothing is shared
    if config.two_vocabularies:
        source = Tokenizer.load(found.source_tokenizer_file).vocab_size
    return config, (Tokenizer.load(found.tokenizer_file).vocab_size, source, len(found.labels()) or None), {}


def _vocabulary(config: Config, recipe: Recipe) -> int:
    """Tokens to count with, before any text was seen."""
    if config.model.vocab_size is not None:
        return config.model.vocab_size
    if config.tokenizer.kind == "bytes":
        return 257  # all bytes and the end token
    same_text = config.tokenizer.kind == recipe.settings.get("tokenizer", {}).get("kind")
    return recipe.vocabulary if recipe.vocabulary and same_text else config.tokenizer.vocab_size


def _row(name: str, parameters: int, mib: float, flops: int, cache: int) -> None:
    print(f"{name:<20} {parameters:>14,} {mib:>11.2f} {flops:>14,} {cache:>14,}")


def _compare(published: dict[str, Any], ours: dict[str, int], total: int) -> None:
    """Published figures beside the exact ones, and where the difference comes from."""
    difference = total - published["total"]
    print(f"\nPublished for this model: {published['total']:,}; exact: {total:,}; difference {difference:+,}:")
    parts = published.get("parts", {})
    for name in ours:
        difference = ours.get(name, 0) - parts.get(name, 0)
        if difference:
            print(f"  {name}: published {parts.get(name, 0):,}, exact {ours.get(name, 0):,} ({difference:+,})")
    print(f"  {published['note']}")
