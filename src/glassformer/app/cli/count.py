"""Count the parameters, bytes, FLOPs and KV cache of a model without allocating it; estimate training on many GPUs.

glass count shakespeare-nano
glass count runs/book
glass count tutorial-d7 --set model.tied=true
glass count serve --model.layers 48 --model.width 4096 --gpus 8,64 --gpu h100 --tokens 100
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.app.cli import count_gpus
from glassformer.app.cli.settings import add_setting_flags, changes_from
from glassformer.base.config import Config, ModelConfig, settings_of
from glassformer.base.errors import GlassError, nearest
from glassformer.base.recipes import Recipe, load_recipe, recipe_names
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import counted

if TYPE_CHECKING:
    from glassformer.model.count import Component

Sizes = tuple[int, int | None, int | None]
"""Vocabulary size, size of a separate source vocabulary or None, and number of labels or None."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass count`."""
    parser.add_argument("what", metavar="RUN|RECIPE", help=f"a run folder, or a recipe: {', '.join(recipe_names())}")
    count_gpus.add_arguments(parser)
    add_setting_flags(parser, ("model", "tokenizer"))


def run(arguments: argparse.Namespace) -> int:
    """Print the parameters, bytes, FLOPs and KV cache of the model, and the estimates for `--gpus`."""
    from glassformer.model.count import count_model

    config, sizes, published = _settings_and_sizes(arguments.what, changes_from(arguments))
    description, estimates = count_gpus.estimates(arguments, config, sizes)
    gpus = count_gpus.table(description, estimates, arguments.tokens) if estimates else iter(())
    components = count_model(config.model, *sizes)
    report = CountReport(arguments.what, config.model, sizes[0], components, published)
    lines = chain([report.text()], gpus)
    emit(SimpleReport({**report.facts(), **count_gpus.facts(estimates)}, lines), arguments.json)
    return 0


@dataclass(frozen=True)
class CountReport:
    """Parameters, bytes, FLOPs per token and KV cache per token of a model.

    Attributes:
        name: name of the run or recipe.
        model: settings of the model.
        vocab_size: vocabulary size, of the target if the source has a separate vocabulary.
        components: components of the model, with their counts.
        published: published figures of the same model; empty if there are none.
    """

    name: str
    model: ModelConfig
    vocab_size: int
    components: Sequence[Component]
    published: dict[str, Any]

    @property
    def total(self) -> int:
        """Total number of parameters."""
        return sum(part.parameters for part in self.components)

    def facts(self) -> dict[str, Any]:
        """Return the counts by component and in total, embedding sizes at several widths, and the published figures."""
        from glassformer.model.count import embedding_rows

        widths = embedding_rows(self.vocab_size)
        return {
            "vocab_size": self.vocab_size,
            "parameters": self.total,
            "bytes": 4 * self.total,
            "components": [{**part.__dict__, "bytes": part.bytes} for part in self.components],
            "embedding_by_width": [{"width": width, "parameters": count, "mib": mib} for width, count, mib in widths],
            "published": self.published,
        }

    def text(self) -> str:
        """Return a table of the components, and a comparison with the published figures."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        from glassformer.model.count import MIB, embedding_rows

        layers = counted(self.model.layers, "layers")
        yield f"{self.name}: vocabulary of {self.vocab_size:,} tokens, {layers}, {self.model.width} wide\n"
        yield f"{'component':<20} {'parameters':>14} {'MiB (fp32)':>11} {'FLOPs/token':>14} {'cache B/token':>14}"
        for part in self.components:
            yield _row(part.name, part.parameters, part.bytes / MIB, part.flops, part.cache_bytes)
        flops = sum(part.flops for part in self.components)
        cache = sum(part.cache_bytes for part in self.components)
        yield _row("all", self.total, 4 * self.total / MIB, flops, cache)
        if any(part.name == "output head" and not part.parameters for part in self.components):
            yield "The output head is the token embedding (tied): it adds no parameters."
        yield f"\nThe token embedding alone, for {self.vocab_size:,} tokens at several widths:"
        for width, parameters, mib in embedding_rows(self.vocab_size):
            yield f"  width {width:>5}: {parameters:>12,} parameters, {mib:>7.2f} MiB (float32)"
        if self.published:
            yield from self._differences()

    def _differences(self) -> Iterator[str]:
        """Yield the published and exact totals, and a line for each component whose two counts differ."""
        published = self.published["total"]
        total_difference = self.total - published
        yield f"\nPublished for this model: {published:,}; exact: {self.total:,}; difference {total_difference:+,}:"
        parts = self.published.get("parts", {})
        for part in self.components:
            difference = part.parameters - parts.get(part.name, 0)
            if difference:
                figures = f"published {parts.get(part.name, 0):,}, exact {part.parameters:,} ({difference:+,})"
                yield f"  {part.name}: {figures}"
        yield f"  {self.published['note']}"


def _settings_and_sizes(name: str, changes: dict[str, str]) -> tuple[Config, Sizes, dict[str, Any]]:
    """Return the settings, sizes and published figures of a run or recipe.

    The published figures are empty for a run, and for a recipe with changed settings.
    """
    from glassformer.runs.folder import open_run, runs_near

    if name in recipe_names():
        recipe = load_recipe(name)
        config = settings_of([recipe.settings], changes)
        published = {} if changes else recipe.published
        return config, (_vocabulary(config, recipe), None, None), published
    if not Path(name).exists():
        known_names = [*recipe_names(), *runs_near(Path(name))]
        raise GlassError(f"{name} is neither a run folder nor a recipe", nearest(name, known_names))
    from glassformer.model.weights import check_sizes, shapes_in
    from glassformer.text.tokenizers import Tokenizer

    run_folder = open_run(Path(name))
    config = run_folder.config()
    for checkpoint in run_folder.all_checkpoints():
        weights = checkpoint / "model.safetensors"
        check_sizes(weights, shapes_in(weights), config.model)
    config = config.with_changes(changes)
    source = None  # sources share the target's vocabulary
    if config.two_vocabularies:
        source = Tokenizer.load(run_folder.source_tokenizer_file).vocab_size
    return config, (Tokenizer.load(run_folder.tokenizer_file).vocab_size, source, len(run_folder.labels()) or None), {}


def _vocabulary(config: Config, recipe: Recipe) -> int:
    """Return the vocabulary size to assume for a recipe, whose tokenizer is not trained yet."""
    if config.model.vocab_size is not None:
        return config.model.vocab_size
    if config.tokenizer.kind == "bytes":
        return 257  # all bytes and the end token
    same_kind = config.tokenizer.kind == recipe.settings.get("tokenizer", {}).get("kind")
    return recipe.vocabulary if recipe.vocabulary and same_kind else config.tokenizer.vocab_size


def _row(name: str, parameters: int, mib: float, flops: int, cache: int) -> str:
    return f"{name:<20} {parameters:>14,} {mib:>11.2f} {flops:>14,} {cache:>14,}"
