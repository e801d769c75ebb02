"""Text tables of a history."""

from __future__ import annotations

import math
from collections.abc import Iterator

from glassformer.base.wording import counted
from glassformer.inspection.heads.report import display_name
from glassformer.inspection.replay.history import IN_A_ROW, History

BAR = 20
"""Length of the bar for a score of 1, in characters."""


def birth_lines(history: History, role: str | None = None, head: str | None = None) -> Iterator[str]:
    """Yield a table with step, loss and scores of each birth, and a summary of the snapshots."""
    steps = history.steps
    losses = history.losses
    births = history.births(role, head)
    if births:
        heads = max(len("head"), *(len(birth.head) for birth in births))
        roles = max(len("role"), *(len(birth.role) for birth in births))
        yield f"{'head':<{heads}}  {'role':<{roles}}  {'born at':>8}  {'loss':>6}  {'score':>5}  {'at the end':>10}"
        for birth in births:
            yield (
                f"{birth.head:<{heads}}  {display_name(birth.role):<{roles}}  {birth.step:>8,}  {birth.loss:>6.3f}  "
                f"{birth.score:>5.2f}  {birth.last_score:>10.2f}"
            )
    else:
        subject = "no head had" if head is None else f"{head} did not have"
        role_text = "any role" if role is None else f"the role {display_name(role)!r}"
        yield f"{subject} {role_text} in {IN_A_ROW} consecutive snapshots"
    yield ""
    yield (
        f"{counted(len(steps), 'snapshots')}; loss {losses[0]:.3f} at step {steps[0]:,}, "
        f"{losses[-1]:.3f} at step {steps[-1]:,}"
    )


def curve_lines(history: History, head: str, role: str) -> Iterator[str]:
    """Yield a table of the snapshots with the loss and with the score of one head in one role, also as a bar."""
    yield f"{display_name(role)}, {head}"
    yield f"{'step':>8}  {'loss':>6}  {'score':>5}"
    scores = history.curve(head, role)
    born = next((birth.step for birth in history.births(role, head)), None)
    for step, loss, score in zip(history.steps, history.losses, map(float, scores), strict=True):
        clipped = 0.0 if math.isnan(score) else min(max(score, 0.0), 1.0)
        mark = "  born" if step == born else ""
        yield f"{step:>8,}  {loss:>6.3f}  {score:>5.2f}  {'#' * round(BAR * clipped)}{mark}".rstrip()
