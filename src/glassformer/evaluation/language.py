"""What `glass evaluate` says of a language model: its loss, how sure that is, and what it is worth on this text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from glassformer.config import SampleConfig
from glassformer.data.batches import validation_rows
from glassformer.data.store import TokenStore
from glassformer.evaluation.baselines import Baseline, baselines
from glassformer.evaluation.copying import Overlap, longest_overlap
from glassformer.model.device import choose_precision
from glassformer.text_model import TextModel
from glassformer.training.validation import LossEstimate, sliding_loss, validation_loss
from glassformer.wording import counted


@dataclass(frozen=True)
class LanguageReport:
    """One evaluation.

    Attributes:
        text: what was measured on, in words.
        estimate: over all of it, in non-overlapping windows.
        bits_per_byte: the same loss per byte of text.
        sliding: nats per token when every token sees at least half a context before it; None for single documents.
        baselines: what simpler predictors lose on the same tokens.
        overlap: the longest stretch of a fresh sample that stands in the training text; None without that text.
        sample: the fresh sample.
    """

    text: str
    estimate: LossEstimate
    bits_per_byte: float
    sliding: float | None
    baselines: list[Baseline]
    overlap: Overlap | None
    sample: str

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.estimate.loss

    def facts(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            **self.estimate.facts(self.bits_per_byte),
            "sliding_loss": self.sliding,
            "baselines": [asdict(rung) for rung in self.baselines],
            "sample": self.sample,
            "longest_copy": asdict(self.overlap) if self.overlap else None,
        }

    def table(self) -> str:
        """For people."""
        lines = [
            f"on {self.text}: {counted(self.estimate.tokens, 'tokens')}",
            f"loss {self.loss:.4f} {self.estimate.margin} nats per token (95 %), "
            f"perplexity {self.estimate.perplexity:.2f}, {self.bits_per_byte:.4f} bits per byte",
        ]
        if self.sliding is not None:
            lines.append(f"with a sliding window (every token sees at least half a context): {self.sliding:.4f}")
        if self.baselines:
            rungs = [(r.name, r.loss, r.bits_per_byte, r.note) for r in self.baselines]
            rungs.append(("this model", self.loss, self.bits_per_byte, ""))
            lines += ["", f"{'predictor':<14}{'nats/token':>11}{'bits/byte':>11}"]
            for name, loss, bits, note in sorted(rungs, key=lambda rung: -rung[1]):
                lines.append(f"{name:<14}{loss:>11.4f}{bits:>11.4f}   {note}".rstrip())
        if self.overlap is not None:
            copied = " ".join(self.overlap.text.split())
            lines += ["", f"copy meter: of a sample of {len(self.sample)} characters, the longest stretch found in the "
                      f"training text has {self.overlap.length}: line {self.overlap.line}, "
                      f"character {self.overlap.position}: {copied!r}"]  # fmt: skip
        return "\n".join(lines)


def language_report(
    model: TextModel,
    text: str,
    store: TokenStore,
    train: TokenStore | None,
    corpus: str | None,
    precision: str,
    settings: SampleConfig,
) -> LanguageReport:
    """Measure a language model on a text.

    Args:
        model: the run.
        text: what is measured on, in words.
        store: its tokens.
        train: the training part, for baselines and copy meter; None where it is not at hand.
        corpus: the generated corpus that the text is from, if it is.
        precision: of matrix products.
        settings: of the sample that the copy meter looks at.
    """
    config, device = model.config, next(model.model.parameters()).device
    dtype = choose_precision(precision, device)
    rows = validation_rows(store, config.data, config.model.context, model.tokenizer.start_id)
    estimate = validation_loss(model.model, rows, device, dtype)
    sliding = None
    if config.data.windows == "stream":
        sliding = sliding_loss(model.model, store.tokens, config.model.context, device, dtype).loss
    sample = model.generate([settings.prompt], settings)[0]
    ladder, overlap = [], None
    if train is not None:
        ladder = baselines(train, store, model.tokenizer, corpus, config.data.windows)
        overlap = longest_overlap(sample.text, train.iter_text(model.tokenizer))
    bits = estimate.bits_per_byte(store.bytes)
    return LanguageReport(text, estimate, bits, sliding, ladder, overlap, sample.text)
