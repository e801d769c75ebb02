"""Estimators that generate text: a language model and a translator."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from glassformer.base.config import Task
from glassformer.interop.sklearn.base import TextEstimator
from glassformer.interop.sklearn.inputs import RefusedError, as_texts, refused, same_number

if TYPE_CHECKING:
    from glassformer.interop.sklearn.fitting import FitResult
    from glassformer.tasks import TextModel, Translator

Texts = npt.NDArray[np.object_]


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerLanguageModel(DensityMixin, TextEstimator):
    """Language model: a transformer decoder.

    Each text is a separate document; a text longer than the context is divided into rows. The parameters are those of
    `TextEstimator` and `TransformerEstimator`, and the following. After `fit` the estimator has `text_model_` (a
    `TextModel`), and the other attributes of `TransformerClassifier` except `classes_`; `validation_loss_` is in nats
    per token.

    Args:
        tokens: maximum number of tokens that `generate` and `sample` generate for each text.
        temperature: sampling temperature; 0: greedy decoding.
    """

    tokens: int = 200
    temperature: float = 0.8

    TASK: ClassVar[Task] = "lm"
    SETTINGS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **TextEstimator.SETTINGS,
        "tokens": ("sample.tokens",),
        "temperature": ("sample.temperature",),
    }

    def fit(self, X: Any, y: None = None) -> Self:
        """Fit the model to texts; `y` is ignored.

        Raises:
            RefusedError: X or a parameter is invalid.
        """
        texts = as_texts(X)
        with refused():
            config = self._config(data__windows="documents")
        self._fit(self._fit_job(config, texts))
        return self

    def _text_model(self, fitted: FitResult) -> TextModel:
        from glassformer.tasks import TextModel

        return TextModel(fitted.model, fitted.tokenizer, fitted.config)

    def score(self, X: Any, y: None = None) -> float:
        """Return the negative mean loss in nats per token, including end tokens; it is at most 0, and higher is better.

        Scores are comparable only between models with the same tokenizer. `y` is ignored.
        """
        check_is_fitted(self)
        texts = as_texts(X)
        self._warn_of_symbols(texts)
        with refused():
            return -_document_loss(self.text_model_, texts)

    def perplexity(self, X: Any) -> float:
        """Return the perplexity, exp(-score), at most exp(700): the effective number of equally likely next tokens."""
        return math.exp(min(-self.score(X), 700.0))

    def generate(self, prompts: Any, random_state: Any = None) -> Texts:
        """Generate a continuation of each prompt, (prompts,), without the prompt itself.

        Args:
            prompts: texts, which may be empty.
            random_state: seed of the sampling, or a RandomState; None: the seed of the fit, so that equal calls return
                equal texts.
        """
        check_is_fitted(self)
        texts = as_texts(prompts, "prompts")
        self._warn_of_symbols(texts)
        settings = self.text_model_.config.sample
        random = check_random_state(settings.seed % 2**32 if random_state is None else random_state)
        seeds = random.randint(np.iinfo(np.int32).max, size=len(texts)).tolist()
        with refused():
            return _array(sample.text for sample in self.text_model_.generate(texts, settings, seeds))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Texts:
        """Generate new texts, (n_samples,), from empty prompts."""
        check_is_fitted(self)
        if n_samples < 1:
            raise RefusedError(f"n_samples = {n_samples} is not allowed", "Give at least 1.")
        return self.generate([""] * n_samples, random_state)


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerTranslator(TextEstimator):
    """Translator, or other text-to-text model: a transformer with an encoder and a decoder.

    The parameters are those of `TextEstimator` and `TransformerEstimator`, and the following. After `fit` the estimator
    has `text_model_` (a `Translator`), and the other attributes of `TransformerClassifier` except `classes_`;
    `validation_loss_` is in nats per target token.

    Args:
        joint: whether sources and targets share one vocabulary and one embedding.
        tokens: maximum number of tokens that `predict` generates for each text.
        beams: number of hypotheses in beam search; 1: greedy decoding.
    """

    joint: bool = True
    tokens: int = 200
    beams: int = 4

    TASK: ClassVar[Task] = "translate"
    SETTINGS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **TextEstimator.SETTINGS,
        "joint": ("tokenizer.joint", "model.shared_embedding"),
        "tokens": ("sample.tokens",),
        "beams": ("sample.beams",),
    }

    def __sklearn_tags__(self) -> Any:
        """Return tags that declare the targets as required."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model to sources X and targets y, (examples,) texts each; texts may be empty.

        Raises:
            RefusedError: X, y or a parameter is invalid.
        """
        sources = as_texts(X)
        targets = as_texts(y, "y")
        same_number(sources, targets)
        with refused():
            config = self._config()
        self._fit(self._fit_job(config, sources, targets))
        return self

    def _text_model(self, fitted: FitResult) -> Translator:
        from glassformer.tasks import Translator

        return Translator(fitted.model, fitted.source_tokenizer, fitted.tokenizer, fitted.config)

    def predict(self, X: Any) -> Texts:
        """Generate the target text of each source, (sources,)."""
        check_is_fitted(self)
        texts = as_texts(X)
        self._warn_of_symbols(texts)
        self._warn_of_unread(texts)
        with refused():
            return _array(sample.text for sample in self.text_model_.generate(texts, self.text_model_.config.sample))

    def score(self, X: Any, y: Any) -> float:
        """Return the negative mean loss in nats per target token, with teacher forcing.

        The score is at most 0, and higher is better. End tokens are included. No text is generated, so
        `score` is fast. For BLEU and chrF++ of the output of `predict`, see `glassformer.evaluation.translation`.
        """
        check_is_fitted(self)
        sources = as_texts(X)
        targets = as_texts(y, "y")
        same_number(sources, targets)
        self._warn_of_symbols(sources, targets)
        with refused():
            return -_pair_loss(self.text_model_, sources, targets)


def _array(texts: Any) -> Texts:
    return np.array(list(texts), dtype=object)


def _document_loss(text_model: TextModel, texts: Sequence[str]) -> float:
    """Return the loss in nats per token over whole texts, divided into rows as in training."""
    from glassformer.interop.sklearn.fitting import record_store
    from glassformer.text.batches import ValidationRows, validation_rows
    from glassformer.text.records import RECORD_KINDS
    from glassformer.training.validation import validation_loss

    config = text_model.config
    tokenizer = text_model.tokenizer
    model = text_model.model

    def evaluate(prefix: Path) -> float:  # a function, so that files are closed on return, as Windows requires
        kind = RECORD_KINDS["lm"]
        store = record_store(kind, (texts,), (), {"text": tokenizer}, (), prefix).tokens["text"]
        data = config.data.for_other_text()
        if data.windows == "documents":
            rows = ValidationRows(store, data, config.model.context, tokenizer.start_id, None)  # even one empty text
        else:
            rows = validation_rows(store, data, config.model.context, tokenizer.start_id)
        return validation_loss(model, rows, model.embedding.tokens.weight.device).loss

    with tempfile.TemporaryDirectory(prefix="glass-score-", ignore_cleanup_errors=True) as folder:
        return evaluate(Path(folder) / "texts")


def _pair_loss(text_model: Translator, sources: Sequence[str], targets: Sequence[str]) -> float:
    """Return the loss in nats per target token."""
    from glassformer.interop.sklearn.fitting import record_store, warn_of_cut_texts
    from glassformer.tasks.example_tasks import pair_rows
    from glassformer.text.records import RECORD_KINDS
    from glassformer.training.validation import validation_loss

    model = text_model.model
    kind = RECORD_KINDS[text_model.config.train.task]
    tokenizers = {"source": text_model.source_tokenizer, "target": text_model.tokenizer}

    def evaluate(prefix: Path) -> float:
        store = record_store(kind, (sources, targets), (), tokenizers, (), prefix)
        warn_of_cut_texts(store, text_model.config, "the scored texts")
        rows = pair_rows(store, text_model.config)
        device = model.embedding.tokens.weight.device
        return validation_loss(model, rows, device).loss

    with tempfile.TemporaryDirectory(prefix="glass-score-", ignore_cleanup_errors=True) as folder:
        return evaluate(Path(folder) / "texts")
