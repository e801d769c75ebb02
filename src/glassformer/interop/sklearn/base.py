"""Base classes of all estimators: parameters, fitting, pickling, saving and loading."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from glassformer.base.config import Config, Task
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.interop.sklearn.inputs import refused
from glassformer.interop.sklearn.settings import config_from

if TYPE_CHECKING:
    from glassformer.interop.sklearn.fitting import FitJob, FitResult
    from glassformer.tasks import AnyTextModel

MODEL = "text_model_"
"""The attribute that marks an estimator as fitted."""


# A dataclass generates the constructor that scikit-learn requires: keyword arguments with defaults, stored unchanged.
@dataclass(kw_only=True, eq=False, repr=False)
class TransformerEstimator(BaseEstimator):
    """Base class of all estimators, with their common parameters; values are checked in `fit`.

    Args:
        layers: number of blocks in each stack.
        width: width of the residual stream.
        heads: number of attention heads; must divide `width`.
        positions: "learned", "rotary" or another of `glassformer.base.config.Positions`.
        norm: "layernorm", "rmsnorm" or "none".
        dropout: dropout on embeddings, attention weights, and the output of each sublayer before it is added to the
            residual stream.
        epochs: passes over the training data.
        steps: number of optimizer steps, used instead of `epochs`; None: use `epochs`.
        batch: rows per step.
        learning_rate: peak learning rate, reached after a warm-up and followed by a cosine decay.
        optimizer: "adamw" or "muon".
        validation_fraction: fraction of the texts that is held out; the weights with the lowest held-out loss are kept.
            0: train on all texts, and keep the last weights.
        patience: stop after this many evaluations in a row without improvement; a fit has at most ten evaluations,
            unless `settings` has train.evaluate_every. None: do not stop early.
        random_state: int, RandomState or None (NumPy's global random state); seeds all random choices.
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
        threads: CPU threads while fitting; None: torch's number of threads. With `n_jobs`, joblib limits the threads
            of all processes together to the number of cores.
        verbose: whether to show the progress of training.
        settings: other settings of `glass train --help`, as "SECTION.FIELD" -> value; they override the parameters.
            They must not include train.task; of the `data` settings, only seed, too_long, validation_limit and windows
            are allowed.
    """

    layers: int = 2
    width: int = 128
    heads: int = 4
    positions: str = "learned"
    norm: str = "layernorm"
    dropout: float = 0.1
    epochs: float = 10
    steps: int | None = None
    batch: int = 32
    learning_rate: float = 1e-3
    optimizer: str = "adamw"
    validation_fraction: float = 0.1
    patience: int | None = None
    random_state: Any = None
    device: str = "auto"
    threads: int | None = None
    verbose: bool = False
    settings: dict[str, Any] | None = None

    TASK: ClassVar[Task]
    SETTINGS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "layers": ("model.layers",),
        "width": ("model.width",),
        "heads": ("model.heads",),
        "positions": ("model.positions",),
        "norm": ("model.norm",),
        "dropout": ("model.dropout_embedding", "model.dropout_attention", "model.dropout_residual"),
        "batch": ("train.batch",),
        "learning_rate": ("train.learning_rate",),
        "optimizer": ("train.optimizer",),
        "patience": ("train.patience",),
        "device": ("train.device",),
        "threads": ("train.threads",),
    }
    """Parameter -> the settings that take its value."""

    def _config(self, **data_settings: Any) -> Config:
        """Return the settings of a fit; `data_settings` (SECTION__FIELD) are settings that the data determines."""
        values = {name: getattr(self, parameter) for parameter, names in self.SETTINGS.items() for name in names}
        values |= {name.replace("__", "."): value for name, value in data_settings.items()}
        if self.steps is not None:
            values["train.steps"] = self.steps
        if self.validation_fraction:
            values["data.validation_fraction"] = self.validation_fraction
        elif self.patience is not None:
            raise GlassError(
                f"patience = {self.patience} with validation_fraction = {self.validation_fraction}: early stopping "
                "needs held-out examples",
                "Set patience = None, or set validation_fraction above 0.",
            )
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        return config_from(self.TASK, values, seed, self.settings)

    def _fit_job(self, config: Config, sources: list[str], answers: list[str] | None = None, **more: Any) -> FitJob:
        from glassformer.interop.sklearn.fitting import FitJob

        epochs = None if self.steps is not None else self.epochs
        held_out = bool(self.validation_fraction)
        verbose = bool(self.verbose)
        return FitJob(config, self.settings, epochs, sources, answers, held_out=held_out, verbose=verbose, **more)

    def _fit(self, job: FitJob) -> None:
        """Fit, and store the results in attributes that end in `_`."""
        from glassformer.interop.sklearn.fitting import fit

        with refused():
            fitted = fit(job)
        self.text_model_: Any = self._text_model(fitted)
        self.config_ = fitted.config
        self.best_step_ = fitted.outcome.step
        self.n_steps_ = fitted.outcome.last_step
        self.validation_loss_ = fitted.outcome.validation.loss if job.held_out else None
        self.verdict_ = fitted.outcome.verdict

    @abstractmethod
    def _text_model(self, fitted: FitResult) -> AnyTextModel:
        """Return the model with its tokenizer, ready for its task."""

    def __getstate__(self) -> dict[str, Any]:
        from glassformer.interop.sklearn.saving import packed

        state = dict(super().__getstate__())
        if MODEL in state:
            state[MODEL] = packed(state[MODEL], self.best_step_)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        from glassformer.interop.sklearn.saving import unpacked

        super().__setstate__(state)
        if MODEL in state:
            self._set_text_model(unpacked(state[MODEL], self.device))

    def _set_text_model(self, text_model: AnyTextModel) -> None:
        """Set the model, which was loaded from files, and its settings."""
        self.text_model_ = text_model
        self.config_ = text_model.config

    def save(self, path: str | Path) -> None:
        """Save the fitted estimator as a run folder: weights as safetensors; JSON, TOML and plain text files.

        `load` reads the folder, and so does the command for the task of the estimator: `glass classify` for
        classifiers, and `glass generate` for the other estimators. A `random_state` that is not an integer is not
        saved, because it is not needed after `fit`.

        Raises:
            NotFittedError: the estimator is not fitted.
            GlassError: `path` is a file or a folder that is not empty, another call is writing it, or the folder, a
                parameter or a label cannot be written.
        """
        from glassformer.base.files import write_text
        from glassformer.base.locks import output_lock
        from glassformer.interop.sklearn.saving import ESTIMATOR, estimator_json, write_run

        check_is_fitted(self)
        text = estimator_json(type(self).__name__, self.get_params(deep=False), self._fit_results())
        with output_lock(Path(path), "path"):
            write_run(Path(path), self.text_model_, self.best_step_)
            write_text(Path(path) / ESTIMATOR, text)

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> Self:
        """Load an estimator that `save` wrote, on `device`; None: on the device in its parameters.

        Raises:
            GlassError: the folder contains no estimator of this class, or a file is missing, truncated or altered.
        """
        from glassformer.interop.sklearn.saving import read_estimator
        from glassformer.runs.opening import OpenedRun

        parameters, facts = read_estimator(Path(path), cls.__name__)
        estimator = cls(**parameters)
        if device is not None:
            estimator.device = device
        estimator._restore_results(facts)
        estimator._set_text_model(OpenedRun.load(Path(path), device=estimator.device).text_model)
        return estimator

    def _fit_results(self) -> dict[str, Any]:
        """Return the results of `fit` besides the model, as JSON values."""
        names = ("best_step_", "n_steps_", "validation_loss_", "verdict_")
        return {name: getattr(self, name) for name in names}

    def _restore_results(self, facts: Mapping[str, Any]) -> None:
        """Restore the results that `_fit_results` returned."""
        for name in ("best_step_", "n_steps_", "validation_loss_", "verdict_"):
            setattr(self, name, facts[name])


@dataclass(kw_only=True, eq=False, repr=False)
class TextEstimator(TransformerEstimator):
    """An estimator whose examples are texts.

    Args:
        tokenizer: "bpe", "characters", "graphemes", "bytes", "words", "wordpiece" or "unigram".
        vocab_size: maximum size of the vocabulary.
        context: maximum number of tokens in one forward pass.
    """

    tokenizer: str = "bpe"
    vocab_size: int = 2048
    context: int = 256

    SETTINGS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **TransformerEstimator.SETTINGS,
        "tokenizer": ("tokenizer.kind",),
        "vocab_size": ("tokenizer.vocab_size",),
        "context": ("model.context",),
    }

    def __sklearn_tags__(self) -> Any:
        """Return tags for one-dimensional input of texts only."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags

    def _warn_of_symbols(self, texts: list[str], targets: Sequence[str] = ()) -> None:
        """Warn of symbols that are unknown to the tokenizer, or known in another Unicode form."""
        from glassformer.tasks import text_notes

        for note in text_notes(self.text_model_, texts, targets):
            warnings.warn(note, stacklevel=3)

    def _warn_of_unread(self, texts: list[str]) -> None:
        """Warn if texts are longer than the context."""
        cut_count = sum(self.text_model_.unread_tokens(text) > 0 for text in texts)
        if cut_count:
            context = self.text_model_.config.model.context
            of_texts = f"of {counted(len(texts), 'texts')}"
            warnings.warn(
                f"{counted(cut_count, f'{of_texts} are', f'{of_texts} is')} too long for context = {context}: "
                "only the beginning of each is read",
                stacklevel=3,
            )
