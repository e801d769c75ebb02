"""Scores of a classifier, and whether its probabilities can be believed.

Everything comes from the true labels and the predicted probabilities of the same examples; the prediction is the most
probable label (the first of equally probable ones). Accuracy is a mean over examples, so `resampling.wilson` gives its
interval and `paired_permutation` its test; macro-F1 belongs to the whole set: `macro_f1_of` for the bootstrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import regex
from numpy.typing import ArrayLike, NDArray

from glassformer.base.errors import GlassError
from glassformer.evaluation.resampling import Indices, Statistic

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

BINS = 15  # of equal width, as Guo et al. 2017
MATRIX_LABELS = 20  # more do not fit on a screen: then the worst confused pairs are shown
JSON_LABELS = 50  # of more, `--json` has the pairs that occur: a matrix would be nearly all noughts
PAIRS = 20
NAME = 60  # characters of a label that are shown
SUM_TOLERANCE = 1e-3  # probabilities may come from half precision


@dataclass(frozen=True)
class ClassScores:
    """One label.

    Attributes:
        name: of the label.
        precision: of those called this, the share that are; 0 where nothing was called this.
        recall: of those that are this, the share called so; 0 where nothing is this.
        f1: harmonic mean of both.
        support: examples that are this.
    """

    name: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class ReliabilityBin:
    """Predictions that were about equally confident.

    Attributes:
        low, high: ends of the bin; `high` belongs to it.
        confidence: mean probability of the predicted label.
        accuracy: share of these predictions that are right.
        count: how many there are.
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
        accuracy: share of right predictions.
        macro_f1: mean F1 of the labels that occur, among true or predicted ones (as scikit-learn does).
        confusion: (C, C) counts; a row for each true label, a column for each predicted one.
        classes: scores of each label.
        calibration_error: expected calibration error: how far confidence and accuracy are apart, over the bins, each
            weighted with its examples (Naeini et al. 2015; Guo et al. 2017).
        reliability: the bins that are not empty.
        log_loss: mean of -ln p(true label), in nats.
        brier: mean over examples of the squared distance between probabilities and truth, summed over labels, 0 to 2
            (Brier 1950).
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
        """Return how many predictions are right."""
        return int(np.trace(self.confusion))

    def facts(self) -> dict[str, Any]:
        """Return the scores as JSON; of more than 50 labels, `confusion` lists the pairs that occur, by name."""
        return {
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "confusion": self.confusion.tolist() if len(self.classes) <= JSON_LABELS else self._occurring(),
            "classes": [asdict(scores) for scores in self.classes],
            "calibration_error": self.calibration_error,
            "reliability": [asdict(row) for row in self.reliability],
            "log_loss": self.log_loss,
            "brier": self.brier,
            "examples": self.examples,
        }

    def _occurring(self) -> list[dict[str, Any]]:
        names = [scores.name for scores in self.classes]
        places = zip(*(axis.tolist() for axis in np.nonzero(self.confusion)), strict=True)
        return [
            {"true": names[true], "predicted": names[said], "count": int(self.confusion[true, said])}
            for true, said in places
        ]

    def text(self) -> str:
        """The confusion matrix for a terminal, or the pairs most often confused where there are many labels.

        Names stand at the ends of lines: whatever a terminal makes of the width of Bangla or Chinese letters, the
        numbers stay below each other.
        """
        return _matrix(self) if len(self.classes) <= MATRIX_LABELS else _pairs(self)


def classification_scores(truth: ArrayLike, probabilities: ArrayLike, names: Sequence[str]) -> ClassificationScores:
    """Scores of a classifier.

    Args:
        truth: (N,) the number of each example's label.
        probabilities: (N, C), each row adding up to 1.
        names: (C,) of the labels.

    Raises:
        GlassError: the shapes do not fit, there are no examples, or the rows are no probabilities.
    """
    answers = np.atleast_1d(truth)
    chances = np.asarray(probabilities, dtype=np.float64)
    _check(answers, chances, names)
    answers = answers.astype(np.int64)
    predicted = chances.argmax(axis=1)
    confusion = confusion_matrix(answers, predicted, len(names))
    precision, recall, f1 = _by_class(confusion)
    support = confusion.sum(axis=1)
    each = zip(names, precision.tolist(), recall.tolist(), f1.tolist(), support.tolist(), strict=True)
    reliability = _reliability(chances.max(axis=1), predicted == answers)
    gaps = [abs(row.confidence - row.accuracy) * row.count for row in reliability]
    of_the_true = chances[np.arange(len(answers)), answers]
    # Sum of (p - truth)^2 over labels, multiplied out: no second array of examples by labels.
    brier = np.einsum("ij,ij->i", chances, chances) - 2 * of_the_true + 1
    return ClassificationScores(
        accuracy=float((predicted == answers).mean()),
        macro_f1=macro_f1(confusion),
        confusion=confusion,
        classes=[ClassScores(*scores) for scores in each],
        calibration_error=float(sum(gaps) / len(answers)),
        reliability=reliability,
        # A probability that underflowed to 0 would make it infinite; scikit-learn draws the same line.
        log_loss=float(-np.log(np.clip(of_the_true, np.finfo(np.float64).eps, None)).mean()),
        brier=float(brier.mean()),
    )


def confusion_matrix(truth: Integers, predicted: Integers, labels: int) -> Integers:
    """(C, C) counts: rows are true labels, columns predicted ones."""
    return np.bincount(truth * labels + predicted, minlength=labels * labels).reshape(labels, labels)


def macro_f1(confusion: Integers) -> float:
    """Mean F1 of the labels that are true or predicted somewhere; the others count neither way."""
    _, _, f1 = _by_class(confusion)
    occurs = (confusion.sum(axis=0) + confusion.sum(axis=1)) > 0
    return float(f1[occurs].mean())


def macro_f1_of(truth: ArrayLike, predicted: ArrayLike, labels: int) -> Statistic:
    """Macro-F1 as a statistic for the bootstrap.

    Args:
        truth, predicted: (N,) numbers of labels.
        labels: C.
    """
    answers = np.asarray(truth, dtype=np.int64)
    guesses = np.asarray(predicted, dtype=np.int64)
    hits = answers == guesses

    def of(examples: Indices) -> float:
        # Three counts of each label are enough: thousands of matrices of labels by labels would not fit in memory.
        known = answers[examples]
        hit = hits[examples]
        right = np.bincount(known[hit], minlength=labels)
        both = np.bincount(known, minlength=labels) + np.bincount(guesses[examples], minlength=labels)
        occurs = both > 0
        return float((2 * right[occurs] / both[occurs]).mean())

    return of


def _by_class(confusion: Integers) -> tuple[Floats, Floats, Floats]:
    """Precision, recall and F1 of each label, 0 where undefined."""
    right = np.diag(confusion).astype(np.float64)
    said = confusion.sum(axis=0)
    are = confusion.sum(axis=1)
    precision = right / np.maximum(said, 1)
    recall = right / np.maximum(are, 1)
    return precision, recall, 2 * right / np.maximum(said + are, 1)


def _reliability(confidence: Floats, right: NDArray[np.bool_]) -> list[ReliabilityBin]:
    edges = np.arange(BINS + 1) / BINS
    places = np.digitize(confidence, edges[1:-1], right=True)  # a bin holds its upper end
    rows = []
    for place in np.unique(places).tolist():
        here = places == place
        rows.append(
            ReliabilityBin(
                low=float(edges[place]),
                high=float(edges[place + 1]),
                confidence=float(confidence[here].mean()),
                accuracy=float(right[here].mean()),
                count=int(here.sum()),
            )
        )
    return rows


def _check(truth: NDArray[Any], probabilities: Floats, names: Sequence[str]) -> None:
    if not len(truth):
        raise GlassError("there are no labelled examples", "Measure on a file that is not empty.")
    shape = (len(truth), len(names))
    if truth.ndim != 1 or probabilities.shape != shape:
        raise GlassError(
            f"there are {len(truth):,} labels and {len(names)} names, but probabilities of shape {probabilities.shape}",
            f"Give one row for each example and one column for each name: {shape}.",
        )
    if not np.issubdtype(truth.dtype, np.integer) or truth.min() < 0 or truth.max() >= len(names):
        raise GlassError(
            f"labels are given as {truth.min()!s} to {truth.max()!s} ({truth.dtype})",
            f"Give whole numbers from 0 to {len(names) - 1}, the places of their names.",
        )
    fine = np.isfinite(probabilities) & (probabilities >= 0)
    if not fine.all() or np.abs(probabilities.sum(axis=1) - 1).max() > SUM_TOLERANCE:
        wrong = ~fine.all(axis=1) | (np.abs(probabilities.sum(axis=1) - 1) > SUM_TOLERANCE)
        row = int(np.flatnonzero(wrong)[0])
        raise GlassError(
            f"row {row} of the probabilities is {probabilities[row].round(4).tolist()}",
            "Rows must be probabilities: nothing negative, and 1 in all. Give logits through a softmax.",
        )


def _matrix(scores: ClassificationScores) -> str:
    count = max(5, len(f"{scores.confusion.max():,}") + 1)
    first = len(str(len(scores.classes))) + 2
    lines = ["rows: what it is; columns: what was said"]
    numbers = "".join(f"{column + 1:>{count}}" for column in range(len(scores.classes)))
    lines.append(f"{'':{first}}{numbers}{'precision':>11}{'recall':>8}{'F1':>8}{'of':>8}  label")
    for number, (row, label) in enumerate(zip(scores.confusion.tolist(), scores.classes, strict=True), start=1):
        counts = "".join(f"{value:>{count},}" if value else f"{'.':>{count}}" for value in row)
        measured = f"{label.precision:>11.3f}{label.recall:>8.3f}{label.f1:>8.3f}{label.support:>8,}"
        lines.append(f"{number:>{first}}{counts}{measured}  {shown(label.name)}")
    return "\n".join(lines)


def _pairs(scores: ClassificationScores) -> str:
    wrong = scores.confusion - np.diag(np.diag(scores.confusion))
    order = np.argsort(-wrong, axis=None, kind="stable")[:PAIRS]
    chosen = [place for place in order.tolist() if wrong.flat[place]]
    if not chosen:
        return "no two labels were ever confused"
    lines = [f"most confused of {len(scores.classes)} labels", f"{'times':>7}{'of':>8}  what it is -> what was said"]
    for place in chosen:
        true, said = divmod(place, len(scores.classes))
        label = scores.classes[true]
        names = f"{shown(label.name)} -> {shown(scores.classes[said].name)}"
        lines.append(f"{wrong.flat[place]:>7,}{label.support:>8,}  {names}")
    return "\n".join(lines)


def shown(name: str) -> str:
    """On one line, and not too long."""
    seen = regex.findall(r"\X", " ".join(name.split()))  # no letter loses its vowel sign
    return "".join(seen if len(seen) <= NAME else [*seen[: NAME - 1], "…"])
