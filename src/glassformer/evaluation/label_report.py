"""Evaluation report of a classifier: accuracy, scores of each label, calibration, and baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glassformer.base.errors import GlassError
from glassformer.base.packages import install_command
from glassformer.base.wording import counted, listed
from glassformer.corpora import CORPORA, LabelledCorpus
from glassformer.evaluation.classification import (
    ClassificationScores,
    classification_scores,
    macro_f1_of,
    shortened_label,
)
from glassformer.evaluation.even_sample import evenly_spaced_texts
from glassformer.evaluation.metrics import Metric, facts_of, loss_words, paired_tests, proportion, whole_set
from glassformer.evaluation.resampling import PairedTest
from glassformer.evaluation.rouge import words
from glassformer.tasks import TextClassifier
from glassformer.text.data_notes import SHOWN_LABELS
from glassformer.text.record_store import RecordStore
from glassformer.training.validation import LossEstimate

LINEAR = "TF-IDF + logistic regression"
LINEAR_LABELS = 200
"""Maximum number of labels for the linear baseline; with more labels, fitting it takes too long."""


@dataclass(frozen=True)
class LabelReport:
    """Evaluation results of a classifier.

    Attributes:
        measured_on: name of the evaluation data.
        estimate: loss in nats per text.
        unknown_share: fraction of the texts' tokens that are unknown.
        scores: accuracy, F1, confusion matrix, calibration.
        metrics: accuracy and macro-F1 with their intervals.
        baselines: (name, accuracy, macro-F1 or None, note) of each simple predictor on the same texts; for a generated
            corpus, also the best possible accuracy on average.
        against: paired tests with another run, by metric; None without another run.
        notes: notes that the user was shown, such as texts that were left out or cut.
    """

    measured_on: str
    estimate: LossEstimate
    unknown_share: float
    scores: ClassificationScores
    metrics: list[Metric]
    baselines: list[tuple[str, float, float | None, str]]
    against: dict[str, PairedTest] | None
    notes: list[str]

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        names = ("name", "accuracy", "macro_f1", "note")
        return {
            **self.estimate.facts(None, self.unknown_share),
            "texts": self.scores.examples,
            **self.scores.facts(),
            **facts_of(self.metrics),
            "baselines": [dict(zip(names, row, strict=True)) for row in self.baselines],
            "against": None if self.against is None else {key: asdict(test) for key, test in self.against.items()},
            "notes": self.notes,
        }

    def text(self) -> str:
        """Format the report as text."""
        scores = self.scores
        lines = [
            f"on {self.measured_on}: {counted(scores.examples, 'texts')}, {scores.right:,} labelled correctly",
            loss_words(self.estimate.loss, self.estimate.ci95, "nats per text"),
            *([f"{self.unknown_share:.3%} of the tokens are unknown"] if self.unknown_share else []),
            *(metric.line() for metric in self.metrics),
            f"{'calibration':<16}{scores.calibration_error:>9.4f}   mean gap between confidence and accuracy",
        ]
        lines += ["", scores.text(), "", f"{'predictor':<34}{'accuracy':>10}{'macro-F1':>10}"]
        rows = [*self.baselines, ("this model", scores.accuracy, scores.macro_f1, "")]
        for name, accuracy, f1, note in sorted(rows, key=lambda row: row[1]):
            balanced = "" if f1 is None else f"{f1:.4f}"
            lines.append(f"{name:<34}{accuracy:>10.4f}{balanced:>10}   {note}".rstrip())
        if self.against is not None:
            lines += ["", "this run minus the other, on the same texts:"]
            lines += [f"{key:<16}{test}" for key, test in self.against.items()]
        return "\n".join(lines)


def label_report(
    model: TextClassifier,
    text: str,
    examples: Sequence[tuple[str, ...]],
    estimate: LossEstimate,
    unknown_share: float,
    train: RecordStore | None,
    corpus: str | None,
    other: TextClassifier | None,
    notes: list[str],
) -> LabelReport:
    """Classify every text, and compare the predictions with the true labels.

    Args:
        model: the run.
        text: name of the evaluation data, for the report.
        examples: (text, label name) pairs.
        estimate: the loss of the run on these texts.
        unknown_share: fraction of the texts' tokens that are unknown.
        train: training examples, for baselines; None if not available.
        corpus: name of the generated corpus that the texts are from, if any.
        other: a second run to compare with; None: no comparison.
        notes: notes that the user was shown.

    Raises:
        GlassError: the other run has different labels.
    """
    texts = [example for example, _ in examples]
    truth = [label for _, label in examples]
    if other is not None:
        _same_labels(model.labels, other.labels)
    scores, metrics = _scores_and_metrics(model, texts, truth)
    against = None
    if other is not None:
        against = paired_tests(metrics, _scores_and_metrics(other, texts, truth)[1], len(texts))
    baselines = [] if train is None else _baselines(train, texts, truth, model.labels)
    generated_corpus = CORPORA.get(corpus or "")
    if isinstance(generated_corpus, LabelledCorpus):
        best = 1 - generated_corpus.bayes_error()
        baselines.append(("best possible on average", best, None, f"1 - the Bayes error of {corpus}"))
    return LabelReport(text, estimate, unknown_share, scores, metrics, baselines, against, notes)


def _same_labels(ours: Sequence[str], theirs: Sequence[str]) -> None:
    """Raise a `GlassError` if two runs have different labels, because a label of only one run would bias the test."""
    exclusive_labels = [
        ("this run", sorted(set(ours) - set(theirs))),
        ("the other run", sorted(set(theirs) - set(ours))),
    ]
    differing = "; ".join(
        f"only {run_name} has {listed([shortened_label(name) for name in names], SHOWN_LABELS)}"
        for run_name, names in exclusive_labels
        if names
    )
    if differing:
        raise GlassError(f"the two runs have different labels: {differing}", "Compare runs with the same labels.")


def _scores_and_metrics(
    model: TextClassifier, texts: Sequence[str], truth: Sequence[str]
) -> tuple[ClassificationScores, list[Metric]]:
    index = {name: number for number, name in enumerate(model.labels)}
    true_labels = np.array([index[label] for label in truth])
    probabilities = model.probabilities(texts)
    predicted = probabilities.argmax(axis=1)
    n = len(texts)
    return classification_scores(true_labels, probabilities, model.labels), [
        proportion("accuracy", "accuracy", predicted == true_labels),
        whole_set("macro_f1", "macro-F1", macro_f1_of(true_labels, predicted, len(model.labels)), n),
    ]


def _baselines(
    train: RecordStore, texts: Sequence[str], truth: Sequence[str], labels: Sequence[str]
) -> list[tuple[str, float, float | None, str]]:
    """Return the majority baseline and, if possible, TF-IDF with logistic regression.

    The latter needs scikit-learn, at most `LINEAR_LABELS` labels, and training texts with words.
    """
    train_examples = list(evenly_spaced_texts(train))
    majority = Counter(label for _, label in train_examples).most_common(1)[0][0]
    majority_row = _baseline_row(
        "majority", [majority] * len(truth), truth, labels, f"always {shortened_label(majority)}"
    )
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        return [(*majority_row[:3], f"{majority_row[3]}; for {LINEAR}: {install_command('sklearn')}")]
    if len(labels) > LINEAR_LABELS:
        return [
            (
                *majority_row[:3],
                f"{majority_row[3]}; without {LINEAR}, which takes too long with {len(labels):,} labels",
            )
        ]
    if not any(words(text) for text, _ in train_examples):
        return [(*majority_row[:3], f"{majority_row[3]}; without {LINEAR}: the training texts have no words")]
    vectorizer = TfidfVectorizer(tokenizer=words, token_pattern=None, sublinear_tf=True, ngram_range=(1, 2))
    classifier = LogisticRegression(max_iter=1000, C=10)
    classifier.fit(
        vectorizer.fit_transform([text for text, _ in train_examples]), [label for _, label in train_examples]
    )
    predicted = classifier.predict(vectorizer.transform(texts)).tolist()
    return [majority_row, _baseline_row(LINEAR, predicted, truth, labels, "words and pairs of words, C = 10")]


def _baseline_row(
    name: str, predicted: Sequence[str], truth: Sequence[str], labels: Sequence[str], note: str
) -> tuple[str, float, float | None, str]:
    index = {label: number for number, label in enumerate(labels)}
    predicted_labels, true_labels = (np.array([index[label] for label in names]) for names in (predicted, truth))
    f1 = macro_f1_of(true_labels, predicted_labels, len(labels))(np.arange(len(true_labels)))
    return name, float((predicted_labels == true_labels).mean()), f1, note
