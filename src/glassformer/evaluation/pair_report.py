"""Evaluation report of a translation or summarization run: loss, and quality of the generated text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from glassformer.base.wording import counted
from glassformer.evaluation.even_sample import evenly_spaced_texts
from glassformer.evaluation.metrics import Metric, facts_of, loss_words, mean, paired_tests, proportion, whole_set
from glassformer.evaluation.nearest_neighbour import Nearest
from glassformer.evaluation.resampling import PairedTest
from glassformer.evaluation.rouge import rouge_of_each
from glassformer.evaluation.translation import can_score, exact_matches, sentence_statistics, translation_scores
from glassformer.tasks import Translator
from glassformer.tasks.example_tasks import measured_bytes
from glassformer.text.record_store import RecordStore
from glassformer.training.validation import LossEstimate, bits_words, unknown_words

SHOWN = 3
"""Maximum number of sample texts in the report."""
SCORES = ("bleu", "chrf", "rougeL", "exact_match")


@dataclass(frozen=True)
class PairReport:
    """Evaluation results of a run that generates text for a source.

    Attributes:
        measured_on: name of the evaluation data.
        estimate: loss in nats per target token, with teacher forcing.
        bits_per_byte: the loss in bits per byte of the targets; None for conversations, or if a source or target is
            longer than the context, or a target has unknown tokens.
        unknown_share: fraction of the targets' tokens that are unknown.
        unknown_source_share: fraction of the sources' tokens that are unknown; 0 for conversations.
        examples: number of sources for which text was generated.
        metrics: metrics of the generated text.
        baselines: name -> metrics of each baseline that needs no model.
        samples: (source, reference, generated text) of a few examples.
        against: paired tests with another run, by metric; None without another run.
        notes: notes that the user was shown, such as pairs that were left out or cut.
        backend, precision: backend and precision that generated the text.
        records: plural noun that the report uses for the examples.
    """

    measured_on: str
    estimate: LossEstimate
    bits_per_byte: float | None
    unknown_share: float
    unknown_source_share: float
    examples: int
    metrics: list[Metric]
    baselines: dict[str, dict[str, float]]
    samples: list[tuple[str, str, str]]
    against: dict[str, PairedTest] | None
    notes: list[str]
    backend: str
    precision: str
    records: str = "pairs"

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            **self.estimate.facts(self.bits_per_byte, self.unknown_share),
            "unknown_source_share": self.unknown_source_share,
            "examples": self.examples,
            **facts_of(self.metrics),
            "baselines": [{"name": name, **scores} for name, scores in self.baselines.items()],
            "samples": [dict(zip(("source", "reference", "text"), row, strict=True)) for row in self.samples],
            "against": None if self.against is None else {key: asdict(test) for key, test in self.against.items()},
            "notes": self.notes,
            "backend": self.backend,
            "precision": self.precision,
        }

    def text(self) -> str:
        """Format the report as text."""
        lines = [
            f"on {self.measured_on}: {counted(self.estimate.rows, self.records)}, "
            f"{counted(self.estimate.tokens, 'target tokens')}",
            f"{loss_words(self.estimate.loss, self.estimate.ci95, 'nats per token')}, "
            f"perplexity {self.estimate.perplexity:.2f}{bits_words(self.bits_per_byte)}",
            *([f"targets: {unknown_words(self.unknown_share)}"] if self.unknown_share else []),
            *(
                [f"sources: {self.unknown_source_share:.3%} of the tokens are unknown"]
                if self.unknown_source_share
                else []
            ),
            "",
            f"metrics of {counted(self.examples, 'generated texts')}:   (95 %)",
            *(metric.line() for metric in self.metrics),
        ]
        if self.baselines:
            model_scores = {metric.key: metric.value for metric in self.metrics}
            keys = [key for key in SCORES if key in model_scores]
            lines += ["", f"{'without a model':<28}" + "".join(f"{key:>13}" for key in keys)]
            for name, scores in [*self.baselines.items(), ("this model", model_scores)]:
                lines.append(f"{name:<28}" + "".join(f"{scores[key]:>13.4f}" for key in keys))
        for source, reference, text in self.samples:
            lines += ["", f"source     {source}", f"reference  {reference}", f"generated  {text}"]
        if self.against is not None:
            lines += ["", f"this run minus the other, on the same {self.records}:"]
            lines += [f"{key:<16}{test}" for key, test in self.against.items()]
        return "\n".join(lines)


def pair_metrics(hypotheses: Sequence[str], references: Sequence[str]) -> list[Metric]:
    """Compute BLEU (cased and lower-cased), chrF++, ROUGE-1, ROUGE-2, ROUGE-L and exact match, with intervals.

    BLEU and chrF++ range from 0 to 100, and are left out if sacrebleu is not installed. The other metrics range from 0
    to 1.
    """
    rouge = rouge_of_each(hypotheses, references)
    return [
        *(_by_sacrebleu(hypotheses, references) if can_score() else []),
        mean("rouge1", "ROUGE-1", [scores.rouge1.f for scores in rouge]),
        mean("rouge2", "ROUGE-2", [scores.rouge2.f for scores in rouge]),
        mean("rougeL", "ROUGE-L", [scores.rougeL.f for scores in rouge]),
        proportion("exact_match", "exact match", exact_matches(hypotheses, references)),
    ]


def _by_sacrebleu(hypotheses: Sequence[str], references: Sequence[str]) -> list[Metric]:
    n = len(references)
    scores = translation_scores(hypotheses, references)
    lowercase_scores = translation_scores(hypotheses, references, lowercase=True)
    statistics, lowercase_statistics = (
        sentence_statistics(hypotheses, references, lowercase=ignore_case) for ignore_case in (False, True)
    )
    return [
        whole_set("bleu", "BLEU", statistics.bleu, n, scores.bleu_signature),
        whole_set("bleu_lowercase", "BLEU, lowercase", lowercase_statistics.bleu, n, lowercase_scores.bleu_signature),
        whole_set("chrf", "chrF++", statistics.chrf, n, scores.chrf_signature),
    ]


def pair_report(
    model: Translator,
    text: str,
    examples: Sequence[tuple[str, ...]],
    estimate: LossEstimate,
    store: RecordStore,
    train: RecordStore | None,
    other: Translator | None,
    notes: list[str],
) -> PairReport:
    """Generate text for every source, and compare it with the references.

    Args:
        model: the run.
        text: name of the evaluation data, for the report.
        examples: (source, reference) pairs.
        estimate: the loss over all pairs that were not left out.
        store: all pairs.
        train: training pairs, for the nearest-neighbour baseline; None if not available.
        other: a second run to compare with; None: no comparison.
        notes: notes that the user was shown.
    """
    sources = [source for source, _ in examples]
    references = [reference for _, reference in examples]
    generated = _texts(model, sources)
    metrics = pair_metrics(generated, references)
    against = None
    if other is not None:
        against = paired_tests(metrics, pair_metrics(_texts(other, sources), references), len(sources))
    samples = list(zip(sources, references, generated, strict=True))[:: max(1, len(sources) // SHOWN)][:SHOWN]
    baselines = {"copy the source": figures_of(sources, references)}
    if train is not None and len(train):
        nearest = Nearest((source, target) for source, target in evenly_spaced_texts(train))
        answers = [nearest.answer(source) for source in sources]
        baselines["answer of the nearest source"] = figures_of(answers, references)
    return PairReport(
        measured_on=text,
        estimate=estimate,
        bits_per_byte=estimate.bits_per_byte(measured_bytes(store, model.config.model.context)),
        unknown_share=store.target.unknown_share,
        unknown_source_share=store.source.unknown_share,
        examples=len(sources),
        metrics=metrics,
        baselines=baselines,
        samples=samples,
        against=against,
        notes=notes,
        backend=model.backend,
        precision=model.precision,
    )


def _texts(model: Translator, sources: Sequence[str]) -> list[str]:
    return [sample.text for sample in model.generate(sources, model.config.sample)]


def figures_of(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return the metrics of a baseline by key: BLEU and chrF++ if sacrebleu is installed, ROUGE-L, exact match."""
    rouge = sum(each.rougeL.f for each in rouge_of_each(hypotheses, references)) / len(references)
    figures = {"rougeL": rouge, "exact_match": float(exact_matches(hypotheses, references).mean())}
    if not can_score():
        return figures
    scores = translation_scores(hypotheses, references)
    return {"bleu": scores.bleu, "chrf": scores.chrf, **figures}
