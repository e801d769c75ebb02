"""The history of a run from all its snapshots: how the roles of its heads grew, and when each head was born."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from glassformer.base.errors import GlassError, nearest
from glassformer.inspection.replay.snapshot import (
    Flags,
    Numbers,
    Snapshot,
    SnapshotLabels,
    read_snapshot,
    snapshot_files,
)
from glassformer.runs.folder import Run

IN_A_ROW = 3
"""Snapshots that a head must show a role in before it counts as born: one alone may be chance."""


@dataclass(frozen=True)
class Birth:
    """The step at which a head took up a role.

    Attributes:
        head: its name.
        role: which.
        step: of the first of the snapshots in a row.
        loss: mean validation loss there, in nats.
        score: of the head there.
        last_score: of the head in the last snapshot: it may have lost the role.
    """

    head: str
    role: str
    step: int
    loss: float
    score: float
    last_score: float


@dataclass(frozen=True, eq=False)
class History:
    """Snapshots in order of their steps, at least one."""

    snapshots: tuple[Snapshot, ...]

    @property
    def labels(self) -> SnapshotLabels:
        """Return the labels, which are the same for all snapshots."""
        return self.snapshots[0].labels

    @property
    def steps(self) -> list[int]:
        """Return the steps of all snapshots."""
        return [snapshot.step for snapshot in self.snapshots]

    @cached_property
    def losses(self) -> list[float]:
        """Mean validation loss of each snapshot, in nats."""
        return [snapshot.loss for snapshot in self.snapshots]

    @cached_property
    def scores(self) -> Numbers:
        """Role scores of all heads, (snapshots, heads, R); NaN where a role is not possible."""
        return np.stack([snapshot.scores for snapshot in self.snapshots])

    @cached_property
    def reached(self) -> Flags:
        """True where a score is high enough for its role, (snapshots, heads, R)."""
        return np.stack([snapshot.reached for snapshot in self.snapshots])

    def births(self, role: str | None = None, only: str | None = None) -> list[Birth]:
        """List the births in one role or in any, of one head or of all, the earliest first."""
        found = []
        for column, name in enumerate(self.labels.roles):
            for row, head in enumerate(self.labels.heads):
                at = first_in_a_row(self.reached[:, row, column])
                if at is not None and role in (None, name) and only in (None, head):
                    here, last = (float(self.scores[i, row, column]) for i in (at, -1))
                    found.append(Birth(head, name, self.steps[at], self.losses[at], here, last))
        return sorted(found, key=lambda birth: (birth.step, self.labels.heads.index(birth.head), birth.role))

    def curve(self, head: str, role: str) -> Numbers:
        """(snapshots,) how a head's score in a role grew; NaN where the role is not possible."""
        curve: Numbers = self.scores[:, self.labels.heads.index(head), self.labels.roles.index(role)]
        return curve

    def chosen(self, head: str | None, role: str | None) -> tuple[str, str]:
        """Return the head and role of one curve; open ones follow from births and the scores of the last snapshot."""
        if head is None and role is None:
            births = self.births()
            head = births[0].head if births else self.labels.heads[0]
        head = self._best_head(role) if head is None and role is not None else head
        assert head is not None
        return head, self._best_role(head) if role is None else role

    def _best_head(self, role: str) -> str:
        last = np.nan_to_num(self.scores[-1, :, self.labels.roles.index(role)], nan=-np.inf)  # (heads,)
        return self.labels.heads[int(last.argmax())]

    def _best_role(self, head: str) -> str:
        row = self.labels.heads.index(head)
        last = (
            np.nan_to_num(self.scores[-1, row], nan=-np.inf) + 10 * self.reached[-1, row]
        )  # (R,) an reached one before all others
        return self.labels.roles[int(last.argmax())]

    def checked_role(self, name: str) -> str:
        """The role, if it was looked for.

        Raises:
            GlassError: it was not; the nearest one is named.
        """
        roles = {role.replace("_", " "): role for role in self.labels.roles}
        plain = name.replace("_", " ")
        if plain not in roles:
            raise GlassError(f"these snapshots have no role {name!r}", nearest(plain, roles))
        return roles[plain]

    def checked_head(self, name: str) -> str:
        """The head, if there is one of that name.

        Raises:
            GlassError: there is none.
        """
        if name not in self.labels.heads:
            raise GlassError(f"there is no head {name!r} in this model", nearest(name, self.labels.heads))
        return name

    def facts(self, role: str | None = None, only: str | None = None) -> dict[str, Any]:
        """Return births and all curves as JSON; of one role or of all, of one head or of all."""
        roles = [each for each in self.labels.roles if role in (None, each)]
        return {
            "steps": self.steps,
            "losses": self.losses,
            "births": [asdict(birth) for birth in self.births(role, only)],
            "repeated_losses": [_halves(snapshot) for snapshot in self.snapshots],
            "scores": {head: dict(self._curves(head, roles)) for head in self.labels.heads if only in (None, head)},
            "samples": [snapshot.sample for snapshot in self.snapshots],
        }

    def _curves(self, head: str, roles: list[str]) -> Iterator[tuple[str, list[float]]]:
        for role in roles:
            curve = self.curve(head, role)
            if not np.isnan(curve).any():
                yield role, [float(value) for value in curve]


def _halves(snapshot: Snapshot) -> list[float] | None:
    """Mean loss on repeated random tokens in the first copy and in the later ones; None where there are none.

    The first token of the second copy belongs to neither: nothing tells that a copy begins.
    """
    from glassformer.inspection.heads.probes import COPIES

    by_place = snapshot.repeated.mean(axis=0) if snapshot.repeated.size else None  # (T,)
    if by_place is None:
        return None
    copy = len(by_place) // COPIES
    return [float(by_place[:copy].mean()), float(by_place[copy + 1 :].mean())]


def first_in_a_row(flags: Flags) -> int | None:
    """The place of the first of `IN_A_ROW` flags (n,) that are all set."""
    for at in range(len(flags) - IN_A_ROW + 1):
        if flags[at : at + IN_A_ROW].all():
            return at
    return None


def read_history(run: Run) -> History:
    """Read all snapshots of a run.

    Raises:
        GlassError: it has none, one is damaged, or they are of different texts or heads.
    """
    files = snapshot_files(run.snapshots)
    if not files:
        raise GlassError(
            f"{run.folder} has no snapshots: it was trained with train.snapshots = {run.config().train.snapshots}",
            "Train again with --train.snapshots 32 and another --out: recording does not change what is learnt.",
        )
    history = History(tuple(read_snapshot(path) for path in files.values()))
    for snapshot, path in zip(history.snapshots, files.values(), strict=True):
        if snapshot.labels != history.labels:
            raise GlassError(
                f"{path} is of other heads or texts than {next(iter(files.values()))}",
                "Delete the ones that are wrong.",
            )
    return history
