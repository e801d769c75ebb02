"""`glass prune RUN`: measure the heads of a run, compute pruning curves, and write a pruned run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from glassformer.base.config import command_for
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted, span
from glassformer.inspection.ablation import ABLATION_KINDS, SELF_REPAIR, AblationKind, ablation_effects
from glassformer.inspection.pruning.direct_effects import direct_effects
from glassformer.inspection.pruning.importance import head_importance
from glassformer.inspection.pruning.l0 import L0
from glassformer.inspection.pruning.new_run import (
    Trained,
    open_for_pruning,
    prune_by_gates,
    prune_model,
    read_training_state,
    write_pruned,
)
from glassformer.inspection.pruning.order import Order, Point, area, attention_effects, choose_by, curve, prune_steps
from glassformer.inspection.sites import heads
from glassformer.runs.folder import Which, refuse_existing
from glassformer.runs.opening import OpenedRun
from glassformer.tasks.task_rows import TaskRows
from glassformer.training.validation import loss_on_rows


@dataclass(frozen=True)
class PruningRequest:
    """Request to measure or to prune the heads of a run.

    Attributes:
        folder: folder of the run.
        out: folder of the new run; None: write no run.
        heads, fraction, max_loss: amount to prune, given as a number of heads, a fraction of all heads (at least one
            head), or a maximum loss.
        order: order in which heads are removed.
        step: fraction of all heads to remove at a time; at least one head is removed.
        per_layer: whether to normalize importance within each attention layer, as Michel et al. 2019 do.
        curve: whether to measure the whole curve for `order`, the reverse order and random orders.
        random_orders: number of random orders.
        effects: kind of ablation with which to measure the effect of each head; None: no measurement.
        l0: settings for learning gates instead of using an order.
        tokens: approximate number of training tokens for choosing heads, and of validation tokens for measuring.
        seed: seed of random orders.
        which: checkpoint to use, "best" or "last".
        device: device of the model.
        note: function that receives messages for the user.
    """

    folder: Path
    out: Path | None = None
    heads: int | None = None
    fraction: float | None = None
    max_loss: float | None = None
    order: Order = "importance"
    step: float = 0.1
    per_layer: bool = False
    curve: bool = False
    random_orders: int = 10
    effects: AblationKind | None = None
    l0: L0 | None = None
    tokens: int = 20_000
    seed: int = 0
    which: Which = "best"
    device: str = "auto"
    note: Callable[[str], None] = field(default=lambda text: None)


@dataclass(frozen=True)
class Effect:
    """Effect of one head on the loss, in nats per target.

    Attributes:
        name: name of the head.
        importance: I_h of Michel et al. 2019 (see `head_importance`).
        ablation: loss without the head minus loss.
        direct: loss without the head's direct path to the logits minus loss; None if it is not defined (see
            `no_direct_effect`).
    """

    name: str
    importance: float
    ablation: float
    direct: float | None


@dataclass
class PruningReport:
    """Measurements of a run's heads and, if `prune_run` wrote a pruned run, of that run.

    Attributes:
        run: folder of the run.
        task: task of the run.
        rows: number of targets that losses were measured on.
        loss: loss with all heads, on rows of the validation split.
        ablation: kind of ablation with which effects were measured; None if they were not measured.
        effects: effect of each head.
        points: pruning curve from the full model to the new run; empty without a new run or with learned gates.
        curves: pruning curves by order; "random" has several curves.
        attentions: change of the loss when all heads of an attention layer are removed, by attention site; empty
            without curves.
        new_run: folder of the new run; None if no run was written.
        removed: names of the heads that the new run no longer has.
        new_loss: loss of the new run; None if no run was written.
        parameters: numbers of parameters of the run and of the new run; None if no run was written.
    """

    run: Path
    task: str
    rows: int
    loss: float
    ablation: AblationKind | None = None
    effects: list[Effect] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    curves: dict[str, list[list[Point]]] = field(default_factory=dict)
    attentions: dict[str, float] = field(default_factory=dict)
    new_run: Path | None = None
    removed: tuple[str, ...] = ()
    new_loss: float | None = None
    parameters: tuple[int, int] | None = None

    def areas(self) -> dict[str, float]:
        """Return the mean loss along the curve of each order, averaged if an order has several curves."""
        return {name: math.fsum(map(area, curves)) / len(curves) for name, curves in self.curves.items()}

    def facts(self) -> dict[str, Any]:
        """Return the report as a JSON-serializable dict."""
        return {
            "run": str(self.run),
            "loss": self.loss,
            "tokens": self.rows,
            "ablation": self.ablation,
            "effects": [asdict(effect) for effect in self.effects],
            "note": SELF_REPAIR if self.effects else None,
            "points": [asdict(point) for point in self.points],
            "curves": {name: [[asdict(p) for p in points] for points in each] for name, each in self.curves.items()},
            "areas": self.areas(),
            "attentions": self.attentions,
            "out": self.new_run and str(self.new_run),
            "removed": list(self.removed),
            "new_loss": self.new_loss,
            "parameters": self.parameters and dict(zip(("before", "after"), self.parameters, strict=True)),
        }

    def text(self) -> str:
        """Format the report as text."""
        return "\n".join(_lines(self))


def _lines(report: PruningReport) -> Iterator[str]:
    yield f"{report.run}: validation loss {report.loss:.4f} nats on {report.rows:,} targets"
    if report.effects:
        yield from ("", *_effect_lines(report))
    if report.curves:
        yield from ("", *_curve_lines(report))
    if report.new_run is not None and report.parameters is not None and report.new_loss is not None:
        before, after = report.parameters
        yield ""
        yield f"removed {counted(len(report.removed), 'heads')}: {', '.join(report.removed) or 'none'}"
        yield f"validation loss {report.new_loss:.4f}, {report.new_loss - report.loss:+.4f}"
        yield f"{after:,} parameters instead of {before:,}"
        yield f"{report.new_run} is ready: {command_for(report.new_run, report.task)}"


def _effect_lines(report: PruningReport) -> Iterator[str]:
    assert report.ablation is not None
    width = max(len(effect.name) for effect in report.effects)
    yield f"{'head':<{width}}  {'importance':>10}  {report.ablation + ' effect':>15}  {'direct effect':>13}"
    for effect in report.effects:
        direct = "" if effect.direct is None else f"{effect.direct:+.5f}"
        yield f"{effect.name:<{width}}  {effect.importance:>10.5f}  {effect.ablation:>+15.5f}  {direct:>13}".rstrip()
    yield ""
    yield f"{report.ablation} effect: loss without the head minus loss; the head is {ABLATION_KINDS[report.ablation]}"
    yield "direct effect: loss without the head's direct path to the logits minus loss; empty if it is not defined"
    yield SELF_REPAIR


def _curve_lines(report: PruningReport) -> Iterator[str]:
    names = list(report.curves)
    yield f"{'heads removed':<16}" + "".join(f"{name:>12}" for name in names)
    for index, point in enumerate(report.curves[names[0]][0]):
        losses = [[points[index].loss for points in report.curves[name]] for name in names]
        yield f"{point.removed:<16}" + "".join(
            f"{sum(order_losses) / len(order_losses):>12.4f}" for order_losses in losses
        )
    yield f"{'mean loss':<16}" + "".join(f"{value:>12.4f}" for value in report.areas().values())
    yield f"random: the mean of {counted(len(report.curves.get('random', [])), 'orders')}"
    yield ""
    for site, value in sorted(report.attentions.items(), key=lambda item: -item[1]):
        yield f"change of the loss without any head of {site}: {value:+.4f}"


def prune_run(request: PruningRequest) -> PruningReport:
    """Measure the heads of a run and, if `request.out` is given, write a pruned run.

    The request is checked before any measurement. If writing fails, no incomplete run is left behind.

    Raises:
        GlassError: the request is incomplete or contradictory, `out` is not empty, the run cannot be pruned, or the
            loss would exceed the limit.
    """
    check_request(request)
    if request.out is not None:
        refuse_existing(request.out)
    opened = open_for_pruning(request.folder, request.which, request.device, request.note)
    trained = None
    if request.out is not None:
        trained = read_training_state(opened, request.which)
        opened = trained.opened
    total = len(heads(opened.model))
    max_heads = _max_heads(request, total)
    evaluation_rows = opened.held_out(request.tokens, "fp32")
    selection_rows = _first_training_rows(opened, request.tokens)
    estimate = loss_on_rows(opened.model, evaluation_rows)
    report = PruningReport(opened.folder, opened.config.train.task, estimate.tokens, estimate.loss)
    if request.effects is not None:
        report.ablation = request.effects
        report.effects = list(_effects(opened, evaluation_rows, request.effects))
    if request.curve:
        _measure_curves(report, request, opened, selection_rows, evaluation_rows)
    if trained is not None:
        _write_pruned_run(report, request, trained, selection_rows, evaluation_rows, max_heads)
    return report


def check_request(request: PruningRequest) -> None:
    """Raise a `GlassError` if the request is incomplete or contradictory, or a number is out of range."""
    amounts = [request.heads, request.fraction, request.max_loss, request.l0]
    amount_count = sum(value is not None for value in amounts)
    if request.out is None and amount_count:
        raise GlassError("an amount to prune was given, but no --out", "Name the new run: --out NEWRUN.")
    if request.out is None and not request.curve and request.effects is None:
        raise GlassError("there is nothing to do", "Give --out NEWRUN, --curve or --effects.")
    if request.out is not None and amount_count != 1:
        problem = "no amount to prune was given" if not amount_count else f"{amount_count} amounts to prune were given"
        raise GlassError(problem, "Give one of --heads, --fraction, --max-loss and --l0.")
    by_importance = request.out is not None and request.l0 is None and request.order in ("importance", "reverse")
    if request.per_layer and not request.curve and not by_importance:
        raise GlassError(
            "--per-layer was given, but importance is not used",
            "Remove --per-layer, or give --curve, or --out with --by importance or reverse.",
        )
    for name, value in (("--fraction", request.fraction), ("--step", request.step)):
        if value is not None and not 0 < value <= 1:
            raise GlassError(f"{name} {value:g} is out of range", "Give a fraction above 0 and at most 1.")
    numbers = [
        ("--tokens", request.tokens, 1),
        ("--random-orders", request.random_orders, 1),
        ("--seed", request.seed, 0),
    ]
    numbers += [("--steps", request.l0.steps, 1)] if request.l0 else []
    for name, number, minimum in numbers:
        if number < minimum:
            raise GlassError(f"{name} {number} is too small", f"Give {minimum} or more.")
    if request.max_loss is not None and not math.isfinite(request.max_loss):
        raise GlassError(f"--max-loss {request.max_loss:g} is not finite", "Give a finite loss in nats.")
    if request.l0:
        rates = {"--l0": request.l0.penalty, "--rate": request.l0.rate, "--gate-rate": request.l0.gate_rate}
        for name, rate in rates.items():
            if not 0 < rate < math.inf:
                raise GlassError(f"{name} {rate:g} is out of range", "Give a number above 0, such as 0.1.")


def _first_training_rows(opened: OpenedRun, tokens: int) -> TaskRows:
    """Return the rows of the first training steps, at least `tokens` tokens in total, sorted by length."""
    rows: list[Any] = []
    step = 0
    while sum(map(len, rows)) < tokens:
        rows += opened.task.rows(step)
        step += 1
    return TaskRows(opened.task, sorted(rows, key=len), opened.device)


def _max_heads(request: PruningRequest, total: int) -> int:
    """Return the maximum number of heads to remove."""
    if total == 0:
        raise GlassError(f"{request.folder} has no heads left", "Give another run: this run has nothing to prune.")
    if request.heads is not None and not 1 <= request.heads <= total:
        raise GlassError(
            f"--heads = {request.heads}, but the model has {counted(total, 'heads')}", f"Give {span(1, total)}."
        )
    if request.fraction is not None:
        return max(1, round(request.fraction * total))
    return request.heads or total


def _step_size(request: PruningRequest, total: int) -> int:
    return max(1, round(request.step * total))


def _effects(opened: OpenedRun, evaluation_rows: TaskRows, kind: AblationKind) -> Iterator[Effect]:
    model = opened.model
    importance = head_importance(model, evaluation_rows)
    direct = direct_effects(model, evaluation_rows)
    for name, effect in ablation_effects(model, evaluation_rows, kind).items():
        yield Effect(name, importance[name], effect, direct.get(name))


def _measure_curves(
    report: PruningReport,
    request: PruningRequest,
    opened: OpenedRun,
    selection_rows: TaskRows,
    evaluation_rows: TaskRows,
) -> None:
    """Measure the curves of the requested order, the reverse order and random orders, all on the same rows.

    Also measure the change of the loss when all heads of an attention layer are removed.
    """
    step = _step_size(request, len(heads(opened.model)))
    orders: list[tuple[Order, int]] = [(request.order, request.seed)] if request.order != "random" else []
    orders += [("reverse", 0)] if request.order != "reverse" else []
    orders += [("random", request.seed + number) for number in range(request.random_orders)]
    for number, (order, seed) in enumerate(orders):
        request.note(f"curve {number + 1} of {len(orders)}: {order}")
        choose = choose_by(order, selection_rows, request.per_layer, seed)
        report.curves.setdefault(order, []).append(curve(opened.model, choose, evaluation_rows, step))
    report.attentions = attention_effects(opened.model, evaluation_rows)


def _write_pruned_run(
    report: PruningReport,
    request: PruningRequest,
    trained: Trained,
    selection_rows: TaskRows,
    evaluation_rows: TaskRows,
    max_heads: int,
) -> None:
    assert request.out is not None
    opened = trained.opened
    parameters_before = sum(parameter.numel() for parameter in opened.model.parameters())
    if request.l0 is not None:
        pruned_model = prune_by_gates(trained, request.l0, request.note)
        facts: dict[str, Any] = {"by": "l0", **asdict(request.l0)}
    else:
        pruned_model = prune_model(
            trained, _heads_by_order(report, request, opened, selection_rows, evaluation_rows, max_heads)
        )
        facts = {"by": request.order, "step": request.step, "per_layer": request.per_layer, "tokens": request.tokens}
    write_pruned(request.out, opened, pruned_model, facts)
    report.new_run = request.out
    report.removed = pruned_model.names
    report.new_loss = loss_on_rows(pruned_model.model, evaluation_rows).loss
    parameters_after = sum(parameter.numel() for parameter in pruned_model.model.parameters())
    report.parameters = (parameters_before, parameters_after)


def _heads_by_order(
    report: PruningReport,
    request: PruningRequest,
    opened: OpenedRun,
    selection_rows: TaskRows,
    evaluation_rows: TaskRows,
    max_heads: int,
) -> list[str]:
    """Return the heads to remove; with a limit on the loss, stop before the first step that exceeds it."""
    choose = choose_by(request.order, selection_rows, request.per_layer, request.seed)
    step = _step_size(request, len(heads(opened.model)))
    limit = request.max_loss
    for point, _ in prune_steps(opened.model, choose, evaluation_rows, step, max_heads):
        if limit is not None and point.loss > limit:
            if len(report.points) < 2:
                heads_left = f"without {counted(point.removed, 'heads')}" if point.removed else "with all heads"
                smaller_step = ", or a smaller --step" if point.removed > 1 else ""
                raise GlassError(
                    f"the loss is {point.loss:.4f} {heads_left}, above --max-loss = {limit:g}",
                    f"Give a higher --max-loss{smaller_step}.",
                )
            break
        report.points.append(point)
        request.note(f"{counted(point.removed, 'heads')} removed: loss {point.loss:.4f}")
    return [name for point in report.points for name in point.names]
