"""Divide the time limit of a run among training, evaluations during training, and the work after training.

This module only computes; `Pace` measures the seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

EVALUATIONS = 1 / 10
"""Maximum fraction of the time limit for all evaluations during training, including their samples. The last step, and
step 0 of a run with a parent, are evaluated even if that exceeds the maximum."""
ONE_EVALUATION = 1 / 200
"""Maximum fraction of the time limit for the loss of one evaluation during training. It limits the number of rows, but
not below `LEAST_ROWS`; all evaluations during training use the same rows."""
FINAL = 1 / 10
"""Maximum fraction of the time limit for the final evaluation, which uses all validation rows if there is time."""
LEAST_ROWS = 2
"""Minimum number of rows in an evaluation, unless there are fewer; one row gives no confidence interval."""
REST_SECONDS = 0.5
"""Seconds reserved for reports and the end of the process."""
REST_SHARE = 0.01
"""Fraction of the time limit reserved for reports and the end of the process, in addition to `REST_SECONDS`."""
WORTH = 2.0
"""Factor on the time of one step and of all work other than training; the product, rounded up, is the time limit that
`Budget.least_minutes` suggests."""


@dataclass
class Budget:
    """Time limit of a run and its measured costs.

    Attributes:
        seconds: time limit of the whole run, from the start of its process to its end.
        wanted_rows: number of validation rows per evaluation according to the settings.
        all_rows: number of rows in the validation split.
        row: seconds per validation row; 0 before the first measurement.
        sample: seconds per sample.
        save: seconds per checkpoint.
        step: seconds per training step.
        parents_text: seconds to compute the loss on the parent's text; 0 if that text is not used.
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
    def reserved_seconds(self) -> float:
        """Seconds reserved for reports and the end of the process."""
        return REST_SECONDS + REST_SHARE * self.seconds

    def rows(self) -> int:
        """Return the number of validation rows in an evaluation during training."""
        return self._rows_within(ONE_EVALUATION * self.seconds, self.wanted_rows)

    def evaluation(self, rows: int) -> float:
        """Return the seconds of an evaluation over `rows` rows, with its sample."""
        return rows * self.row + self.sample

    def final_rows(self, now: float | None = None) -> int:
        """Return the number of validation rows in the final evaluation.

        Args:
            now: wall-clock seconds of the run at the beginning of this evaluation; None: not known yet. If given, the
                rows must also fit into the remaining time, but the evaluation may always use half of `FINAL`.
        """
        available_seconds = FINAL * self.seconds
        if now is not None:
            available_seconds = min(available_seconds, max(available_seconds / 2, self.seconds - now - self.final(0)))
        return self._rows_within(available_seconds, self.all_rows)

    def _rows_within(self, seconds: float, max_rows: int) -> int:
        if not self.row or max_rows * self.row <= seconds:
            return max_rows
        return min(max_rows, max(LEAST_ROWS, int(seconds / self.row)))

    def after_training(self, rows: int) -> float:
        """Return the seconds reserved after the last step: evaluation, checkpoint, and the final work (`final`)."""
        return self.evaluation(rows) + self.save + self.final(self.final_rows())

    def final(self, rows: int) -> float:
        """Return the seconds from the last checkpoint to the end of the run; the final evaluation has `rows` rows.

        These seconds include `reserved_seconds`, the loss on the parent's text, and the time to load the best
        checkpoint, which is assumed to equal the time to save a checkpoint.
        """
        return self.save + rows * self.row + self.parents_text + self.reserved_seconds

    def training_ends(self, rows: int) -> float:
        """Return the wall-clock seconds since the beginning of the run at which training must end."""
        return self.seconds - self.after_training(rows)

    def must_end(self, now: float, rows: int) -> bool:
        """Return whether another step would end too late."""
        return now + self.step > self.training_ends(rows)

    def allows_evaluation(self, now: float, spent: float, rows: int, first: bool) -> bool:
        """Return whether there is time for an evaluation that is due.

        The last evaluation always takes place, so its time is reserved. The rest of the time for evaluations becomes
        available in proportion to the elapsed time.

        Args:
            now: wall-clock seconds since the run began.
            spent: seconds spent on evaluations so far.
            rows: number of rows per evaluation.
            first: whether there was no evaluation yet. In the second half of training, the first evaluation may use all
                of the time for evaluations that is not reserved.
        """
        evaluation_seconds = self.evaluation(rows)
        evaluations_limit = EVALUATIONS * self.seconds - evaluation_seconds
        if first and now > self.training_ends(rows) / 2 and spent + evaluation_seconds <= evaluations_limit:
            return True
        return spent + evaluation_seconds <= evaluations_limit * min(1.0, (now + evaluation_seconds) / self.seconds)

    def fraction_done(self, now: float, began: float, rows: int) -> float:
        """Return the fraction of training that is done, 0 to 1, if the first step began after `began` seconds."""
        training_seconds = self.training_ends(rows) - began
        elapsed = now - began
        if elapsed <= 0:
            return 0.0
        return min(1.0, elapsed / training_seconds) if training_seconds > 0 else 1.0

    def least_minutes(self, seconds_before: float, rows: int) -> float:
        """Return the shortest useful time limit in minutes, if the first step starts after `seconds_before` seconds."""
        minutes = WORTH * (seconds_before + self.step + self.after_training(rows)) / 60
        return float(f"{minutes:.1g}") if float(f"{minutes:.1g}") >= minutes else float(f"{1.5 * minutes:.1g}")
