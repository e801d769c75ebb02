"""Divide the minutes of a run among evaluations while training, training itself, and the work after it.

Pure arithmetic on measured seconds; `Pace` measures them.
"""

from __future__ import annotations

from dataclasses import dataclass

EVALUATIONS = 1 / 5
"""Share of the minutes that all evaluations while training may take, with their samples."""
ONE_EVALUATION = 1 / 20
"""Share of the minutes that the loss of one of them may take; its rows are those that fit, the same all through."""
FINAL = 1 / 10
"""Share of the minutes that the final evaluation may take: of all rows of the validation part, or those that fit."""
LEAST_ROWS = 2
"""Fewest rows of an evaluation: one row has no interval."""
REST_SECONDS = 0.5
"""Seconds kept for reports and the end of the process."""
REST_SHARE = 0.01
"""Share of the minutes kept for the same."""
WORTH = 2.0
"""The least minutes that make sense are so many times what all but training takes."""


@dataclass
class Budget:
    """The minutes of a run, and what is known of its costs.

    Attributes:
        seconds: of the whole run, from the start of its process to its end.
        wanted_rows: validation rows of an evaluation, as the settings have it.
        all_rows: rows of the validation part.
        row: seconds that a validation row takes; 0 until it was measured.
        sample: seconds of a sample.
        save: seconds of a checkpoint.
        step: seconds of a training step.
        parents_text: seconds of the loss on the text of the run's parent, if it has one.
    """

    seconds: float
    wanted_rows: int
    all_rows: int
    row: float = 0.0
    sample: float = 0.0
    save: float = 0.0
    step: float = 0.0
    parents_text: float = 0.0

    @property
    def rest(self) -> float:
        """Seconds kept for reports and the end of the process."""
        return REST_SECONDS + REST_SHARE * self.seconds

    def rows(self) -> int:
        """Return how many validation rows an evaluation while training takes."""
        return self._fitting(ONE_EVALUATION * self.seconds, self.wanted_rows)

    def evaluation(self, rows: int) -> float:
        """Return the seconds of an evaluation over so many rows, with its sample."""
        return rows * self.row + self.sample

    def final_rows(self, now: float | None = None) -> int:
        """Return how many validation rows the final evaluation takes.

        Args:
            now: the wall second at which it begins: what is left bounds it, too. None: not known yet.
        """
        share = FINAL * self.seconds
        if now is not None:
            share = min(share, max(share / 2, self.seconds - now - self.final(0)))
        return self._fitting(share, self.all_rows)

    def _fitting(self, seconds: float, most: int) -> int:
        if not self.row or most * self.row <= seconds:
            return most
        return min(most, max(LEAST_ROWS, int(seconds / self.row)))

    def after_training(self, rows: int) -> float:
        """Return the seconds kept for what follows the last step: evaluation, checkpoint, final evaluation, reports."""
        return self.evaluation(rows) + self.save + self.final(self.final_rows())

    def final(self, rows: int) -> float:
        """Return the seconds of what follows the last checkpoint: it is read, and evaluated over so many rows."""
        return self.save + rows * self.row + self.parents_text + self.rest

    def training_ends(self, rows: int) -> float:
        """Return the wall second at which training is to end."""
        return self.seconds - self.after_training(rows)

    def over(self, now: float, rows: int) -> bool:
        """Return whether another step would end too late."""
        return now + self.step > self.training_ends(rows)

    def allows_evaluation(self, now: float, spent: float, rows: int, first: bool) -> bool:
        """Return whether an evaluation that is due leaves their share of the minutes kept.

        Their share grows evenly with the time that has passed, less the last evaluation, which always happens.

        Args:
            now: the wall second.
            spent: seconds of evaluations so far.
            rows: of an evaluation.
            first: none was made yet; in the second half of training, one is made if the whole share allows it.
        """
        cost = self.evaluation(rows)
        whole = EVALUATIONS * self.seconds - cost
        if first and now > self.training_ends(rows) / 2 and spent + cost <= whole:
            return True
        return spent + cost <= whole * min(1.0, (now + cost) / self.seconds)

    def share(self, now: float, began: float, rows: int) -> float:
        """Return how much of training is over, 0 to 1, if its first step began at the wall second `began`."""
        length = self.training_ends(rows) - began
        passed = now - began
        if passed <= 0:
            return 0.0
        return min(1.0, passed / length) if length > 0 else 1.0

    def least_minutes(self, before: float, rows: int) -> float:
        """Return the least minutes that leave time to train, if all before the first step takes so many seconds."""
        minutes = WORTH * (before + self.step + self.after_training(rows)) / 60
        return float(f"{minutes:.1g}") if float(f"{minutes:.1g}") >= minutes else float(f"{1.5 * minutes:.1g}")
