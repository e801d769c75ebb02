"""Checks of files: the run folder is complete and consistent, and needs no files outside it."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.base.config import SampleConfig
from glassformer.base.errors import GlassError
from glassformer.base.files import MANIFEST
from glassformer.runs.folder import Run, Which, check_logs
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import AnyTextModel, MaskFiller, TextClassifier
from glassformer.text.tokenizers import Tokenizer
from glassformer.training.checkpoint import load_checkpoint, step_name
from glassformer.training.optimizers import make_optimizers
from glassformer.verification.check import Check, Finding
from glassformer.verification.verified_run import VerifiedRun

BOTH: tuple[Which, ...] = ("best", "last")
NEEDED = {"model.safetensors", "optimizer.safetensors", "state.json"}
"""Files that the manifest of a checkpoint must list, if one process wrote it."""
TEXTS = (
    'The quick brown fox, "jumps" — over 13 lazy dogs; isn\'t it?',
    "আমি বাংলায় গান গাই। ক্ষ্ণ",
    "Ünïcödé, Ελληνικά, Русский, עברית, العربية, हिन्दी",
    "漢字かな交じり文、한국어도。",
    "emoji 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 and e\u0301 ﬁ ½",
    "  two  spaces,\ta tab,\r\na line end\n\n\nthree, no-break\u00a0space, zero\u200bwidth ",
    "[MASK] <|end|> [UNK] <unk> are words like others",
    "",
)
"""Test texts: several scripts, joined emoji, combining marks, unusual white space and spellings of special tokens."""


def checkpoints(subject: VerifiedRun) -> Finding:
    """Check every file in the best and in the last checkpoint, and the logs, which must begin as the last one records.

    Files of checkpoints are compared by their SHA-256 and size.
    """
    files = 0
    for folder in dict.fromkeys(subject.run.checkpoints_folder / subject.run.read_pointer(which) for which in BOTH):
        subject.run.check_checkpoint(folder)
        listed_files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        if unlisted := sorted(_required_files(listed_files) - listed_files.keys()):
            raise GlassError(
                f"{folder / MANIFEST} does not list {unlisted[0]}", "Restore the checkpoint from a copy of the run."
            )
        files += len(listed_files)
    last = subject.run.checkpoints_folder / subject.run.read_pointer("last")
    check_logs(subject.folder, json.loads((last / "state.json").read_text(encoding="utf-8"))["logs"])
    return Finding(0, f"{files} files of the best and the last checkpoint, by SHA-256")


def _required_files(listed_files: Collection[str]) -> set[str]:
    """Return the required files, with one optimizer file per process if several processes wrote the state."""
    process_counts = [
        name.removesuffix(".safetensors").rsplit("-", 1)[1] for name in listed_files if name.startswith("optimizer-")
    ]
    if not process_counts:
        return NEEDED
    numbers = range(1, int(process_counts[0]) + 1)
    return NEEDED - {"optimizer.safetensors"} | {
        f"optimizer-{each}-of-{process_counts[0]}.safetensors" for each in numbers
    }


def settings_fit(subject: VerifiedRun) -> Finding:
    """Check that the weights fit the settings, tokenizer and labels, and that training can be resumed."""
    model = subject.opened.model
    number = sum(parameter.numel() for parameter in model.parameters())
    last = subject.run.checkpoint("last")
    model_copy = subject.copy()
    state = load_checkpoint(last, model_copy, make_optimizers(model_copy, subject.config.train))
    wrong = int(step_name(state.step) != last.name)
    note = f"{number:,} weights; {last.name} has the optimizer's state"
    return Finding(wrong, f"state.json in {last.name} is of step {state.step}" if wrong else note)


def vocabulary(subject: VerifiedRun) -> Finding:
    """Compare the settings, tokenizers, labels and chat template with the hashes in the run's manifest."""
    subject.run.check_files()
    return Finding(0, f"{' and '.join(sorted(subject.run.manifest()['files']))}, by SHA-256")


def round_trip(subject: VerifiedRun) -> Finding:
    """Check that texts survive encoding and decoding, up to changes that the tokenizer's settings imply."""
    opened = subject.opened
    failed_texts = list[str]()
    text_count = 0
    for tokenizer in {id(each): each for each in (opened.tokenizer, opened.source_tokenizer)}.values():
        for text in (*TEXTS, *_row_texts(subject)):
            text_count += 1
            if not survives_round_trip(tokenizer, text):
                failed_texts.append(text)
    example = f"; {failed_texts[0][:40]!r} is not restored" if failed_texts else ""
    return Finding(len(failed_texts), f"{text_count} texts; {opened.tokenizer.description()}{example}")


def survives_round_trip(tokenizer: Tokenizer, text: str) -> bool:
    """Return whether decoding, at once and streamed, restores the text, up to changes that the settings imply."""
    ids = tokenizer.encode(text)
    special = {tokenizer.end_id, tokenizer.mask_id}
    decoded = tokenizer.decode(ids)
    stream = tokenizer.stream_decoder()
    streamed = "".join(stream.feed(id) for id in ids) + stream.finish()
    valid = all(0 <= id < tokenizer.vocab_size and id not in special for id in ids) and streamed == decoded
    if tokenizer.unknown_id in ids:  # unknown symbols are lost, but all other text must be restored
        return valid and "\ufffd" in decoded and _known_parts_restored(tokenizer, text, decoded)
    return valid and _normalized(tokenizer, text) == _normalized(tokenizer, decoded)


def _known_parts_restored(tokenizer: Tokenizer, text: str, decoded: str) -> bool:
    """Return whether the substrings of `decoded` between unknown symbols occur in `text` in the same order."""
    expected = _normalized(tokenizer, text)
    position = 0
    for part in _normalized(tokenizer, decoded).split("\ufffd"):
        position = expected.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return True


def _normalized(tokenizer: Tokenizer, text: str) -> str:
    """Normalize the Unicode form and the case of a text as its tokenizer does.

    For WordPiece, also remove white space, which decoding does not restore.
    """
    steps: list[Callable[[str], str]] = []
    if tokenizer.normalization != "none":
        steps.append(lambda text: unicodedata.normalize(tokenizer.normalization.upper(), text))  # type: ignore[arg-type]
    if tokenizer.lowercase:
        steps.append(str.lower)
    if tokenizer.kind == "wordpiece":
        steps.append(lambda text: re.sub(r"\s+", "", text))
    for step in steps:
        text = step(text)
    return text


def _row_texts(subject: VerifiedRun) -> Iterator[str]:
    """Yield the decoded inputs of each row."""
    for row in subject.rows:
        yield subject.opened.tokenizer.decode(row.inputs.tolist())


def moved(subject: VerifiedRun) -> Finding:
    """Compare the run's outputs with those of a copy in another folder, without access to the text."""
    texts = _inputs(subject)
    with tempfile.TemporaryDirectory(prefix="glass-verify-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary) / "elsewhere"
        _copy_run(subject, folder)
        original_outputs = _output(OpenedRun.load(subject.folder, subject.which, "cpu").text_model, texts)
        copy_outputs = _output(OpenedRun.load(folder, subject.which, "cpu").text_model, texts)
    differing = sum(a != b for a, b in zip(original_outputs, copy_outputs, strict=True))
    return Finding(differing, f"{len(texts)} texts, with the run's files only")


def _copy_run(subject: VerifiedRun, folder: Path) -> None:
    """Copy the run's files and one checkpoint to `folder`, and erase the location of the text from the manifest."""
    checkpoint = subject.run.checkpoint(subject.which)
    shutil.copytree(subject.folder, folder, ignore=shutil.ignore_patterns("checkpoints", "lock", "*.partial"))
    shutil.copytree(checkpoint, folder / "checkpoints" / checkpoint.name)
    copy = Run(folder)
    for which in BOTH:
        copy.point(which, checkpoint)
    manifest = copy.manifest()
    copy.write_manifest({**manifest, "data": dict.fromkeys(manifest["data"], "nowhere")})


def _inputs(subject: VerifiedRun) -> list[str]:
    """Return a text for each row: the first half of its source or, without a source, of its input."""
    opened = subject.opened
    texts = list[str]()
    for row in subject.rows:
        has_source = row.source is not None
        ids = (row.inputs if row.source is None else row.source).tolist()
        tokenizer = opened.source_tokenizer if has_source else opened.tokenizer
        half = [id for id in ids[: max(1, len(ids) // 2)] if id != tokenizer.mask_id]
        texts.append(tokenizer.decode(half))
    return texts


def _output(model: AnyTextModel, texts: list[str]) -> list[Any]:
    """Return the model's output for each text."""
    if isinstance(model, MaskFiller):
        return [model.filled(text.replace(model.MASK, " ") + model.MASK) for text in texts]
    if isinstance(model, TextClassifier):
        return [row.tolist() for row in np.asarray(model.probabilities(texts))]
    settings = SampleConfig(tokens=16, temperature=0.8, seed=1)
    return [sample.text for sample in model.generate(texts, settings)]


CHECKS = (
    Check("checkpoints", "the checkpoint files and the logs are unaltered", 0, "files", checkpoints, files_only=True),
    Check(
        "settings",
        "settings, tokenizer and weights belong to one model",
        0,
        "mismatches",
        settings_fit,
        files_only=True,
    ),
    Check(
        "vocabulary",
        "settings, tokenizer and labels are those of training",
        0,
        "files that differ",
        vocabulary,
        files_only=True,
    ),
    Check("tokenizer", "decoding restores encoded text", 0, "texts that are not restored", round_trip),
    Check("moved", "a moved run without its text gives the same output", 0, "outputs that differ", moved),
)
