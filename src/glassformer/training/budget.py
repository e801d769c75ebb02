"""Divide the minutes of a run among training, evaluations during training, and the work after training.

This module is arithmetic on measured seconds; `Pace` measures them.
"""

from __future__ import annotations

from dataclasses import dataclass

EVALUATIONS = 1 / 5
"""Maximum share of the minutes for all evaluations during training, with their samples."""
ONE_EVALUATION = 1 / 20
"""Maximum share of the minutes for the loss of one evaluation, which limits its rows; all evaluations use the same
rows."""
FINAL = 1 / 10
"""Maximum share of the minutes for the final evaluation, which uses all validation rows if they fit."""
LEAST_ROWS = 2
"""Minimum number of rows of an evaluation: one row has no confidence interval."""
REST_SECONDS = 0.5
"""Seconds reserved for reports and the end of the process."""
REST_SHARE = 0.01
"""Share of the minutes reserved for the same, in addition."""
WORTH = 2.0
"""Minimum ratio of the whole run to everything except training, for `Budget.least_minutes`."""


@dataclass
class Budget:
    """Time limit of a run and its measured costs.

    Attributes:
        seconds: time limit of the whole run, from the start of its process to its end.
        wanted_rows: number of validation rows of an evaluation according to the settings.
        all_rows: number of rows of the validation split.
        row: seconds per validation row; 0 until measured.
        sample: seconds per sample.
        save: seconds per checkpoint.
        step: seconds per training step.
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
        """Seconds reserved for reports and the end of the process."""
        return REST_SECONDS + REST_SHARE * self.seconds

    def rows(self) -> int:
        """Return the number of validation rows of an evaluation during training."""
        return self._fitting(ONE_EVALUATION * self.seconds, self.wanted_rows)

    def evaluation(self, rows: int) -> float:
        """Return the seconds of an evaluation over `rows` rows, with its sample."""
        return rows * self.row + self.sample

    def final_rows(self, now: float | None = None) -> int:
        """Return the number of validation rows of the final evaluation.

        Args:
            now: wall second at which it begins, so that the remaining time limits it too; None: not known yet.
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
        """Return the seconds reserved after the last step: evaluation, checkpoint, final evaluation, reports."""
        return self.evaluation(rows) + self.save + self.final(self.final_rows())

    def final(self, rows: int) -> float:
        """Return the seconds after the last checkpoint, in which one is loaded and evaluated over `rows` rows."""
        return self.save + rows * self.row + self.parents_text + self.rest

    def training_ends(self, rows: int) -> float:
        """Return the wall second at which training must end."""
        return self.seconds - self.after_training(rows)

    def over(self, now: float, rows: int) -> bool:
        """Return whether another step would end too late."""
        return now + self.step > self.training_ends(rows)

    def allows_evaluation(self, now: float, spent: float, rows: int, first: bool) -> bool:
        """Return whether there is time for an evaluation that is due.

        The time allowed for evaluations grows in proportion to the elapsed time, minus the time of the last evaluation,
        which is always made.

        Args:
            now: current wall second.
            spent: seconds spent on evaluations so far.
            rows: number of rows of an evaluation.
            first: whether no evaluation was made yet; in the second half of training, the first one is made if the
                whole share allows it.
        """
        cost = self.evaluation(rows)
        whole = EVALUATIONS * self.seconds - cost
        if first and now > self.training_ends(rows) / 2 and spent + cost <= whole:
            return True
        return spent + cost <= whole * min(1.0, (now + cost) / self.seconds)

    def share(self, now: float, began: float, rows: int) -> float:
        """Return the fraction of training that is done, 0 to 1, if the first step began at wall second `began`."""
        length = self.training_ends(rows) - began
        passed = now - began
        if passed <= 0:
            return 0.0
        return min(1.0, passed / length) if length > 0 else 1.0

    def least_minutes(self, before: float, rows: int) -> float:
        """Return the minimum minutes that leave time to train, if the first step starts after `before` seconds."""
        minutes = WORTH * (before + self.step + self.after_training(rows)) / 60
        return float(f"{minutes:.1g}") if float(f"{minutes:.1g}") >= minutes else float(f"{1.5 * minutes:.1g}")
