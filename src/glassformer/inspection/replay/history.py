"""History of a run's attention heads from its snapshots: role scores over training, and births of roles."""

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
"""Number of consecutive snapshots in which a head must have a role for its birth.

In a single snapshot, a head may have a role by chance.
"""


@dataclass(frozen=True)
class Birth:
    """Birth of a role: the beginning of the first `IN_A_ROW` consecutive snapshots in which a head has the role.

    Attributes:
        head: name of the head.
        role: name of the role.
        step: step of the first of these snapshots.
        loss: mean validation loss at that step, in nats per target.
        score: role score of the head at that step.
        last_score: role score of the head in the last snapshot; the head may have lost the role.
    """

    head: str
    role: str
    step: int
    loss: float
    score: float
    last_score: float


@dataclass(frozen=True, eq=False)
class History:
    """Snapshots of a run, at least one, in order of their steps."""

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
        """Whether each head has reached each role, (snapshots, heads, R); see `Snapshot.reached`."""
        return np.stack([snapshot.reached for snapshot in self.snapshots])

    def births(self, role: str | None = None, only: str | None = None) -> list[Birth]:
        """List the births of one role or all roles, in one head or all heads, the earliest first."""
        births = []
        for column, name in enumerate(self.labels.roles):
            for row, head in enumerate(self.labels.heads):
                index = first_in_a_row(self.reached[:, row, column])
                if index is not None and role in (None, name) and only in (None, head):
                    score, last_score = (float(self.scores[i, row, column]) for i in (index, -1))
                    births.append(Birth(head, name, self.steps[index], self.losses[index], score, last_score))
        return sorted(births, key=lambda birth: (birth.step, self.labels.heads.index(birth.head), birth.role))

    def curve(self, head: str, role: str) -> Numbers:
        """Return the score of a head in a role over all snapshots, (snapshots,); NaN if the role is not possible."""
        curve: Numbers = self.scores[:, self.labels.heads.index(head), self.labels.roles.index(role)]
        return curve

    def chosen(self, head: str | None, role: str | None) -> tuple[str, str]:
        """Return `head` and `role`, with a chosen head or role instead of None.

        If both are None, the head is that of the first birth or, without births, the first head of the model. If only
        the head is None, it is the head with the best score for the role in the last snapshot. If the role is None, it
        is the role in which the head has the best score in the last snapshot; reached roles come before all others.
        """
        if head is None and role is None:
            births = self.births()
            head = births[0].head if births else self.labels.heads[0]
        head = self._best_head(role) if head is None and role is not None else head
        assert head is not None
        return head, self._best_role(head) if role is None else role

    def _best_head(self, role: str) -> str:
        scores = np.nan_to_num(self.scores[-1, :, self.labels.roles.index(role)], nan=-np.inf)  # (heads,)
        return self.labels.heads[int(scores.argmax())]

    def _best_role(self, head: str) -> str:
        row = self.labels.heads.index(head)
        # Scores are at most 1, so adding 10 ranks reached roles before all others.
        scores = np.nan_to_num(self.scores[-1, row], nan=-np.inf) + 10 * self.reached[-1, row]  # (R,)
        return self.labels.roles[int(scores.argmax())]

    def checked_role(self, name: str) -> str:
        """Return the name of a role if the snapshots have it; spaces and underscores are equivalent.

        Raises:
            GlassError: the snapshots do not have the role; the error suggests the nearest name.
        """
        roles = {role.replace("_", " "): role for role in self.labels.roles}
        normalized = name.replace("_", " ")
        if normalized not in roles:
            raise GlassError(f"these snapshots have no role {name!r}", nearest(normalized, roles))
        return roles[normalized]

    def checked_head(self, name: str) -> str:
        """Return the name of a head if the model has it.

        Raises:
            GlassError: the model has no such head.
        """
        if name not in self.labels.heads:
            raise GlassError(f"there is no head {name!r} in this model", nearest(name, self.labels.heads))
        return name

    def facts(self, role: str | None = None, only: str | None = None) -> dict[str, Any]:
        """Return births, scores, losses and samples as a JSON-serializable dict.

        `role` and `only` select the births and scores of one role and of one head.
        """
        roles = [each for each in self.labels.roles if role in (None, each)]
        return {
            "steps": self.steps,
            "losses": self.losses,
            "births": [asdict(birth) for birth in self.births(role, only)],
            "repeated_losses": [_copy_losses(snapshot) for snapshot in self.snapshots],
            "scores": {head: dict(self._curves(head, roles)) for head in self.labels.heads if only in (None, head)},
            "samples": [snapshot.sample for snapshot in self.snapshots],
        }

    def _curves(self, head: str, roles: list[str]) -> Iterator[tuple[str, list[float]]]:
        for role in roles:
            curve = self.curve(head, role)
            if not np.isnan(curve).any():
                yield role, [float(value) for value in curve]


def _copy_losses(snapshot: Snapshot) -> list[float] | None:
    """Return the mean loss on repeated random tokens in the first copy and in later copies; None without such tokens.

    The first token of the second copy is excluded from both means, because it cannot be predicted.
    """
    from glassformer.inspection.heads.probes import SEGMENT_COPIES

    by_position = snapshot.repeated.mean(axis=0) if snapshot.repeated.size else None  # (T,)
    if by_position is None:
        return None
    copy_length = len(by_position) // SEGMENT_COPIES
    return [float(by_position[:copy_length].mean()), float(by_position[copy_length + 1 :].mean())]


def first_in_a_row(flags: Flags) -> int | None:
    """Return the index of the first of `IN_A_ROW` consecutive flags (n,) that are all True, or None."""
    for start in range(len(flags) - IN_A_ROW + 1):
        if flags[start : start + IN_A_ROW].all():
            return start
    return None


def read_history(run: Run) -> History:
    """Read all snapshots of a run.

    Raises:
        GlassError: the run has no snapshots, one is damaged or altered, or they have different heads, roles, statistics
            or texts.
    """
    files = snapshot_files(run.snapshots_folder)
    if not files:
        raise GlassError(
            f"{run.folder} has no snapshots (train.snapshots = {run.config().train.snapshots})",
            "Train again with --train.snapshots 32 and another --out: snapshots do not change the training.",
        )
    run.check_logs(*(f"{run.snapshots_folder.name}/{path.name}" for path in files.values()))
    history = History(tuple(read_snapshot(path) for path in files.values()))
    for snapshot, path in zip(history.snapshots, files.values(), strict=True):
        if snapshot.labels != history.labels:
            raise GlassError(
                f"{path} has other heads, roles, statistics or texts than {next(iter(files.values()))}",
                "Delete the snapshots that do not belong to this run.",
            )
    return history
