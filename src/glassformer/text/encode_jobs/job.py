"""Encoding jobs: a text, its encoding settings, and the division of the work into independent tasks.

::

    OUT.encoding/job.json            hash of the job's inputs; a job with other inputs starts over
    OUT.encoding/parts/00007.jsonl   read: the documents of a part; 00007.npz: their sizes and hashes
    OUT.encoding/plans/00007         decide: which documents are kept, and the split
    OUT.encoding/tokens/00007.train  encode: token stores of each part
    OUT.encoding/logs/STAGE          datatrove's records of completed tasks, which are not repeated
    OUT                              merge: the result, which appears when it is complete
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from glassformer.base.errors import GlassError
from glassformer.base.files import MANIFEST, convert_os_errors, is_complete, sha256, write_text
from glassformer.text.prepare import TokenizerOrigin
from glassformer.text.source import Source

WORK = 3  # format of the work folder: a folder in another format is not resumed
PART = 64_000_000
"""Approximate number of bytes of text in one part, unless the number of parts is given."""


@dataclass(frozen=True)
class Portion:
    """A reading task: read files `first_file` to `end_file` - 1, and write `parts` parts from number `first_part`."""

    first_file: int
    end_file: int
    first_part: int
    parts: int


@dataclass(frozen=True)
class EncodingStep:
    """The work of a stage as a step of a datatrove pipeline, called with documents, rank and number of tasks."""

    name: str
    job: EncodingJob = field(repr=False)
    function: Callable[[EncodingJob, int], None] = field(repr=False)

    def __call__(self, documents: object = None, rank: int = 0, world_size: int = 1) -> None:
        """Run task `rank`. Nothing is returned, because stages exchange files."""
        self.function(self.job, rank)


@dataclass(frozen=True)
class EncodingStage:
    """One stage: `tasks` tasks, run in any process and in any order after all tasks of the previous stage."""

    name: str
    tasks: int
    step: EncodingStep


@dataclass(frozen=True)
class EncodingJob:
    """Inputs of all tasks of one encoding job. The job is sent to other processes, where its paths must be valid too.

    Attributes:
        source: running text, opened by `source.open_source`; its files have absolute paths.
        tokenizer_origin: origin of the tokenizer.
        out: the folder to make.
        portions: files and parts of each reading task.
        part_bytes: number of bytes after which a part is complete; its last document is not divided. The last part of a
            reading task contains all remaining documents.
    """

    source: Source
    tokenizer_origin: TokenizerOrigin
    out: Path
    portions: tuple[Portion, ...]
    part_bytes: int

    @property
    def work_folder(self) -> Path:
        """Return the work folder, which contains all intermediate files."""
        return self.out.with_name(self.out.name + ".encoding")

    @property
    def parts(self) -> int:
        """Return the number of parts into which the text is cut."""
        return sum(portion.parts for portion in self.portions)

    def part_file(self, number: int) -> Path:
        """Return the path of a part's documents."""
        return self.work_folder / "parts" / f"{number:05d}.jsonl"

    def facts_file(self, number: int) -> Path:
        """Return the path of the sizes and hashes of a part's documents."""
        return self.part_file(number).with_suffix(".npz")

    def plan_file(self, number: int) -> Path:
        """Return the path of a part's plan (see `plans`)."""
        return self.work_folder / "plans" / f"{number:05d}"

    def tokens_file(self, number: int, split: str) -> Path:
        """Return the path prefix of a part's token store for one split (train or validation)."""
        return self.work_folder / "tokens" / f"{number:05d}.{split}"

    @property
    def tokenizer_file(self) -> Path:
        """Return the path of the tokenizer, which the stage `decide` writes."""
        return self.work_folder / "plans" / "tokenizer.json"

    @property
    def merged_file(self) -> Path:
        """Return the path of the SHA-256 of the manifest of `out`, which the stage `merge` writes."""
        return self.work_folder / "merged"

    def logs(self, stage: EncodingStage) -> Path:
        """Return the folder where datatrove keeps its records of a stage."""
        return self.work_folder / "logs" / stage.name

    def digest(self) -> str:
        """Return a hash of all inputs that determine the files in `work_folder`."""
        tokenizer_file = self.tokenizer_origin.file
        inputs = {
            "version": self.source.kind.version,
            "work": WORK,
            "source": self.source.digest,
            "data": self.source.data.model_dump(exclude={"source"}),
            "tables": self.source.readings,
            "tokenizer": self.tokenizer_origin.config.model_dump(),
            "mask": self.source.kind.mask_token,
            "file": None if tokenizer_file is None else hashlib.sha256(tokenizer_file.read_bytes()).hexdigest(),
            "portions": [vars(portion) for portion in self.portions],
            "part_bytes": self.part_bytes,
        }
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode("utf-8")).hexdigest()

    def begun(self) -> bool:
        """Return whether the work folder was left by an interrupted call with the same job."""
        job_file = self.work_folder / "job.json"
        with convert_os_errors(self.work_folder):
            return job_file.is_file() and job_file.read_text(encoding="utf-8") == self._job_json()

    def done(self) -> bool:
        """Return whether an interrupted call with the same job has written all of `out`."""
        with convert_os_errors(self.work_folder):
            if not (self.begun() and self.merged_file.is_file() and is_complete(self.out)):
                return False
            return self.merged_file.read_text(encoding="utf-8") == sha256(self.out / MANIFEST)

    def begin(self) -> bool:
        """Make the work folder, or keep that of an interrupted call with the same job; return whether it was kept.

        Raises:
            GlassError: there is a folder of that name that no call of this function made.
        """
        resumed = self.begun()
        with convert_os_errors(self.work_folder):
            if not (self.work_folder / "job.json").is_file() and self.work_folder.exists():
                others = {path.name for path in self.work_folder.iterdir()} - {"lock"}
                if others:
                    raise GlassError(
                        f"{self.work_folder} is needed for temporary files, but it contains {min(others)}",
                        f"Choose another --out, or move {self.work_folder} away.",
                    )
            if not resumed:
                for name in ("parts", "plans", "tokens", "logs"):
                    shutil.rmtree(self.work_folder / name, ignore_errors=True)
            for name in ("parts", "plans", "tokens"):
                (self.work_folder / name).mkdir(parents=True, exist_ok=True)
            write_text(self.work_folder / "job.json", self._job_json())
        return resumed

    def _job_json(self) -> str:
        return json.dumps({"job": self.digest()}) + "\n"


def plan_job(source: Source, tokenizer_origin: TokenizerOrigin, out: Path, parts: int | None = None) -> EncodingJob:
    """Divide the work into tasks: small files are read together, and a large file is cut into parts while it is read.

    The division depends only on the sizes of the files and on `parts`, the approximate number of parts, never on the
    number of processes.
    """
    part_bytes = PART if parts is None else max(1, -(-source.size // parts))
    portions: list[Portion] = []
    first = size = number = 0
    for index, file in enumerate(source.files):
        size += file.scan.size
        if size >= part_bytes or index == len(source.files) - 1:
            count = max(1, -(-size // part_bytes))
            portions.append(Portion(first, index + 1, number, count))
            first = index + 1
            size = 0
            number += count
    if source.corpus is not None:
        portions.append(Portion(0, 0, 0, 1))
    return EncodingJob(source, tokenizer_origin, out.absolute(), tuple(portions), part_bytes)
