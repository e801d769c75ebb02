"""Remove attention heads that a run does not need, and get a smaller run.

  glass prune runs/book --effects zero
  glass prune runs/book --curve --plot curve.png
  glass prune runs/book --out runs/book-half --fraction 0.5
  glass prune runs/book --out runs/book-small --max-loss 1.6 --by ablation
  glass prune runs/book --out runs/book-gates --l0 0.01 --steps 500

Heads go in steps of --step, least important first; what is left is looked at again before each step. Training rows
decide, validation rows measure. Importance is the mean over rows of |dL / d gate| (Michel et al. 2019); --by ablation
takes the rise of the loss when a head is zeroed. --l0 trains on with a gate on every head, and a price on open ones
(Voita et al. 2019): the mean over attentions of the expected number of open heads, times LAMBDA, is added to the loss.

NEWRUN is a run like any other, with fewer weights. To train it further: glass train --resume --out NEWRUN --steps N,
where N counts from the beginning of RUN; what the optimizer knows of the weights that stay is kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import GlassError

if TYPE_CHECKING:
    from glassformer.inspection.pruning.l0 import L0
    from glassformer.inspection.pruning.prune import PruningReport

ORDERS = ("importance", "ablation", "random", "reverse")
KINDS = ("zero", "mean", "resample")
GATES = ("steps", "rate", "gate_rate", "gates_alone")
"""Options that belong to `--l0`."""
CHOICES = {"order": "by", "step": "step", "random_orders": "random_orders", "seed": "seed"}
"""Fields of a request that have defaults, and their options."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass prune`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder; it is left as it is")
    parser.add_argument("--out", type=Path, metavar="NEWRUN", help="where to put what is left")
    parser.add_argument("--heads", type=int, metavar="N", help="remove so many heads")
    parser.add_argument("--fraction", type=float, metavar="F", help="remove this share of all heads")
    parser.add_argument("--max-loss", type=float, metavar="X", help="remove heads while the loss is X at most")
    parser.add_argument("--by", choices=ORDERS, help="which go first (default: importance)")
    parser.add_argument("--step", type=float, metavar="F", help="share that goes at a time (default: 0.1)")
    parser.add_argument(
        "--per-layer", action="store_true", help="divide importance by the l2 norm of that of its attention"
    )
    parser.add_argument("--curve", action="store_true", help="the loss down to no heads, beside other orders")
    parser.add_argument(
        "--random-orders", type=int, metavar="N", help="of --curve: so many random orders (default: 10)"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw --curve: .png or .svg")
    parser.add_argument("--effects", choices=KINDS, help="leave out each head: nothing, its mean, or another row's")
    parser.add_argument("--l0", type=float, metavar="LAMBDA", help="learn gates; the price of open heads, in nats")
    parser.add_argument("--steps", type=int, metavar="N", help="of --l0: steps of training (default: 500)")
    parser.add_argument(
        "--rate", type=float, metavar="F", help="of --l0: share of the run's peak learning rates (default: 0.1)"
    )
    parser.add_argument("--gate-rate", type=float, metavar="R", help="of --l0: learning rate of gates (default: 0.05)")
    parser.add_argument("--gates-alone", action="store_true", default=None, help="of --l0: weights stay as they are")
    parser.add_argument(
        "--tokens", type=int, default=20_000, metavar="N", help="to decide on, and to measure on (default: 20000)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of random orders (default: 0)")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="which weights (default: best)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")


def run(arguments: argparse.Namespace) -> int:
    """Prune, and print."""
    from glassformer.inspection.plots import draw_curve, refuse_no_picture, save
    from glassformer.inspection.pruning.prune import PruningRequest, prune_run

    if arguments.plot is not None:
        if not arguments.curve:
            raise GlassError(f"--plot {arguments.plot} without --curve: there is nothing to draw", "Add --curve.")
        refuse_no_picture(arguments.plot, "--plot")
    _refuse_idle(arguments)
    chosen = {field: value for field, name in CHOICES.items() if (value := getattr(arguments, name)) is not None}
    report = prune_run(
        PruningRequest(
            folder=arguments.run, out=arguments.out, heads=arguments.heads, fraction=arguments.fraction,
            max_loss=arguments.max_loss, per_layer=arguments.per_layer, curve=arguments.curve,
            effects=arguments.effects, l0=_gates(arguments), tokens=arguments.tokens, **chosen,
            which=arguments.checkpoint, device=arguments.device, note=lambda text: print(text, file=sys.stderr),
        )
    )  # fmt: skip
    if arguments.plot is not None:
        curves = {
            name: [[(point.removed, point.loss) for point in points] for points in several]
            for name, several in report.curves.items()
        }
        save(draw_curve(curves, "heads removed", "validation loss (nats)"), arguments.plot)
    print(json.dumps(report.facts()) if arguments.json else "\n".join(_lines(report)))
    return 0


def _refuse_idle(arguments: argparse.Namespace) -> None:
    """Refuse options that would decide nothing."""
    ordered = arguments.curve or (arguments.out is not None and arguments.l0 is None)
    random = arguments.curve or (ordered and arguments.by == "random")
    for name, used, user in (
        ("by", ordered, "for --curve, or for --out without --l0"),
        ("step", ordered, "for --curve, or for --out without --l0"),
        ("random_orders", arguments.curve, "for --curve"),
        ("seed", random, "for --curve or --by random"),
    ):
        if getattr(arguments, name) is not None and not used:
            option = f"--{name.replace('_', '-')}"
            raise GlassError(f"{option} was given, and decides nothing here: it is {user}", f"Leave {option} out.")


def _gates(arguments: argparse.Namespace) -> L0 | None:
    """How gates are learnt; what is of them alone is refused without them."""
    from glassformer.inspection.pruning.l0 import L0

    given = {name: value for name in GATES if (value := getattr(arguments, name)) is not None}
    if arguments.l0 is not None:
        return L0(arguments.l0, **given)
    if given:
        name = next(iter(given)).replace("_", "-")
        raise GlassError(f"--{name} was given without --l0", f"Add --l0 LAMBDA, or leave --{name} out.")
    return None


def _lines(report: PruningReport) -> Iterator[str]:
    from glassformer.app.cli.uses import use_of
    from glassformer.base.wording import counted

    yield f"{report.run}: validation loss {report.loss:.4f} nats on {report.rows:,} targets"
    if report.effects:
        yield from ("", *_effect_lines(report))
    if report.curves:
        yield from ("", *_curve_lines(report))
    if report.new is not None and report.parameters is not None and report.new_loss is not None:
        before, after = report.parameters
        yield ""
        yield f"removed {counted(len(report.removed), 'heads')}: {', '.join(report.removed) or 'none'}"
        yield f"validation loss {report.new_loss:.4f}, {report.new_loss - report.loss:+.4f}"
        yield f"{after:,} parameters instead of {before:,}"
        yield f"{report.new} is ready: {use_of(report.new, report.task)}"


def _effect_lines(report: PruningReport) -> Iterator[str]:
    from glassformer.inspection.ablation import ABLATION_KINDS, SELF_REPAIR

    assert report.ablation is not None
    width = max(len(each.name) for each in report.effects)
    yield f"{'head':<{width}}  {'importance':>10}  {report.ablation + ' effect':>15}  {'direct effect':>13}"
    for each in report.effects:
        direct = "" if each.direct is None else f"{each.direct:+.5f}"
        yield f"{each.name:<{width}}  {each.importance:>10.5f}  {each.ablation:>+15.5f}  {direct:>13}".rstrip()
    yield ""
    yield f"{report.ablation} effect: the loss without the head minus the loss; {ABLATION_KINDS[report.ablation]}"
    yield "direct effect: the same when only its own path to the logits is cut; empty where there is no such path"
    yield SELF_REPAIR


def _curve_lines(report: PruningReport) -> Iterator[str]:
    names = list(report.curves)
    yield f"{'heads removed':<16}" + "".join(f"{name:>12}" for name in names)
    for index, point in enumerate(report.curves[names[0]][0]):
        losses = [[points[index].loss for points in report.curves[name]] for name in names]
        yield f"{point.removed:<16}" + "".join(f"{sum(each) / len(each):>12.4f}" for each in losses)
    yield f"{'mean loss':<16}" + "".join(f"{value:>12.4f}" for value in report.areas().values())
    yield f"random: the mean of {len(report.curves.get('random', []))} orders"
    yield ""
    for site, value in sorted(report.attentions.items(), key=lambda item: -item[1]):
        yield f"without all heads of {site}: {value:+.4f}"
