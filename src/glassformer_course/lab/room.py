"""The lab in a learner's folder: saved evidence, hints taken and answers given."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from glassformer.base.errors import GlassError
from glassformer.base.files import convert_os_errors, no_empty_folders, write_text
from glassformer.base.locks import output_lock
from glassformer_course.folder import LOCK_TIMEOUT, folder_option
from glassformer_course.lab.case import BugCase
from glassformer_course.lab.charts import charts_svg, maps_svg
from glassformer_course.lab.evidence import Evidence
from glassformer_course.lab.report import AnswerVerdict, report_text, verdict_of

if TYPE_CHECKING:
    from collections.abc import Mapping

EVIDENCE = "evidence.json"
Note = Callable[[str], None]


@dataclass
class CaseRecord:
    """Progress of a learner in one case.

    Attributes:
        hints: number of hints taken.
        answers: letters chosen, in order.
        right: whether one of the answers was right.
    """

    hints: int = 0
    answers: list[str] = field(default_factory=list)
    right: bool = False


class LabFolder:
    """The lab of one learner.

    Args:
        folder: the course folder; the files of the lab are in its subfolder `lab`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "lab"
        self.progress_file = self.folder / "progress.json"

    @property
    def option(self) -> str:
        """Option that selects this course folder in a command; see `folder_option`."""
        return folder_option(self.folder.parent)

    def case_folder(self, case: BugCase) -> Path:
        """Return the folder of a case."""
        return self.folder / case.folder

    def is_open(self, case: BugCase) -> bool:
        """Return whether the evidence of the case exists."""
        return (self.case_folder(case) / EVIDENCE).exists()

    def records(self) -> dict[str, CaseRecord]:
        """Return a dictionary from case number, as text, to progress.

        Raises:
            GlassError: the progress file is damaged.
        """
        if not self.progress_file.exists():
            return {}
        try:
            with convert_os_errors(self.progress_file):
                progress = json.loads(self.progress_file.read_text(encoding="utf-8"))
            return {str(int(number)): _record(facts) for number, facts in progress["cases"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise GlassError(
                f"{self.progress_file} is damaged",
                "Move it away to start with no progress; the evidence of all cases is kept.",
            ) from None

    def record(self, case: BugCase) -> CaseRecord:
        """Return the progress in a case."""
        return self.records().get(str(case.number), CaseRecord())

    @contextmanager
    def _changed_record(self, case: BugCase) -> Iterator[CaseRecord]:
        """Yield the progress in a case, which the caller changes, and save it; other processes wait."""
        with output_lock(self.progress_file, "--folder", LOCK_TIMEOUT):
            record = self.record(case)
            yield record
            cases = {number: asdict(each) for number, each in self.records().items()} | {
                str(case.number): asdict(record)
            }
            ordered = dict(sorted(cases.items(), key=lambda item: int(item[0])))
            write_text(self.progress_file, json.dumps({"version": 1, "cases": ordered}, indent=1) + "\n")

    def open(self, case: BugCase, note: Note, step_fraction: float = 1.0) -> Evidence:
        """Return the evidence of a case from its folder; if there is none, train the models and save the evidence.

        Args:
            case: the case.
            note: called with a message before the models are trained.
            step_fraction: fraction of the training steps to take; tests use a smaller fraction.

        Raises:
            GlassError: the folder cannot be written, or a file in it is damaged.
        """
        folder = self.case_folder(case)
        if self.is_open(case):
            return self.evidence(case)
        with no_empty_folders(folder):  # also if training is interrupted
            with convert_os_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
            self.records()  # report a damaged file before training, not after it
            case.experiment()  # and a package that is not installed
            note(f"training the models of case {case.number} (a few seconds); their evidence goes to {folder}")
            evidence = collect_evidence(case, step_fraction)
            if self.is_open(case):
                return self.evidence(case)  # another process opened it meanwhile: keep its evidence
            self._write(case, evidence)
            return evidence

    def _write(self, case: BugCase, evidence: Evidence) -> None:
        """Write the evidence as files; `evidence.json` comes last, because it marks the case as open."""
        folder = self.case_folder(case)
        write_text(folder / "report.txt", report_text(case, evidence))
        write_text(folder / "curves.svg", charts_svg(evidence.charts))
        if evidence.maps:
            write_text(folder / "attention.svg", maps_svg(evidence.maps))
        lines = [line for heading, texts in evidence.samples.items() for line in (heading, *texts, "")]
        if lines:
            write_text(folder / "samples.txt", "\n".join(lines))
        write_text(folder / EVIDENCE, json.dumps(evidence.facts(), ensure_ascii=False, indent=1) + "\n")

    def evidence(self, case: BugCase) -> Evidence:
        """Read the saved evidence of a case.

        Raises:
            GlassError: there is no evidence yet, or it is damaged.
        """
        path = self.case_folder(case) / EVIDENCE
        if not path.exists():
            raise GlassError(
                f"case {case.number} is not open yet",
                f"See its evidence first: glass learn lab open {case.number}{self.option}",
            )
        try:
            with convert_os_errors(path):
                evidence = Evidence.of(json.loads(path.read_text(encoding="utf-8")))
            case.why.format(
                **evidence.number_texts()
            )  # raises KeyError if a number that the explanation needs is missing
            return evidence
        except (ValueError, KeyError, TypeError, AttributeError):
            raise GlassError(
                f"{path} is damaged",
                f"Delete this file, and open the case again: glass learn lab open {case.number}{self.option}",
            ) from None

    def hint(self, case: BugCase) -> tuple[int, str]:
        """Return the number and the text of the next hint; after the third, the third again.

        Raises:
            GlassError: the case is not open.
        """
        self.evidence(case)
        with self._changed_record(case) as record:
            record.hints = min(len(case.hints), record.hints + 1)
        return record.hints, case.hints[record.hints - 1]

    def answer(self, case: BugCase, choice: str) -> AnswerVerdict:
        """Record an answer and return the verdict on it.

        Raises:
            GlassError: unknown choice, or the case is not open.
        """
        letter = choice.lower()
        if letter not in case.choices:
            raise GlassError(
                f"case {case.number} has no choice {choice!r}", f"Choose one of: {', '.join(case.choices)}."
            )
        verdict = verdict_of(case, self.evidence(case), letter)
        with self._changed_record(case) as record:
            record.answers.append(letter)
            record.right = record.right or verdict.right
        return verdict


def collect_evidence(case: BugCase, step_fraction: float = 1.0) -> Evidence:
    """Train the models of a case and gather the evidence."""
    from glassformer_course.lab.bench import LabTrainer

    experiment = case.experiment()
    with TemporaryDirectory(prefix="glass-lab-", ignore_cleanup_errors=True) as folder:
        return experiment.observe(LabTrainer(experiment.fault, Path(folder), step_fraction))


def _record(facts: Mapping[str, Any]) -> CaseRecord:
    hints = facts["hints"]
    answers = facts["answers"]
    right = facts["right"]
    if hints not in range(4) or not isinstance(answers, list) or right not in (True, False):
        raise ValueError("not a valid record of hints and answers")
    return CaseRecord(int(hints), [str(letter) for letter in answers], bool(right))
