"""What `glass evaluate` says of a language model: its loss, how sure that is, and what it is worth on this text."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from glassformer.config import Config, DataConfig, SampleConfig
from glassformer.data.batches import validation_rows
from glassformer.data.corpora import CORPORA
from glassformer.data.store import TokenStore
from glassformer.data.whole import encode_whole
from glassformer.errors import GlassError
from glassformer.evaluation.baselines import Baseline, baselines
from glassformer.evaluation.copying import Overlap, longest_overlap
from glassformer.model.device import choose_precision
from glassformer.runs import Which, open_run
from glassformer.text_model import TextModel
from glassformer.training.setup import encoded_text
from glassformer.training.validation import LossEstimate, sliding_loss, validation_loss


@dataclass(frozen=True)
class Report:
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
            "loss": self.loss,
            "loss_ci95": self.estimate.ci95,
            "perplexity": self.estimate.perplexity,
            "bits_per_byte": self.bits_per_byte,
            "sliding_loss": self.sliding,
            "tokens": self.estimate.tokens,
            "baselines": [asdict(rung) for rung in self.baselines],
            "sample": self.sample,
            "longest_copy": asdict(self.overlap) if self.overlap else None,
        }

    def table(self) -> str:
        """For people."""
        lines = [
            f"on {self.text}: {self.estimate.tokens:,} tokens",
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


def evaluate_run(
    folder: Path,
    source: str | None = None,
    which: Which = "best",
    device: str = "auto",
    precision: str | None = None,
    seed: int | None = None,
    changes: Mapping[str, str] = MappingProxyType({}),
    note: Callable[[str], None] = lambda text: None,
) -> Report:
    """Measure a run on its own validation split, or on another text.

    Args:
        folder: of the run.
        source: a file, folder, corpus …, measured whole; None: the run's validation split.
        which: the checkpoint.
        device: where to compute.
        precision: of matrix products; None: as in training, so that the figures are the same.
        changes: settings of `data` for reading `source`, as text; the run's own apply only to its own text.
        seed: of the sample that the copy meter looks at; None: the run's own.
        note: is told what a person should know.

    Raises:
        GlassError: there is no such run, or its text is gone.
    """
    model = TextModel.load(folder, which, device)
    config = model.config
    precision = precision or config.train.precision
    settings = config.sample if seed is None else config.sample.replace(seed=seed)
    if source is None:
        own = encoded_text(open_run(folder), config, note)
        corpus = config.data.source if config.data.source in CORPORA else None
        return _report(model, "the validation split", own.train, own.validation, corpus, precision, settings)
    with tempfile.TemporaryDirectory(prefix="glass-evaluate-", ignore_cleanup_errors=True) as temporary:
        data = _reading(config.data, source, changes)
        store, notes = encode_whole(data, model.tokenizer, Path(temporary))
        for text in notes:
            note(text)
        if len(store) < 2:
            raise GlassError(f"{source} has {len(store)} tokens", "Give a longer text.")
        corpus = source if source in CORPORA else None
        report = _report(model, str(source), _training_text(folder, config), store, corpus, precision, settings)
        del store  # Windows cannot delete a file that is mapped
        return report


def _report(
    model: TextModel,
    text: str,
    train: TokenStore | None,
    store: TokenStore,
    corpus: str | None,
    precision: str,
    settings: SampleConfig,
) -> Report:
    config, device = model.config, next(model.model.parameters()).device
    dtype = choose_precision(precision, device)
    rows = validation_rows(store, config.data, config.model.context, model.tokenizer.end_id)
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
    return Report(text, estimate, bits, sliding, ladder, overlap, sample.text)


def _reading(own: DataConfig, source: str, changes: Mapping[str, str]) -> DataConfig:
    """How another text is read: its rows are cut as in training; what its file looks like is its own affair."""
    fresh = DataConfig(source=source, windows=own.windows, document=own.document, seed=own.seed + 1, size=1000)
    return Config(data=fresh).with_changes(changes).data


def _training_text(folder: Path, config: Config) -> TokenStore | None:
    """The run's training part, for baselines and copy meter; None where it was left behind."""
    try:
        return encoded_text(open_run(folder), config, lambda text: None).train
    except GlassError:
        return None
