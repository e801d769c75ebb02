"""Run under test: its model in float32 and float64, and a few rows of its text."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import torch

from glassformer.base.config import Config
from glassformer.base.errors import GlassError
from glassformer.base.locks import is_held
from glassformer.model.transformer import Classifier, Decoder, Encoder, EncoderDecoder, Model
from glassformer.runs.folder import Run, Which
from glassformer.runs.opening import OpenedRun
from glassformer.text.batches import Batch
from glassformer.text.rows import Row
from glassformer.verification.rows import few_rows

LONGEST_PROMPT = 24  # maximum length of a prompt in tokens


@dataclass(frozen=True)
class VerifiedRun:
    """Run under test. Expensive attributes are computed once, at first access.

    Attributes:
        run: the run folder.
        which: the checkpoint to verify.
        device: the device to compare with the CPU, as in `train.device`.
    """

    run: Run
    which: Which = "best"
    device: str = "auto"

    @cached_property
    def opened(self) -> OpenedRun:
        """Settings, tokenizers, labels, and the model on the CPU in float32, in evaluation mode.

        Raises:
            GlassError: files cannot be read, or do not fit together.
        """
        return OpenedRun.load(self.run.folder, self.which, "cpu", "fp32")

    @cached_property
    def load_error(self) -> str | None:
        """Reason why the run cannot be loaded; None if it can."""
        try:
            _ = self.opened
        except GlassError as error:
            return error.problem
        return None

    @property
    def config(self) -> Config:
        """Settings of the run."""
        return self.opened.config

    @property
    def model(self) -> Model:
        """Model with the run's weights, in float32 on the CPU."""
        return self.opened.model

    @cached_property
    def float64_model(self) -> Model:
        """Model in float64, for checks of logits, gradients and generated tokens without float32 rounding errors."""
        with torch.inference_mode(
            False
        ):  # even if the first access is in inference mode, because gradients need ordinary tensors
            return self.copy().double()

    def copy(self) -> Model:
        """Return a copy of the model."""
        return copy.deepcopy(self.opened.model)

    @cached_property
    def _rows_and_source(self) -> tuple[list[Row], str]:
        return few_rows(self.opened)

    @property
    def rows(self) -> list[Row]:
        """A few rows of the run's task, cut to decreasing lengths; see `few_rows`."""
        return self._rows_and_source[0]

    @property
    def rows_source(self) -> str:
        """Description of the source of the rows."""
        return self._rows_and_source[1]

    @property
    def batch(self) -> Batch:
        """All rows as one batch."""
        return Batch.from_rows(self.rows)

    @property
    def prompts(self) -> list[list[int]]:
        """Prompts: the first ids of each row or of its source, cut to decreasing lengths."""
        max_length = min(LONGEST_PROMPT, max(1, self.config.model.context // 2))
        id_arrays = [row.inputs if row.source is None else row.source for row in self.rows]
        id_lists = [ids.tolist() for ids in id_arrays]
        return [ids[: max(1, min(max_length, len(ids)) - number)] for number, ids in enumerate(id_lists)]

    def generator(self) -> torch.Generator:
        """Return a random number generator with a fixed seed."""
        return torch.Generator().manual_seed(20)

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.run.folder


@contextmanager
def unchanging(run: Run, which: Which) -> Iterator[Run]:
    """Yield the run or, if a process is training it, a copy with one checkpoint, which training cannot replace."""
    if not is_held(run.folder):
        yield run
        return
    with TemporaryDirectory(prefix="glass-verify-", ignore_cleanup_errors=True) as temporary:

        def copy_run(checkpoint: Path) -> Run:
            run_copy = Run(Path(mkdtemp(dir=temporary)) / run.folder.name)
            ignored = shutil.ignore_patterns("checkpoints", "snapshots", "lock", "*.partial")
            shutil.copytree(run.folder, run_copy.folder, ignore=ignored)
            shutil.copytree(checkpoint, run_copy.checkpoints_folder / checkpoint.name)
            run_copy.point("best", checkpoint)
            run_copy.point("last", checkpoint)
            return run_copy

        yield run.read_checkpoint(which, copy_run)[1]


def no_generation(subject: VerifiedRun) -> str | None:
    """Return the reason why checks of generation do not apply (the model is an encoder); None if they apply."""
    return None if isinstance(subject.model, Decoder | EncoderDecoder) else "an encoder does not generate text"


def no_causal_mask(subject: VerifiedRun) -> str | None:
    """Return the reason why checks of the causal mask do not apply (the model is an encoder); None if they apply."""
    encoder = isinstance(subject.model, Encoder | Classifier)
    return "an encoder has no causal mask" if encoder else None
