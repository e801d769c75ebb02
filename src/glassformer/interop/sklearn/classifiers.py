"""Classifiers of texts and of rows of numbers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from glassformer.base.config import Config, Task
from glassformer.base.wording import listed
from glassformer.interop.sklearn.base import TextEstimator, TransformerEstimator
from glassformer.interop.sklearn.inputs import RefusedError, as_texts, refused, same_number
from glassformer.text.data_notes import SHOWN_LABELS, alike_notes

if TYPE_CHECKING:
    from glassformer.interop.sklearn.fitting import FitResult
    from glassformer.tasks import AnyTextModel, TextClassifier

Labels = npt.NDArray[Any]
Numbers = npt.NDArray[np.float64]


@dataclass(kw_only=True, eq=False, repr=False)
class _BaseTransformerClassifier(ClassifierMixin, TransformerEstimator):
    """Base class of both classifiers.

    Args:
        pooling: input of the head: the "mean" of all token vectors, or the vector of the "first" token.
    """

    pooling: str = "mean"

    TASK: ClassVar[Task] = "classify"
    SETTINGS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **TransformerEstimator.SETTINGS,
        "pooling": ("model.pooling",),
    }

    def _fit_labels(self, config: Config, texts: list[str], y: Labels, tokenizer_texts: Sequence[str] | None) -> None:
        """Convert labels to indices, and fit; `predict` converts the indices back."""
        check_classification_targets(y)
        classes, indices = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise RefusedError(
                f"y has only 1 class, {classes.tolist()[0]!r}, but a classifier needs at least two",
                "Give examples of at least two labels.",
            )
        names = tuple(str(label) for label in classes.tolist())
        for note in alike_notes(dict(zip(names, np.bincount(indices).tolist(), strict=True))):
            warnings.warn(note, stacklevel=3)
        answers = [names[index] for index in indices]
        self._fit(self._fit_job(config, texts, answers, labels=names, tokenizer_texts=tokenizer_texts))
        self.classes_ = classes

    def _text_model(self, fitted: FitResult) -> TextClassifier:
        from glassformer.tasks import TextClassifier

        return TextClassifier(fitted.model, fitted.tokenizer, fitted.labels, fitted.config)

    def predict(self, X: Any) -> Labels:
        """Predict the label of each example, (examples,), of the same type as the labels given to `fit`."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return self.classes_[likeliest]

    def predict_log_proba(self, X: Any) -> Numbers:
        """Return the natural logarithm of `predict_proba`."""
        probabilities: Numbers = self.predict_proba(X)
        with np.errstate(divide="ignore"):  # a probability of 0 has the logarithm -inf
            return np.log(probabilities)

    def predict_proba(self, X: Any) -> Numbers:
        """Return the probability of each label, (examples, labels), in the order of `classes_`."""
        raise NotImplementedError

    def _fit_results(self) -> dict[str, Any]:
        return {**super()._fit_results(), "classes_": labels_to_json(self.classes_)}

    def _restore_results(self, facts: Mapping[str, Any]) -> None:
        super()._restore_results(facts)
        self.classes_ = labels_from_json(facts["classes_"])

    def _set_text_model(self, text_model: AnyTextModel) -> None:
        """Set the model; its labels must be those in `classes_`, in the same order.

        Raises:
            RefusedError: they are not.
        """
        names = tuple(str(label) for label in self.classes_.tolist())
        model_labels = cast("TextClassifier", text_model).labels
        if names != model_labels:
            raise RefusedError(
                f"the estimator has the labels {listed(names, SHOWN_LABELS)}, but its model has "
                f"{listed(model_labels, SHOWN_LABELS)}",
                "Copy the folder again from where it was saved: estimator.json or labels.json was changed.",
            )
        super()._set_text_model(text_model)


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerClassifier(_BaseTransformerClassifier, TextEstimator):
    """Text classifier: a transformer encoder with a classification head.

    Its parameters are those of `TextEstimator` and `TransformerEstimator`, and `pooling`: the head reads the "mean" of
    all token vectors, or the vector of the "first" token. After `fit` the estimator has `classes_`, `text_model_` (a
    `TextClassifier`), `config_` (all settings), `validation_loss_` (nats per text; None if nothing was held out),
    `best_step_`, `n_steps_` and `verdict_` (the validation curve described in words).
    """

    SETTINGS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **TextEstimator.SETTINGS,
        **_BaseTransformerClassifier.SETTINGS,
    }

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the classifier to texts and their labels.

        Args:
            X: (examples,) texts, in a list, tuple, array or pandas Series; a text may be empty.
            y: (examples,) labels: strings, integers or booleans.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: X, y or a parameter is invalid; usually a `RefusedError`.
        """
        texts = as_texts(X)
        if y is None:
            raise RefusedError("y is None: a classifier learns from labels", "Give one label for each text.")
        labels = column_or_1d(y, warn=True)
        same_number(texts, labels)
        with refused():
            config = self._config()
        self._fit_labels(config, texts, labels, None)
        return self

    def predict_proba(self, X: Any) -> Numbers:
        """Return the probability of each label, (texts, labels), in the order of `classes_`."""
        check_is_fitted(self)
        texts = as_texts(X)
        self._warn_of_symbols(texts)
        self._warn_of_unread(texts)
        probabilities: Numbers = self.text_model_.probabilities(texts)
        return probabilities


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerArrayClassifier(_BaseTransformerClassifier):
    """Classifier of rows of numbers: each column is a token, and attention relates the columns.

    `fit` divides each column into at most `bins` quantile bins. Each bin of each column is a separate word: " c0b3" is
    bin 3 of column 0. So the model knows neither the order of the bins nor the distance between two numbers in one bin.
    On most tables, trees and linear models are better; this class applies the model of the text classifier to numbers.
    The cost of attention grows with the square of the number of columns. Predictions are made in double precision
    (except on "mps"), so that the prediction for a row does not depend on the other rows.

    Its parameters are those of `TransformerEstimator`, `pooling` (as in `TransformerClassifier`) and `bins`. After
    `fit` the estimator has the attributes of `TransformerClassifier`, `edges_` (the inner bin edges of each column) and
    `n_features_in_`.

    Args:
        bins: maximum number of bins for each column; at least 2.
    """

    bins: int = 16

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the classifier to rows of numbers and their labels.

        Args:
            X: (examples, columns) finite numbers.
            y: (examples,) labels: strings, integers or booleans.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: X, y or a parameter is invalid.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        if isinstance(self.bins, bool) or not isinstance(self.bins, int | np.integer) or self.bins < 2:
            raise RefusedError(f"bins = {self.bins!r} is not allowed", "Give a whole number of at least 2.")
        if fixed := [name for name in self.settings or {} if str(name).startswith(("tokenizer.", "model.context"))]:
            raise RefusedError(f"the setting {fixed[0]} follows from the columns and bins", "Leave it out of settings.")
        quantiles = np.linspace(0, 1, self.bins + 1)[1:-1]
        self.edges_ = [np.unique(np.quantile(column, quantiles)) for column in X.T]
        bin_words = self._bin_words()
        with refused():
            config = self._config(
                tokenizer__kind="words",
                tokenizer__vocab_size=2 + sum(map(len, bin_words)),
                model__context=1 + len(bin_words),
            )
        self._fit_labels(config, self._texts(X), y, ["".join(column) for column in bin_words])
        return self

    def _bin_words(self) -> list[list[str]]:
        """Return the word of each bin of each column."""
        return [[f" c{c}b{b}" for b in range(len(edges) + 1)] for c, edges in enumerate(self.edges_)]

    def _texts(self, X: Numbers) -> list[str]:
        """Convert rows to texts, with a word for each number."""
        columns = []
        for values, edges, bin_words in zip(X.T, self.edges_, self._bin_words(), strict=True):
            columns.append([bin_words[b] for b in np.searchsorted(edges, values, side="right")])
        return ["".join(row) for row in zip(*columns, strict=True)]

    def _text_model(self, fitted: FitResult) -> TextClassifier:
        return _to_double(super()._text_model(fitted))

    def _set_text_model(self, text_model: AnyTextModel) -> None:
        super()._set_text_model(_to_double(text_model))

    def predict_proba(self, X: Any) -> Numbers:
        """Return the probability of each label, (rows, labels), in the order of `classes_`."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        probabilities: Numbers = self.text_model_.probabilities(self._texts(X))
        return probabilities

    def _fit_results(self) -> dict[str, Any]:
        names = getattr(self, "feature_names_in_", None)
        return {
            **super()._fit_results(),
            "n_features_in_": self.n_features_in_,
            "feature_names_in_": None if names is None else names.tolist(),
            "edges_": [edges.tolist() for edges in self.edges_],
        }

    def _restore_results(self, facts: Mapping[str, Any]) -> None:
        super()._restore_results(facts)
        self.n_features_in_ = facts["n_features_in_"]
        if facts["feature_names_in_"] is not None:
            self.feature_names_in_ = np.array(facts["feature_names_in_"], dtype=object)
        self.edges_ = [np.array(edges, dtype=np.float64) for edges in facts["edges_"]]


def _to_double(text_model: Any) -> Any:
    """Convert the model to double precision if its device supports it, and return it."""
    if next(text_model.model.parameters()).device.type != "mps":
        text_model.model.double()
    return text_model


def labels_to_json(classes: Labels) -> dict[str, Any]:
    """Return `classes_` and its dtype as JSON values.

    Raises:
        RefusedError: the labels are neither strings nor numbers nor booleans.
    """
    values = classes.tolist()
    if not all(isinstance(value, str | bool | int | float) for value in values):
        raise RefusedError(
            f"labels of type {type(values[0]).__name__} cannot be saved", "Use strings, numbers or booleans as labels."
        )
    return {"dtype": "object" if classes.dtype == object else classes.dtype.str, "values": values}


def labels_from_json(facts: Mapping[str, Any]) -> Labels:
    """Return the labels that `labels_to_json` converted."""
    return np.array(facts["values"], dtype=facts["dtype"])
