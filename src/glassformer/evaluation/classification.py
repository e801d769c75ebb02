"""Classification metrics: accuracy, F1, confusion matrix, calibration error, log loss and Brier score.

All metrics are computed from the true labels and the predicted probabilities; the prediction is the most probable
label, and ties go to the first label. Accuracy is a mean over examples: use `resampling.wilson` for its interval, and
`paired_permutation` to compare runs. Macro-F1 is a whole-set metric: use the bootstrap with `macro_f1_of` for both
purposes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import regex
from numpy.typing import ArrayLike, NDArray

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.evaluation.resampling import Indices, Statistic

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

BINS = 15  # of equal width, as in Guo et al. 2017
MATRIX_LABELS = 20  # a larger matrix does not fit on a screen; the most confused pairs are listed instead
JSON_LABELS = 50  # a larger matrix would be nearly all zeros; `--json` lists the nonzero entries instead
PAIRS = 20
NAME = 60  # maximum number of characters of a label in the report
SUM_TOLERANCE = 1e-3  # probabilities may come from half precision


@dataclass(frozen=True)
class ClassScores:
    """Scores of one label.

    Attributes:
        name: name of the label.
        precision: fraction of the predictions of this label that are correct; 0 if the label was never predicted.
        recall: fraction of the examples with this label that are predicted correctly; 0 if there are no such examples.
        f1: harmonic mean of precision and recall; 0 if both are 0.
        support: number of examples with this label.
    """

    name: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class ReliabilityBin:
    """A bin of predictions with similar confidence, for measuring calibration.

    Attributes:
        low, high: bounds of the confidence; the upper bound is included.
        confidence: mean probability of the predicted label.
        accuracy: fraction of correct predictions.
        count: number of predictions.
    """

    low: float
    high: float
    confidence: float
    accuracy: float
    count: int


@dataclass(frozen=True, eq=False)
class ClassificationScores:
    """Scores of a classifier on N examples with C labels.

    Attributes:
        accuracy: fraction of correct predictions.
        macro_f1: mean F1 over the labels that occur as a true or predicted label (as in scikit-learn).
        confusion: (C, C) counts, with a row for each true label and a column for each predicted label.
        classes: scores of each label.
        calibration_error: expected calibration error, the mean absolute difference between confidence and accuracy
            over the bins, weighted by the number of examples (Naeini et al. 2015; Guo et al. 2017).
        reliability: the nonempty bins.
        log_loss: mean of -ln p(true label), in nats; p below 2.2e-16 counts as 2.2e-16.
        brier: Brier score, 0 to 2: the squared difference between probability and truth, summed over labels and
            averaged over examples (Brier 1950).
    """

    accuracy: float
    macro_f1: float
    confusion: Integers
    classes: list[ClassScores]
    calibration_error: float
    reliability: list[ReliabilityBin]
    log_loss: float
    brier: float

    @property
    def examples(self) -> int:
        """Number of examples N."""
        return int(self.confusion.sum())

    @property
    def right(self) -> int:
        """Number of correct predictions."""
        return int(np.trace(self.confusion))

    def facts(self) -> dict[str, Any]:
        """Return the scores as JSON values; above `JSON_LABELS` labels, `confusion` lists only nonzero entries."""
        return {
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "confusion": self.confusion.tolist() if len(self.classes) <= JSON_LABELS else self._nonzero_entries(),
            "classes": [asdict(scores) for scores in self.classes],
            "calibration_error": self.calibration_error,
            "reliability": [asdict(row) for row in self.reliability],
            "log_loss": self.log_loss,
            "brier": self.brier,
            "examples": self.examples,
        }

    def _nonzero_entries(self) -> list[dict[str, Any]]:
        names = [scores.name for scores in self.classes]
        entries = zip(*(axis.tolist() for axis in np.nonzero(self.confusion)), strict=True)
        return [
            {"true": names[true], "predicted": names[predicted], "count": int(self.confusion[true, predicted])}
            for true, predicted in entries
        ]

    def text(self) -> str:
        """Format the confusion matrix as text; above `MATRIX_LABELS` labels, list up to `PAIRS` most confused pairs.

        Label names are at the ends of lines, so that the numbers are aligned even if a terminal draws letters, such as
        Bangla or Chinese, with different widths.
        """
        return _matrix_text(self) if len(self.classes) <= MATRIX_LABELS else _confused_pairs_text(self)


def classification_scores(truth: ArrayLike, probabilities: ArrayLike, names: Sequence[str]) -> ClassificationScores:
    """Compute the scores of a classifier.

    Args:
        truth: (N,) index of the true label of each example.
        probabilities: (N, C) predicted probabilities; each row sums to 1.
        names: (C,) label names.

    Raises:
        GlassError: the shapes do not match, there are no examples, a true label is not an index of `names`, or a row is
            not a probability distribution.
    """
    true_labels = np.atleast_1d(truth)
    probability_matrix = np.asarray(probabilities, dtype=np.float64)
    _check_inputs(true_labels, probability_matrix, names)
    true_labels = true_labels.astype(np.int64)
    predicted = probability_matrix.argmax(axis=1)
    confusion = confusion_matrix(true_labels, predicted, len(names))
    precision, recall, f1 = _by_class(confusion)
    support = confusion.sum(axis=1)
    class_rows = zip(names, precision.tolist(), recall.tolist(), f1.tolist(), support.tolist(), strict=True)
    reliability = _reliability(probability_matrix.max(axis=1), predicted == true_labels)
    gaps = [abs(row.confidence - row.accuracy) * row.count for row in reliability]
    true_probabilities = probability_matrix[np.arange(len(true_labels)), true_labels]  # (N,)
    # The sum of (p - truth)^2 over labels is expanded, which avoids a second (N, C) array.
    brier = np.einsum("ij,ij->i", probability_matrix, probability_matrix) - 2 * true_probabilities + 1
    return ClassificationScores(
        accuracy=float((predicted == true_labels).mean()),
        macro_f1=macro_f1(confusion),
        confusion=confusion,
        classes=[ClassScores(*scores) for scores in class_rows],
        calibration_error=float(sum(gaps) / len(true_labels)),
        reliability=reliability,
        # A probability that underflowed to 0 would give an infinite loss; scikit-learn clips at the same value.
        log_loss=float(-np.log(np.clip(true_probabilities, np.finfo(np.float64).eps, None)).mean()),
        brier=float(brier.mean()),
    )


def confusion_matrix(truth: Integers, predicted: Integers, labels: int) -> Integers:
    """Return the (C, C) confusion counts: rows are true labels, columns are predicted labels."""
    return np.bincount(truth * labels + predicted, minlength=labels * labels).reshape(labels, labels)


def macro_f1(confusion: Integers) -> float:
    """Return the mean F1 over the labels that occur as a true or predicted label."""
    _, _, f1 = _by_class(confusion)
    occurs = (confusion.sum(axis=0) + confusion.sum(axis=1)) > 0
    return float(f1[occurs].mean())


def macro_f1_of(truth: ArrayLike, predicted: ArrayLike, labels: int) -> Statistic:
    """Return macro-F1 as a function of example indices, for the bootstrap.

    Args:
        truth, predicted: (N,) label indices.
        labels: C, the number of labels.
    """
    true_labels = np.asarray(truth, dtype=np.int64)
    predicted_labels = np.asarray(predicted, dtype=np.int64)
    correct = true_labels == predicted_labels

    def of(examples: Indices) -> float:
        # F1 needs only counts per label; a (C, C) matrix for each of a thousand resamples would be slow.
        sampled_labels = true_labels[examples]
        sampled_correct = correct[examples]
        true_positives = np.bincount(sampled_labels[sampled_correct], minlength=labels)
        counts = np.bincount(sampled_labels, minlength=labels) + np.bincount(
            predicted_labels[examples], minlength=labels
        )
        occurs = counts > 0
        return float((2 * true_positives[occurs] / counts[occurs]).mean())

    return of


def _by_class(confusion: Integers) -> tuple[Floats, Floats, Floats]:
    """Return precision, recall and F1 of each label, 0 where undefined."""
    true_positives = np.diag(confusion).astype(np.float64)
    predicted = confusion.sum(axis=0)
    true = confusion.sum(axis=1)
    precision = true_positives / np.maximum(predicted, 1)
    recall = true_positives / np.maximum(true, 1)
    return precision, recall, 2 * true_positives / np.maximum(predicted + true, 1)


def _reliability(confidence: Floats, correct: NDArray[np.bool_]) -> list[ReliabilityBin]:
    edges = np.arange(BINS + 1) / BINS
    bins = np.digitize(confidence, edges[1:-1], right=True)  # a bin includes its upper bound
    rows = []
    for index in np.unique(bins).tolist():
        in_bin = bins == index
        rows.append(
            ReliabilityBin(
                low=float(edges[index]),
                high=float(edges[index + 1]),
                confidence=float(confidence[in_bin].mean()),
                accuracy=float(correct[in_bin].mean()),
                count=int(in_bin.sum()),
            )
        )
    return rows


def _check_inputs(truth: NDArray[Any], probabilities: Floats, names: Sequence[str]) -> None:
    if not len(truth):
        raise GlassError("there are no labelled examples", "Evaluate on a file that is not empty.")
    if truth.ndim != 1:
        raise GlassError(f"the true labels have shape {truth.shape}", f"Give a shape of ({len(truth)},).")
    shape = (len(truth), len(names))
    if probabilities.shape != shape:
        raise GlassError(
            f"{counted(len(truth), 'labels')} and {counted(len(names), 'names')} were given with probabilities of "
            f"shape {probabilities.shape}",
            f"Give one row for each example and one column for each name: {shape}.",
        )
    remedy = f"Give integers from 0 to {len(names) - 1}, the indices of the label names."
    if not np.issubdtype(truth.dtype, np.integer):
        raise GlassError(f"the true labels are not integers, but {truth.dtype}", remedy)
    if truth.min() < 0 or truth.max() >= len(names):
        raise GlassError(f"the true labels go from {truth.min()} to {truth.max()}", remedy)
    valid = np.isfinite(probabilities) & (probabilities >= 0)
    if not valid.all() or np.abs(probabilities.sum(axis=1) - 1).max() > SUM_TOLERANCE:
        invalid_rows = ~valid.all(axis=1) | (np.abs(probabilities.sum(axis=1) - 1) > SUM_TOLERANCE)
        row = int(np.flatnonzero(invalid_rows)[0])
        raise GlassError(
            f"row {row} of the probabilities is {probabilities[row].round(4).tolist()}",
            "Each row must be non-negative and sum to 1. Apply softmax to logits first.",
        )


def _matrix_text(scores: ClassificationScores) -> str:
    column_width = max(5, len(f"{scores.confusion.max():,}") + 1)
    first_width = len(str(len(scores.classes))) + 2
    lines = ["rows: true label; columns: predicted label"]
    numbers = "".join(f"{column + 1:>{column_width}}" for column in range(len(scores.classes)))
    lines.append(f"{'':{first_width}}{numbers}{'precision':>11}{'recall':>8}{'F1':>8}{'of':>8}  label")
    for number, (row, label) in enumerate(zip(scores.confusion.tolist(), scores.classes, strict=True), start=1):
        counts = "".join(f"{value:>{column_width},}" if value else f"{'.':>{column_width}}" for value in row)
        label_scores = f"{label.precision:>11.3f}{label.recall:>8.3f}{label.f1:>8.3f}{label.support:>8,}"
        lines.append(f"{number:>{first_width}}{counts}{label_scores}  {shortened_label(label.name)}")
    return "\n".join(lines)


def _confused_pairs_text(scores: ClassificationScores) -> str:
    errors = scores.confusion - np.diag(np.diag(scores.confusion))
    order = np.argsort(-errors, axis=None, kind="stable")[:PAIRS]
    most_confused = [index for index in order.tolist() if errors.flat[index]]
    if not most_confused:
        return "no two labels were confused"
    lines = [f"most confused of {len(scores.classes)} labels", f"{'times':>7}{'of':>8}  true -> predicted"]
    for index in most_confused:
        true, predicted = divmod(index, len(scores.classes))
        label = scores.classes[true]
        names = f"{shortened_label(label.name)} -> {shortened_label(scores.classes[predicted].name)}"
        lines.append(f"{errors.flat[index]:>7,}{label.support:>8,}  {names}")
    return "\n".join(lines)


def shortened_label(name: str) -> str:
    """Return a label name on one line, shortened to `NAME` characters."""
    graphemes = regex.findall(r"\X", " ".join(name.split()))  # grapheme clusters, so that a letter keeps its vowel sign
    return "".join(graphemes if len(graphemes) <= NAME else [*graphemes[: NAME - 1], "…"])
