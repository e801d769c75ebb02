"""Remove the least important attention heads of a run, and write the smaller run.

  glass prune runs/book --effects zero
  glass prune runs/book --curve --plot curve.png
  glass prune runs/book --out runs/book-half --fraction 0.5
  glass prune runs/book --out runs/book-small --max-loss 1.6 --by ablation
  glass prune runs/book --out runs/book-gates --l0 0.01 --steps 500

Heads are removed in steps of --step, least important first (--by names other orders); importance is recomputed before
each step, on training rows. Losses, and the importance that --effects prints, are measured on validation rows.
Importance is |dL / d gate| of each row, summed over the rows and divided by the number of targets (Michel et al.
2019); with --by ablation it is the increase of the loss when a head is zeroed. --l0 continues training with a gate on
each head and a penalty on open gates (Voita et al. 2019): LAMBDA times the expected number of open heads, averaged over
the attention layers, is added to the loss.

NEWRUN is an ordinary run with fewer weights. To train it further: glass train --resume --out NEWRUN --steps N, where N
counts from the beginning of RUN; the optimizer state of the remaining weights is kept.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.base.errors import GlassError
from glassformer.base.files import output_path
from glassformer.base.report import emit

if TYPE_CHECKING:
    from glassformer.inspection.pruning.l0 import L0

ORDERS = ("importance", "ablation", "random", "reverse")
KINDS = ("zero", "mean", "resample")
GATES = ("steps", "rate", "gate_rate", "gates_alone")
"""Options that require `--l0`."""
CHOICES = {"order": "by", "step": "step", "random_orders": "random_orders", "seed": "seed"}
"""Field of `PruningRequest` with a default -> name of its option."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass prune`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder; it is not changed")
    parser.add_argument("--out", type=output_path, metavar="NEWRUN", help="write the pruned run to this folder")
    parser.add_argument("--heads", type=int, metavar="N", help="remove N heads")
    parser.add_argument("--fraction", type=float, metavar="F", help="remove this fraction of all heads")
    parser.add_argument("--max-loss", type=float, metavar="X", help="remove heads while the loss is at most X")
    parser.add_argument("--by", choices=ORDERS, help="order in which to remove heads (default: importance)")
    parser.add_argument(
        "--step", type=float, metavar="F", help="fraction of the heads to remove in each step (default: 0.1)"
    )
    parser.add_argument(
        "--per-layer",
        action="store_true",
        help="divide the importance of a head by the l2 norm over the heads of its attention layer",
    )
    parser.add_argument(
        "--curve",
        action="store_true",
        help="measure the loss until no head is left, and compare with other orders of removal",
    )
    parser.add_argument(
        "--random-orders", type=int, metavar="N", help="with --curve: number of random orders (default: 10)"
    )
    parser.add_argument("--plot", type=output_path, metavar="FILE", help="draw the result of --curve: .png or .svg")
    parser.add_argument(
        "--effects",
        choices=KINDS,
        help="replace each head in turn by zero, its mean output or its output on another row; print the loss changes",
    )
    parser.add_argument(
        "--l0", type=float, metavar="LAMBDA", help="train a gate on each head, with this penalty in nats per open head"
    )
    parser.add_argument("--steps", type=int, metavar="N", help="with --l0: number of training steps (default: 500)")
    parser.add_argument(
        "--rate", type=float, metavar="F", help="with --l0: fraction of the run's peak learning rates (default: 0.1)"
    )
    parser.add_argument(
        "--gate-rate", type=float, metavar="R", help="with --l0: learning rate of the gates (default: 0.05)"
    )
    parser.add_argument("--gates-alone", action="store_true", default=None, help="with --l0: train only the gates")
    parser.add_argument(
        "--tokens",
        type=int,
        default=20_000,
        metavar="N",
        help="approximate number of tokens in the training rows, and of targets in the validation rows, that are used "
        "(default: 20000)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="seed of random orders (default: 0)")
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="checkpoint to load (default: best)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")


def run(arguments: argparse.Namespace) -> int:
    """Prune the heads, print the report, and draw the curves with `--plot`."""
    from glassformer.inspection.plots import draw_curve, refuse_no_picture, save
    from glassformer.inspection.pruning.prune import PruningRequest, prune_run

    if arguments.plot is not None:
        if not arguments.curve:
            raise GlassError(
                f"--plot {arguments.plot} was given without --curve: there is nothing to draw", "Add --curve."
            )
        refuse_no_picture(arguments.plot, "--plot")
    _refuse_unused(arguments)
    options = {field: value for field, name in CHOICES.items() if (value := getattr(arguments, name)) is not None}
    report = prune_run(
        PruningRequest(
            folder=arguments.run,
            out=arguments.out,
            heads=arguments.heads,
            fraction=arguments.fraction,
            max_loss=arguments.max_loss,
            per_layer=arguments.per_layer,
            curve=arguments.curve,
            effects=arguments.effects,
            l0=_l0_settings(arguments),
            tokens=arguments.tokens,
            **options,
            which=arguments.checkpoint,
            device=arguments.device,
            note=lambda text: print(text, file=sys.stderr),
        )
    )
    if arguments.plot is not None:
        curves = {
            name: [[(point.removed, point.loss) for point in points] for points in point_lists]
            for name, point_lists in report.curves.items()
        }
        save(draw_curve(curves, "heads removed", "validation loss (nats)"), arguments.plot)
    emit(report, arguments.json)
    return 0


def _refuse_unused(arguments: argparse.Namespace) -> None:
    """Raise a `GlassError` if an option was given that has no effect without another option."""
    uses_order = arguments.curve or (arguments.out is not None and arguments.l0 is None)
    uses_seed = arguments.curve or (uses_order and arguments.by == "random")
    for name, has_effect, purpose in (
        ("by", uses_order, "for --curve, or for --out without --l0"),
        ("step", uses_order, "for --curve, or for --out without --l0"),
        ("random_orders", arguments.curve, "for --curve"),
        ("seed", uses_seed, "for --curve or --by random"),
    ):
        if getattr(arguments, name) is not None and not has_effect:
            option = f"--{name.replace('_', '-')}"
            raise GlassError(f"{option} has no effect here: it is {purpose}", f"Remove {option}.")


def _l0_settings(arguments: argparse.Namespace) -> L0 | None:
    """Return the settings of `--l0`, or None without it.

    Raises:
        GlassError: an option of `GATES` was given without `--l0`.
    """
    from glassformer.inspection.pruning.l0 import L0

    gate_options = {name: value for name in GATES if (value := getattr(arguments, name)) is not None}
    if arguments.l0 is not None:
        return L0(arguments.l0, **gate_options)
    if gate_options:
        name = next(iter(gate_options)).replace("_", "-")
        raise GlassError(f"--{name} was given without --l0", f"Add --l0 LAMBDA, or remove --{name}.")
    return None
