"""`glass evaluate RUN --ablate …`: the loss of a run on its own validation part, with parts of it switched off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from glassformer.base.wording import counted
from glassformer.inspection.ablation import INSTEADS, Ablation, AblationLoss, ablation_loss, checked, switched
from glassformer.model.precision import choose_precision
from glassformer.runs.folder import Folder, open_run
from glassformer.runs.run_text import encoded_text
from glassformer.tasks import AnyTextModel
from glassformer.tasks.make import make_task
from glassformer.tasks.task import Task
from glassformer.text.batches import Batch


@dataclass(frozen=True)
class HeldOut:
    """Rows of a run's validation part.

    Attributes:
        task: makes batches of them.
        rows: all, or evenly drawn ones.
        device, dtype: where the model is, and the precision of its products.
    """

    task: Task
    rows: Sequence[Any]
    device: torch.device
    dtype: torch.dtype


def held_out(
    folder: Folder,
    model: AnyTextModel,
    tokens: int | None = None,
    precision: str | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> HeldOut:
    """The validation part of a run.

    Args:
        folder: of the run.
        model: what it holds.
        tokens: about so many targets, evenly drawn; None: all.
        precision: of matrix products; None: as in training.
        note: is told what a person should know.

    Raises:
        GlassError: the text that the run learnt from is not at hand.
    """
    task = make_task(model.config, encoded_text(open_run(folder), model.config, note))
    device = model.model.embedding.tokens.weight.device
    return HeldOut(
        task, task.held_out(tokens), device, choose_precision(precision or model.config.train.precision, device)
    )


@dataclass(frozen=True)
class AblationReport:
    """One evaluation.

    Attributes:
        text: what was measured on, in words.
        unit: what a loss is the mean over: "token", "hidden token" or "example".
        unknown_share: the share of the validation tokens that are the unknown token.
        ablation: what was off.
        loss: with everything on, and with that off.
    """

    text: str
    unit: str
    unknown_share: float
    ablation: Ablation
    loss: AblationLoss

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON: `loss` and what belongs to it are with parts off."""
        return {
            "text": self.text,
            **self.loss.off.facts(None, self.unknown_share),
            "whole_loss": self.loss.whole.loss,
            "change": self.loss.change,
            "off": list(self.ablation.off),
            "instead": self.ablation.instead,
        }

    def table(self) -> str:
        """Format the report as text."""
        loss = self.loss
        off = ", ".join(self.ablation.off) or "anything off"
        lines = [
            f"on {self.text}: {counted(loss.whole.tokens, self.unit + 's')}",
            f"loss {loss.whole.loss:.4f} {loss.whole.margin} nats per {self.unit} (95 %) with everything on",
            f"loss {loss.off.loss:.4f} {loss.off.margin} nats per {self.unit} without {off}",
            f"change {loss.change:+.4f}; {INSTEADS[self.ablation.instead]}",
        ]
        return "\n".join(lines)


def measure_without(
    model: AnyTextModel, data: HeldOut, off: Sequence[str], instead: str = "zero", tokens: int | None = None
) -> AblationReport:
    """Measure a run with parts off.

    Args:
        model: the run.
        data: what to measure on.
        off: names of parts, see `ablation.switches`.
        instead: what stands in their place: one of `INSTEADS`.
        tokens: how many were asked for, to be said.

    Raises:
        GlassError: a part cannot be switched off so.
    """
    found = switched(model.model, checked(model.model, off, instead), data.rows, Batch.from_rows, data.device)
    loss = ablation_loss(found, data.rows, Batch.from_rows, data.device, data.dtype)
    what = "the validation part" if tokens is None else "evenly drawn rows of the validation part"
    return AblationReport(what, data.task.unit, data.task.unknown_share, found.ablation, loss)
