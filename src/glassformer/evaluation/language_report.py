"""Evaluation report of a language model: its loss with an interval, baselines, and the copy meter."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from glassformer.base.config import SampleConfig
from glassformer.base.wording import counted
from glassformer.evaluation.baseline_table import Baseline, baselines
from glassformer.evaluation.copying import CopyMeter, Overlap, copy_meter, longest_overlap
from glassformer.evaluation.metrics import loss_words
from glassformer.evaluation.training_overlap import Reading
from glassformer.model.precision import choose_precision
from glassformer.tasks import TextModel
from glassformer.tasks.task import LanguageTask
from glassformer.text.store import TokenStore
from glassformer.training.validation import LossEstimate, bits_words, sliding_loss, unknown_words, validation_loss


@dataclass(frozen=True)
class LanguageReport:
    """Evaluation results of a language model.

    Attributes:
        measured_on: name of the evaluation data.
        estimate: loss on all the data, in non-overlapping windows.
        bits_per_byte: the loss in bits per byte of text; None if the text has unknown tokens.
        unknown_share: fraction of the text's tokens that are unknown.
        sliding: nats per token with a sliding window, in which every token after the first half context has at least
            half a context before it; None for document windows.
        baselines: losses of the baselines on the same tokens; empty if the training text is not available.
        copy_meter: how much of a new sample is copied from the training text, compared with held-out text; None if the
            training text is not available.
        overlap: longest overlap of the new sample with the training text; None if they share no character, or if the
            training text is not available.
        sample: the new sample.
        reading: documents that were left out, and overlap of the text with the training text.
        backend, precision: backend and precision that generated the sample.
    """

    measured_on: str
    estimate: LossEstimate
    bits_per_byte: float | None
    unknown_share: float
    sliding: float | None
    baselines: list[Baseline]
    copy_meter: CopyMeter | None
    overlap: Overlap | None
    sample: str
    reading: Reading
    backend: str
    precision: str

    @property
    def loss(self) -> float:
        """Loss in nats per token, over non-overlapping windows."""
        return self.estimate.loss

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            **self.estimate.facts(self.bits_per_byte, self.unknown_share),
            "sliding_loss": self.sliding,
            "baselines": [asdict(baseline) for baseline in self.baselines],
            "sample": self.sample,
            "copy_meter": self.copy_meter.facts() if self.copy_meter else None,
            "longest_copy": asdict(self.overlap) if self.overlap else None,
            "backend": self.backend,
            "precision": self.precision,
            **self.reading.facts(),
        }

    def text(self) -> str:
        """Format the report as text."""
        lines = [
            f"on {self.measured_on}: {counted(self.estimate.tokens, 'tokens')}",
            f"{loss_words(self.loss, self.estimate.ci95, 'nats per token')}, "
            f"perplexity {self.estimate.perplexity:.2f}{bits_words(self.bits_per_byte)}",
        ]
        if self.unknown_share:
            lines.append(unknown_words(self.unknown_share))
        if self.sliding is not None:
            lines.append(
                "with a sliding window (at least half a context before every token, except at the start): "
                f"{self.sliding:.4f}"
            )
        if self.baselines:
            rows = [(r.name, r.loss, r.bits_per_byte, r.note) for r in self.baselines]
            rows.append(("this model", self.loss, self.bits_per_byte, ""))
            lines += ["", f"{'predictor':<14}{'nats/token':>11}{'bits/byte':>11}"]
            for name, loss, bits, note in sorted(rows, key=lambda row: -row[1]):
                bits_text = "-" if bits is None else f"{bits:.4f}"
                lines.append(f"{name:<14}{loss:>11.4f}{bits_text:>11}   {note}".rstrip())
        if self.copy_meter is not None:
            meter = self.copy_meter
            lines += [
                "",
                f"copy meter: {meter.copied:.1%} of a sample of {counted(len(self.sample), 'characters')} is copied "
                f"beyond held-out text (in matches of whole words of at least {meter.least} characters: "
                f"{meter.share:.1%} of the sample, {meter.held_out_share:.1%} of held-out text)",
            ]
        if self.overlap is not None:
            copied = " ".join(self.overlap.text.split())
            lines.append(
                "the longest passage of the sample that occurs in the training text has "
                f"{counted(self.overlap.length, 'characters')} (line {self.overlap.line}, "
                f"offset {self.overlap.position:,} in the text): {copied!r}"
            )
        return "\n".join(lines)


def language_report(
    model: TextModel,
    task: LanguageTask,
    text: str,
    train: TokenStore | None,
    held_out: TokenStore | None,
    corpus: str | None,
    precision: str,
    settings: SampleConfig,
    reading: Reading,
) -> LanguageReport:
    """Evaluate a language model on a text.

    Args:
        model: the run.
        task: the language modeling task whose validation split is the data.
        text: name of the evaluation data, for the report.
        train: the training split, for baselines and the copy meter; None if not available.
        held_out: the validation split of the run, for the copy meter; None if not available.
        corpus: name of the generated corpus that the text is from, if any.
        precision: precision of matrix multiplications.
        settings: sampling settings for the sample of the copy meter.
        reading: documents that were left out, and overlap of the text with the training text.
    """
    config = task.config
    store = task.validation
    device = next(model.model.parameters()).device
    dtype = choose_precision(precision, device)
    rows = task.held_out(None)
    estimate = validation_loss(model.model, rows, device, dtype)
    sliding = None
    if config.data.windows == "stream":
        sliding = sliding_loss(model.model, store.tokens, config.model.context, device, dtype).loss
    sample = model.generate([settings.prompt], settings)[0]
    baseline_results = []
    overlap = None
    meter = None
    if train is not None:
        if config.data.windows in ("stream", "documents"):  # other rows predict only some of the tokens
            baseline_results = baselines(train, store, model.tokenizer, corpus, config.data.windows)
        overlap = longest_overlap(sample.text, train.iter_text(model.tokenizer))
        held_out_text = [] if held_out is None else held_out.iter_text(model.tokenizer)
        meter = copy_meter(sample.text, train.iter_text(model.tokenizer), held_out_text)
    return LanguageReport(
        measured_on=text,
        estimate=estimate,
        bits_per_byte=estimate.bits_per_byte(task.validation_bytes),
        unknown_share=store.unknown_share,
        sliding=sliding,
        baselines=baseline_results,
        copy_meter=meter,
        overlap=overlap,
        sample=sample.text,
        reading=reading,
        backend=model.backend,
        precision=model.precision,
    )
