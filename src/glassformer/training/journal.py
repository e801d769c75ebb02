"""The logs of a run: `metrics.jsonl`, `samples.txt` and `loss.svg`.

Each checkpoint records the size and SHA-256 of the logs at its step. A resumed run keeps exactly these bytes and logs
the later steps again. A killed process or a full disk can leave an incomplete entry after them, which readers drop.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from glassformer.base.errors import MALFORMED
from glassformer.base.files import convert_os_errors, sha256, sync, write_bytes, write_text
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
        self._written = {path.name: _Digest() for path in (run.metrics_file, run.samples_file)}
        self._snapshots: dict[str, dict[str, Any]] = {}

    def forget_after(self, logs: Mapping[str, Mapping[str, Any]], last_logged_step: int) -> str | None:
        """Cut the logs to their contents at the checkpoint being resumed.

        Args:
            logs: sizes and hashes of the logs at the checkpoint, as in `TrainState.logs`, which `check_logs` has
                compared with the files; empty if there is no checkpoint.
            last_logged_step: step of the last line of `metrics.jsonl` that was written before the checkpoint.

        Returns:
            A note on missing entries; None if there are none.
        """
        missing: list[str] = []
        content = {path.name: b"" for path in (self.run.metrics_file, self.run.samples_file)}
        for path in (self.run.metrics_file, self.run.samples_file):
            size = logs[path.name]["bytes"] if path.name in logs else 0
            if path.exists():
                content[path.name] = path.read_bytes()[:size]
                write_bytes(path, content[path.name])
                self._written[path.name] = _Digest(content[path.name])
            elif size:
                missing.append(f"{path.name} is missing")
        records = _parse_metrics(content[self.run.metrics_file.name])
        self._curve = [(record["step"], record["loss"]) for record in records]
        last = self._curve[-1][0] if self._curve else 0
        if last < last_logged_step:
            missing.append(f"the losses of steps {last + 1} to {last_logged_step} are lost")
        return f"{self.run.folder}: {'; '.join(missing)}" if missing else None

    def digests(self) -> dict[str, dict[str, Any]]:
        """Return the sizes and hashes of the logs and snapshots, as in `TrainState.logs`."""
        snapshots = {f"{path.parent.name}/{path.name}": path for path in self.run.snapshots_folder.glob("step-*.npz")}
        self._snapshots = {
            name: self._snapshots.get(name) or {"bytes": path.stat().st_size, "sha256": sha256(path)}
            for name, path in sorted(snapshots.items())
        }
        return {**{name: written.facts() for name, written in self._written.items()}, **self._snapshots}

    def add(self, record: dict[str, Any]) -> None:
        """Append a line to `metrics.jsonl`."""
        self._curve.append((record["step"], record["loss"]))
        self._append(self.run.metrics_file, json.dumps(record) + "\n")

    def add_sample(self, step: int, text: str) -> None:
        """Append an entry to `samples.txt`."""
        self._append(self.run.samples_file, f"{SAMPLE}{step}\n{text}\n")

    def _append(self, path: Path, text: str) -> None:
        """Append an entry with a single write, so that a killed process rarely leaves an incomplete entry."""
        data = text.encode("utf-8")
        with convert_os_errors(path), path.open("ab") as file:
            file.write(data)
        self._written[path.name].add(data)

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


class _Digest:
    """Size and SHA-256 of the bytes written to a log."""

    def __init__(self, content: bytes = b"") -> None:
        self._hash = hashlib.sha256(content)
        self._bytes = len(content)

    def add(self, data: bytes) -> None:
        self._hash.update(data)
        self._bytes += len(data)

    def facts(self) -> dict[str, Any]:
        return {"bytes": self._bytes, "sha256": self._hash.hexdigest()}


def read_metrics(run: Run) -> list[dict[str, Any]]:
    """Return the lines of `metrics.jsonl` in order, see `Run.read_log`; incomplete lines are left out.

    Raises:
        GlassError: lines that were written before the newest checkpoint were altered.
    """
    return _parse_metrics(run.read_log(run.metrics_file.name))


def read_samples(run: Run) -> list[tuple[int, str]]:
    """Return (step, text) of each entry in `samples.txt`, including the prompt; see `Run.read_log`.

    Raises:
        GlassError: entries that were written before the newest checkpoint were altered.
    """
    return [(step, _entry_text(entry)) for step, entry in _parse_samples(run.read_log(run.samples_file.name))]


def _parse_metrics(content: bytes) -> list[dict[str, Any]]:
    """Return the record of each complete line."""
    return [record for line in content.splitlines(keepends=True) if (record := _parse_record(line)) is not None]


def _parse_record(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line of metrics; None if the line is damaged."""
    try:
        record = dict(json.loads(line.decode("utf-8")))
        return {**record, "step": int(record["step"]), "loss": float(record["loss"])} if line.endswith(b"\n") else None
    except MALFORMED:
        return None


def _parse_samples(content: bytes) -> list[tuple[int, bytes]]:
    """Return (step, bytes) of each complete entry."""
    entries: list[tuple[int, bytes]] = []
    for step, entry in _split_entries(content):
        body, end, last_line = entry.rpartition(b"\n")
        if last_line and _CUT_HEADER.fullmatch(last_line):  # the next entry was cut short inside its header
            entry = body + end
        if step is not None and _is_complete(entry):
            entries.append((step, entry))
    return entries


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
