"""List the served runs and their metadata without loading weights; the page starts with this list."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from glassformer.app.server.registry import ModelRegistry
from glassformer.app.server.request_errors import as_json
from glassformer.base.config import CONVERSATIONS, PAIRS, TASK_FACTS, Config
from glassformer.base.errors import GlassError
from glassformer.base.files import recorded_sha256
from glassformer.model.pruned_attention import head_numbers
from glassformer.runs.folder import Run, open_run
from glassformer.training.journal import OUTPUT_MARK, read_samples

if TYPE_CHECKING:
    from glassformer.text.tokenizers import Tokenizer

WORDS = 12
"""For task lm: maximum number of words of a sample to use as the prompt."""
MARGIN = 8
"""Number of tokens of the context to leave free after the prompt."""


class Listing:
    """Metadata of the runs of a registry; the metadata of a run's model is read once for each checkpoint.

    Args:
        registry: served runs.
    """

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry
        self._metadata: dict[str, tuple[tuple[str | None, str | None], dict[str, Any]]] = {}

    def all(self) -> list[dict[str, Any]]:
        """Return the metadata of each run (see `of`), with its `parent`.

        `parent` is the name of the served run whose weights the run started from, or null.
        """
        parents = self.parents()
        return [{**self.of(name), "parent": parents.get(name)} for name in self._registry.names()]

    def parents(self) -> dict[str, str]:
        """Return the parents: name of each run whose parent is also served -> name of the parent.

        Runs are matched by the SHA-256 of the weights of a checkpoint, because folders may be renamed, moved or copied.
        """
        runs = {name: self._registry.run(name) for name in self._registry.names()}
        parent_digests = {
            name: digest for name, run in runs.items() if (digest := run.parent_weights_sha256) is not None
        }
        if not parent_digests:
            return {}
        weights = {name: run.recorded_weights_sha256() for name, run in runs.items()}
        parents: dict[str, str] = {}
        for child, digest in parent_digests.items():
            # A run that started from the same weights is a sibling, even if its best checkpoint still has them.
            holders = [name for name in runs if digest in weights[name] and parent_digests.get(name) != digest]
            if holders:
                parents[child] = holders[0]
        return parents

    def of(self, name: str) -> dict[str, Any]:
        """Return the name, version, step, `training`, `error` and `warning` of a run, and its `model_metadata`.

        `step` is None if there is no checkpoint yet; `training` is whether a process is training the run. If a file
        cannot be read, `error` describes the error (see `as_json`), and the entries of `model_metadata` are missing.
        `warning`, with the same fields, describes why an older checkpoint is served, if the best one cannot be loaded.
        """
        version = self._registry.version(name)
        warning = self._registry.warning(name)
        key = self._registry.run(name).id, version
        facts = {
            "name": name,
            "version": version,
            "step": _step(version),
            "training": self._registry.training(name),
            "error": None,
            "warning": None if warning is None else as_json(warning)["error"],
        }
        cached = self._metadata.get(name)
        if cached is None or cached[0] != key:
            try:
                self._metadata[name] = key, model_metadata(self._registry.run(name))
            except GlassError as error:
                return {**facts, **as_json(error)}
        return {**facts, **self._metadata[name][1]}


def model_metadata(run: Run) -> dict[str, Any]:
    """Return metadata of a run's model, from the settings, tokenizers and last training sample of the run.

    Returns:
        task, family, layers (and encoder_layers, or null), heads, width, context, parameters, vocabulary (and
        source_vocabulary, or null), tokenizer (its kind), labels, prompt, sample_tokens, and `attentions`: the name of
        each attention layer -> the numbers of its heads, without pruned heads.

    Raises:
        GlassError: a file is missing or damaged.
    """
    from glassformer.inspection.sites import attentions
    from glassformer.runs.opening import model_shapes
    from glassformer.text.tokenizers import Tokenizer

    run = open_run(run.folder)
    config = run.config()
    labels = run.labels()
    tokenizer = Tokenizer.load(run.tokenizer_file)
    pairs = config.train.task in PAIRS
    model = config.model
    source = Tokenizer.load(run.source_tokenizer_file) if config.two_vocabularies else tokenizer
    checkpoint = run.checkpoints_folder / run.read_pointer("best")
    if recorded_sha256(checkpoint, "model.safetensors") is None:
        raise GlassError(
            f"{checkpoint} is missing, or its manifest.json is", "Restore the checkpoint from a copy of the run."
        )
    shapes = model_shapes(config, tokenizer, source, labels, checkpoint / "model.safetensors")
    return {
        "task": config.train.task,
        "family": model.family,
        "layers": model.layers,
        "encoder_layers": (model.encoder_layers or model.layers) if pairs else None,
        "heads": model.heads,
        "width": model.width,
        "context": model.context,
        "parameters": sum(parameter.numel() for parameter in shapes.parameters()),
        "attentions": {str(site): head_numbers(layer) for site, layer in attentions(shapes).items()},
        "vocabulary": tokenizer.vocab_size,
        "source_vocabulary": source.vocab_size if pairs else None,
        "tokenizer": tokenizer.kind,
        "labels": list(labels),
        "prompt": sample_prompt(run, config, source),
        "sample_tokens": config.sample.tokens,
    }


def sample_prompt(run: Run, config: Config, tokenizer: Tokenizer) -> str:
    """Return the initial text of the page, from the last training sample, the settings or a default for the task.

    For the task `lm`, a sample that continues the settings' prompt is preferred, because a prompt is often only a word
    or two. For other tasks, the settings' prompt is preferred. The result is truncated to fit the context.
    """
    try:
        samples = read_samples(run)
    except (OSError, GlassError):
        samples = []
    sample = samples[-1][1] if samples else ""
    prompt = config.sample.prompt
    if config.train.task == "lm":
        beginning = " ".join(sample.split(" ")[:WORDS]) if sample.startswith(prompt) else ""
    else:
        beginning = "" if prompt else sample.rpartition(OUTPUT_MARK)[0]
    if config.train.task in CONVERSATIONS:  # only the last question
        beginning = beginning.rpartition("\n")[2]
    words = (beginning.strip() or prompt or TASK_FACTS[config.train.task].example).split(" ")
    while len(words) > 1 and len(tokenizer.encode(" ".join(words))) > config.model.context - MARGIN:
        words.pop()
    return " ".join(words)


def _step(version: str | None) -> int | None:
    """Return the step in the version of a checkpoint, such as 850 for "step-000850.0123"; None without a version."""
    match = re.match(r"step-(\d+)", version or "")
    return int(match[1]) if match else None
