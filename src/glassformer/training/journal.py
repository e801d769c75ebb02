"""The logs of a run: `metrics.jsonl`, `samples.txt` and `loss.svg`.

A killed process or a full disk can leave an incomplete entry, which readers drop. A resumed run also drops the entries
logged after the checkpoint that it resumes from, because it logs those steps again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from glassformer.base.errors import MALFORMED
from glassformer.base.files import convert_os_errors, sync, write_bytes, write_text
from glassformer.base.wording import counted
from glassformer.runs.folder import Run
from glassformer.training.loss_plot import loss_svg

SAMPLE = "--- step "
"""Start of the header line of each entry in `samples.txt`, such as `--- step 100`."""
OUTPUT_MARK = "\n=> "
"""Text between the prompt and the output in an entry; in entries of the task `lm`, the output continues the prompt."""
_HEADER = re.compile(rb"^--- step (\d+)\r?\n", re.MULTILINE)
_CUT_HEADER = re.compile(rb"-{1,3}|--- s?t?e?p?|--- step \d*\r?")


class Journal:
    """Writer of the logs of one run, for use by a single process.

    Args:
        run: the run folder.
        entropy: true entropy of the text in nats per token, to draw in `loss.svg`; None if not known.
    """

    def __init__(self, run: Run, entropy: float | None) -> None:
        self.run = run
        self.entropy = entropy
        self._curve: list[tuple[int, float]] = []

    def forget_after(self, step: int, last_logged_step: int) -> str | None:
        """Drop the entries logged after the checkpoint being resumed, and damaged entries.

        Args:
            step: step of the checkpoint.
            last_logged_step: step of the last line of `metrics.jsonl` that was written before the checkpoint.

        Returns:
            A note on damaged and missing entries; None if there are none.
        """
        problems: list[str] = []
        metrics = self.run.metrics_file
        records, damaged = _parse_metrics(_read_log(metrics))
        remaining = [(line, record) for line, record in records if record["step"] <= step]
        if metrics.exists():
            write_bytes(metrics, b"".join(line for line, _ in remaining))
        self._curve = [(record["step"], record["loss"]) for _, record in remaining]
        if damaged:
            problems.append(f"{counted(damaged, 'damaged lines')} of {metrics.name} dropped")
        last = self._curve[-1][0] if self._curve else 0
        if last < last_logged_step:
            problems.append(f"{metrics.name} ends at step {last}, but lines up to step {last_logged_step} were written")
        samples = self.run.samples_file
        entries, damaged = _parse_samples(_read_log(samples))
        if samples.exists():
            write_bytes(samples, b"".join(entry for number, entry in entries if number <= step))
        if damaged:
            problems.append(f"{counted(damaged, 'damaged entries', 'damaged entry')} of {samples.name} dropped")
        return f"{self.run.folder}: {'; '.join(problems)}" if problems else None

    def add(self, record: dict[str, Any]) -> None:
        """Append a line to `metrics.jsonl`."""
        self._curve.append((record["step"], record["loss"]))
        _append_entry(self.run.metrics_file, json.dumps(record) + "\n")

    def add_sample(self, step: int, text: str) -> None:
        """Append an entry to `samples.txt`."""
        _append_entry(self.run.samples_file, f"{SAMPLE}{step}\n{text}\n")

    def sync(self) -> None:
        """Flush both logs to the disk; call this before a checkpoint is written.

        Otherwise a crash could keep the checkpoint but lose the lines logged before it, and a resumed run does not log
        those steps again.
        """
        for path in (self.run.metrics_file, self.run.samples_file):
            if path.exists():
                with convert_os_errors(path):
                    sync(path)

    def draw(self, evaluations: Sequence[tuple[int, float]]) -> None:
        """Write `loss.svg` from the lines so far and the (step, validation loss) of each evaluation."""
        picture = loss_svg(self._curve, evaluations, f"{self.run.folder.name}: loss", self.entropy)
        write_text(self.run.folder / "loss.svg", picture)


def read_metrics(run: Run) -> list[dict[str, Any]]:
    """Return the lines of `metrics.jsonl` in order, without damaged lines, which a run in progress may have."""
    return [record for _, record in _parse_metrics(_read_log(run.metrics_file))[0]]


def read_samples(run: Run) -> list[tuple[int, str]]:
    """Return (step, text) of each entry in `samples.txt`, including the prompt, without damaged entries."""
    return [(step, _entry_text(entry)) for step, entry in _parse_samples(_read_log(run.samples_file))[0]]


def _append_entry(path: Path, text: str) -> None:
    """Append an entry with a single write, so that a killed process rarely leaves an incomplete entry."""
    with convert_os_errors(path), path.open("ab") as file:
        file.write(text.encode("utf-8"))


def _read_log(path: Path) -> bytes:
    """Return the bytes of a log; empty if it does not exist yet."""
    return path.read_bytes() if path.exists() else b""


def _parse_metrics(content: bytes) -> tuple[list[tuple[bytes, dict[str, Any]]], int]:
    """Return each complete line with its record, and the number of damaged lines."""
    lines = content.splitlines(keepends=True)
    records = [(line, record) for line in lines if (record := _parse_record(line)) is not None]
    return records, len(lines) - len(records)


def _parse_record(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line of metrics; None if the line is damaged."""
    try:
        record = dict(json.loads(line.decode("utf-8")))
        return {**record, "step": int(record["step"]), "loss": float(record["loss"])} if line.endswith(b"\n") else None
    except MALFORMED:
        return None


def _parse_samples(content: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """Return (step, bytes) of each complete entry, and the number of damaged entries."""
    entries: list[tuple[int, bytes]] = []
    damaged = 0
    for step, entry in _split_entries(content):
        body, end, last_line = entry.rpartition(b"\n")
        if last_line and _CUT_HEADER.fullmatch(last_line):  # the next entry was cut short inside its header
            damaged += 1
            entry = body + end
        if step is not None and _is_complete(entry):
            entries.append((step, entry))
        elif entry:
            damaged += 1
    return entries, damaged


def _split_entries(content: bytes) -> Iterator[tuple[int | None, bytes]]:
    """Yield (step, bytes) of each entry; first, with step None, any bytes before the first header."""
    headers = list(_HEADER.finditer(content))
    bounds = [*(header.start() for header in headers), len(content)]
    if before := content[: bounds[0]]:
        yield None, before
    for header, (start, end) in zip(headers, pairwise(bounds), strict=True):
        yield int(header[1]), content[start:end]


def _is_complete(entry: bytes) -> bool:
    """Return whether an entry is valid UTF-8 and has its text and a final line break."""
    try:
        return entry.decode("utf-8").partition("\n")[2].endswith("\n")
    except UnicodeDecodeError:
        return False


def _entry_text(entry: bytes) -> str:
    """Return the text of a complete entry, without its header and the final line break."""
    return entry.decode("utf-8").partition("\n")[2].removesuffix("\n")
