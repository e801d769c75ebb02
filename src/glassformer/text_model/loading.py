"""What a run folder holds, put together: settings, tokenizers, labels, and the model with its weights."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.config import Config
from glassformer.errors import GlassError
from glassformer.model.build import build_model
from glassformer.model.device import choose_device
from glassformer.model.precision import as_recorded, choose_precision
from glassformer.model.transformer import Model
from glassformer.model.weights import load_weights
from glassformer.runs import Folder, Which, open_run
from glassformer.tokenizers import Tokenizer


@dataclass(frozen=True)
class Parts:
    """A run, opened.

    Attributes:
        config: its settings.
        model: with the checkpoint's weights, in evaluation mode.
        tokenizer: of the text that is read, or of the one that is written where there are two.
        source_tokenizer: of the source; the same one where the vocabulary is joint.
        labels: of a classifier.
    """

    config: Config
    model: Model
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer
    labels: tuple[str, ...]


def load_parts(folder: Folder, which: Which = "best", device: str = "auto", precision: str = "fp32") -> Parts:
    """Everything in a run folder that speaking needs; the folder alone is enough.

    Args:
        folder: of the run.
        which: the best checkpoint on validation, or the last one.
        device: as in `train.device`.
        precision: "bf16" keeps the weights in bfloat16; "auto" does so where the device is fast at it.

    Raises:
        GlassError: there is no such run, or its files are not whole or not of one model.
    """
    run = open_run(folder)
    place = choose_device(device)
    config = as_recorded(run.config(), place)
    labels = run.labels()
    tokenizer = Tokenizer.load(run.tokenizer_file)
    source = Tokenizer.load(run.source_tokenizer_file) if config.two_vocabularies else tokenizer
    if config.train.task == "classify" and not labels:
        raise GlassError(f"{folder} has no labels.json", "Copy it from where the run was made.")
    own_source = None if config.model.shared_embedding else source.vocab_size
    classes = len(labels) if config.train.task == "classify" else None
    model = build_model(config.model, tokenizer.vocab_size, source_vocab_size=own_source, classes=classes)
    load_weights(model, run.checkpoint(which) / "model.safetensors")
    return Parts(config, model.to(place, choose_precision(precision, place)).eval(), tokenizer, source, labels)


def refuse_mismatch(model: Model, tokenizer: Tokenizer) -> None:
    """Raise a `GlassError` if the model has another number of tokens than the tokenizer."""
    if model.vocab_size != tokenizer.vocab_size:
        raise GlassError(
            f"the model has {model.vocab_size} tokens, the tokenizer {tokenizer.vocab_size}",
            "Use the tokenizer that the model was trained with.",
        )


def wrong_task(task: str, wanted: str, remedy: str) -> GlassError:
    """The error for a run that learnt another task."""
    return GlassError(f"this run learnt to {VERBS[task]}, not to {VERBS[wanted]}", remedy)


VERBS = {
    "lm": "continue text",
    "masked": "fill in hidden tokens",
    "classify": "name labels",
    "translate": "translate",
    "summarize": "summarize",
}
