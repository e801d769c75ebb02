"""Snapshot of all heads of a model at one training step, as a self-contained file.

A file such as `snapshots/step-000512.npz` contains compressed plain arrays without pickled objects. At the same step of
a run, equal weights give equal bytes.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.files import write_bytes
from glassformer.inspection.sites import Site

MOST_BYTES = 16_000_000
"""Maximum size of all arrays of a snapshot. A small compressed file of another origin could fill the memory."""
Numbers = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Map = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class MappedTokens:
    """Tokens of a text whose attention maps are stored.

    Attributes:
        probe: "text" or "repeated".
        source: printable texts of the input tokens; for an encoder-decoder those of the source.
        target: printable texts of the decoder's input tokens in an encoder-decoder; otherwise empty.
    """

    probe: str
    source: tuple[str, ...]
    target: tuple[str, ...] = ()

    def rows_and_columns(self, site: Site) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the tokens of the queries (rows) and of the keys (columns) of a map."""
        query_tokens = self.target if self.target and site.stack == "dec" else self.source
        return query_tokens, self.source if site.part == "cross" else query_tokens


@dataclass(frozen=True)
class SnapshotLabels:
    """Labels of the axes of a snapshot's arrays; the same in all snapshots of a run.

    Attributes:
        heads: names of the heads, in order of execution.
        roles, numbers: names of roles and statistics, as in `heads.survey`.
        texts: texts whose maps are stored.
    """

    heads: tuple[str, ...]
    roles: tuple[str, ...]
    numbers: tuple[str, ...]
    texts: tuple[MappedTokens, ...]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Measurements of all heads at one step, with R roles, M statistics, and H heads per attention site.

    Attributes:
        step: training step.
        labels: labels of the axes of the arrays.
        scores: (heads, R) role scores; NaN if a role is not possible.
        reached: (heads, R) True if score and lift are high enough and the interval is above chance, as in
            `heads.score_heads`.
        statistics: (heads, M) statistics such as entropy; NaN if undefined.
        maps: attention maps (H, T, S) by index of the text and site: 255 times the weights, rounded.
        losses: (rows, T) losses on validation rows in nats, by position; NaN where nothing is predicted.
        repeated: (rows, T) losses on repeated random tokens, for language models; (0, 0) without such losses.
        prompt, sample: a prompt, and the model's output for it: text, or the label of a classifier.
    """

    step: int
    labels: SnapshotLabels
    scores: Numbers
    reached: Flags
    statistics: Numbers
    maps: dict[tuple[int, str], Map]
    losses: Numbers
    repeated: Numbers
    prompt: str
    sample: str

    @property
    def loss(self) -> float:
        """Mean of the validation losses, in nats per target."""
        return float(np.nanmean(self.losses.astype(np.float64)))

    def map_of(self, text: int, head: str) -> Map:
        """Return the map of one head on one text, (T, S)."""
        site = head.rpartition(".")[0]
        names = [name for name in self.labels.heads if name.rpartition(".")[0] == site]
        return self.maps[text, site][names.index(head)]


def snapshot_file(folder: Path, step: int) -> Path:
    """Return the path of a step's snapshot in a folder of snapshots."""
    return folder / f"step-{step:06d}.npz"


def snapshot_files(folder: Path) -> dict[int, Path]:
    """Return all snapshots of a folder by their steps, in order."""
    paths = {path.stem.removeprefix("step-"): path for path in folder.glob("step-*.npz")}
    return {int(step): paths[step] for step in sorted(filter(str.isdecimal, paths), key=int)}


def write_snapshot(snapshot: Snapshot, folder: Path) -> None:
    """Write the snapshot of a step to a folder atomically."""
    metadata = {
        "step": snapshot.step,
        "labels": asdict(snapshot.labels),
        "prompt": snapshot.prompt,
        "sample": snapshot.sample,
    }
    arrays: dict[str, npt.NDArray[Any]] = {
        "about": np.frombuffer(json.dumps(metadata).encode("utf-8"), dtype=np.uint8),
        "scores": snapshot.scores,
        "reached": snapshot.reached,
        "numbers": snapshot.statistics,
        "losses": snapshot.losses,
        "repeated": snapshot.repeated,
        **{f"map.{text}.{site}": value for (text, site), value in snapshot.maps.items()},
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_bytes(snapshot_file(folder, snapshot.step), buffer.getvalue())


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot file written by `write_snapshot`.

    Raises:
        GlassError: the file is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            size = sum(entry.file_size for entry in file.zip.infolist())
            if size > MOST_BYTES:
                raise ValueError(f"its arrays have {size:,} bytes, more than {MOST_BYTES:,}")
            arrays = {name: file[name] for name in file.files}
        return _snapshot_from_arrays(arrays)
    except (OSError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error, *MALFORMED) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise GlassError(
            f"{path} is damaged or cannot be read: {reason}",
            "Copy it again, or delete it; the other snapshots do not depend on it.",
        ) from None


def _snapshot_from_arrays(arrays: dict[str, npt.NDArray[Any]]) -> Snapshot:
    """Return the snapshot after checking the shapes and dtypes of its arrays against its labels."""
    metadata = json.loads(arrays["about"].tobytes())
    label_data = metadata["labels"]
    texts = (MappedTokens(each["probe"], tuple(each["source"]), tuple(each["target"])) for each in label_data["texts"])
    labels = SnapshotLabels(
        tuple(label_data["heads"]), tuple(label_data["roles"]), tuple(label_data["numbers"]), tuple(texts)
    )
    shape = (len(labels.heads), len(labels.roles))
    maps: dict[tuple[int, str], Map] = {}
    for number, text in enumerate(labels.texts):
        for site in dict.fromkeys(name.rpartition(".")[0] for name in labels.heads):
            stack, layer, part = site.split(".")
            rows, columns = text.rows_and_columns(Site(stack, int(layer), part))
            head_count = sum(name.rpartition(".")[0] == site for name in labels.heads)
            maps[number, site] = _checked_array(
                arrays[f"map.{number}.{site}"], np.uint8, (head_count, len(rows), len(columns))
            )
    return Snapshot(
        step=int(metadata["step"]),
        labels=labels,
        scores=_checked_array(arrays["scores"], np.float32, shape),
        reached=_checked_array(arrays["reached"], np.bool_, shape),
        statistics=_checked_array(arrays["numbers"], np.float32, (shape[0], len(labels.numbers))),
        maps=maps,
        losses=_checked_array(arrays["losses"], np.float32),
        repeated=_checked_array(arrays["repeated"], np.float32),
        prompt=str(metadata["prompt"]),
        sample=str(metadata["sample"]),
    )


def _checked_array(array: npt.NDArray[Any], dtype: type, shape: tuple[int, ...] | None = None) -> npt.NDArray[Any]:
    if array.dtype != dtype or (array.shape != shape if shape else array.ndim != 2):
        raise ValueError(f"an array has the unexpected shape {array.shape} or type {array.dtype}")
    return array
