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
from glassformer.base.files import MANIFEST, check_folder
from glassformer.runs.folder import Which
from glassformer.runs.opening import OpenedRun
from glassformer.runs.run_text import stored_text
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
    """Check the SHA-256 and size of every file in the best and in the last checkpoint."""
    files = 0
    for which in BOTH:
        folder = _pointed(subject, which)
        check_folder(folder)
        noted = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        if unnoted := sorted(_needed(noted) - noted.keys()):
            raise GlassError(
                f"{folder / MANIFEST} does not list {unnoted[0]}", "Restore the checkpoint from a copy of the run."
            )
        files += len(noted)
    return Finding(0, f"{files} files of the best and the last checkpoint, by SHA-256")


def _needed(noted: Collection[str]) -> set[str]:
    """Return the required files, with one optimizer file per process if several processes wrote the state."""
    parts = [name.removesuffix(".safetensors").rsplit("-", 1)[1] for name in noted if name.startswith("optimizer-")]
    if not parts:
        return NEEDED
    numbers = range(1, int(parts[0]) + 1)
    return NEEDED - {"optimizer.safetensors"} | {f"optimizer-{each}-of-{parts[0]}.safetensors" for each in numbers}


def _pointed(subject: VerifiedRun, which: Which) -> Path:
    """Return the checkpoint folder that `best` or `last` names, without checking it."""
    try:
        return subject.run.checkpoints_folder / (subject.folder / which).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise GlassError(
            f"{subject.folder / which} does not name a checkpoint", "Restore it from a copy of the run."
        ) from None


def settings_fit(subject: VerifiedRun) -> Finding:
    """Check that the weights fit the settings, tokenizer and labels, and that training can be resumed."""
    model = subject.opened.model
    number = sum(parameter.numel() for parameter in model.parameters())
    last = subject.run.checkpoint("last")
    own = subject.copy()
    state = load_checkpoint(last, own, make_optimizers(own, subject.config.train))
    wrong = int(step_name(state.step) != last.name)
    note = f"{number:,} weights; {last.name} has the optimizer's state"
    return Finding(wrong, f"the optimizer's state in {last.name} is that of step {state.step}" if wrong else note)


def vocabulary(subject: VerifiedRun) -> Finding:
    """Compare the tokenizer files with the digests in the run's manifest or, if it has none, in its encoded text."""
    opened = subject.opened
    run = subject.run
    files = {run.tokenizer_file.name: opened.tokenizer}
    if opened.config.two_vocabularies:
        files[run.source_tokenizer_file.name] = opened.source_tokenizer
    noted = _noted(subject)
    wrong = [name for name, tokenizer in files.items() if noted[name] != tokenizer.digest]
    return Finding(len(wrong), f"{' and '.join(wrong or files)}, by SHA-256")


def _noted(subject: VerifiedRun) -> dict[str, str]:
    """Return the digests of the tokenizers used in training, by file name; empty if the digests are unknown."""
    manifest = subject.run.manifest()
    run = subject.run
    if isinstance(manifest.get("tokenizers"), dict) and manifest["tokenizers"]:
        return {str(name): str(digest) for name, digest in manifest["tokenizers"].items()}
    try:
        data = stored_text(run, subject.config)
    except GlassError:
        return {}
    source = getattr(data, "source_tokenizer", data.tokenizer)
    return {run.tokenizer_file.name: data.tokenizer.digest, run.source_tokenizer_file.name: source.digest}


def not_noted(subject: VerifiedRun) -> str | None:
    """Return the reason why the tokenizer of an old run without its text cannot be checked; None if it can."""
    return (
        None if _noted(subject) else "the run's manifest has no tokenizer digest, and the run's text is not available"
    )


def round_trip(subject: VerifiedRun) -> Finding:
    """Check that texts survive encoding and decoding, up to the losses that the tokenizer's settings imply."""
    opened = subject.opened
    wrong = list[str]()
    tried = 0
    for tokenizer in {id(each): each for each in (opened.tokenizer, opened.source_tokenizer)}.values():
        for text in (*TEXTS, *_own_texts(subject)):
            tried += 1
            if not comes_back(tokenizer, text):
                wrong.append(text)
    shown = f"; {wrong[0][:40]!r} is not restored" if wrong else ""
    return Finding(len(wrong), f"{tried} texts; {opened.tokenizer.description()}{shown}")


def comes_back(tokenizer: Tokenizer, text: str) -> bool:
    """Return whether decoding, at once and streamed, restores the text up to losses that the settings imply."""
    ids = tokenizer.encode(text)
    special = {tokenizer.end_id, tokenizer.mask_id}
    back = tokenizer.decode(ids)
    stream = tokenizer.stream_decoder()
    streamed = "".join(stream.feed(id) for id in ids) + stream.finish()
    sound = all(0 <= id < tokenizer.vocab_size and id not in special for id in ids) and streamed == back
    if tokenizer.unknown_id in ids:  # unknown symbols are lost, but all other text must be restored
        return sound and "\ufffd" in back and _kept_apart(tokenizer, text, back)
    return sound and _as_promised(tokenizer, text) == _as_promised(tokenizer, back)


def _kept_apart(tokenizer: Tokenizer, text: str, back: str) -> bool:
    """Return whether the substrings of `back` between unknown symbols occur in `text` in the same order."""
    wanted = _as_promised(tokenizer, text)
    position = 0
    for part in _as_promised(tokenizer, back).split("\ufffd"):
        position = wanted.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return True


def _as_promised(tokenizer: Tokenizer, text: str) -> str:
    """Normalize a text as its tokenizer does: Unicode form, case and, for WordPiece, white space."""
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


def _own_texts(subject: VerifiedRun) -> Iterator[str]:
    """Yield the text of each row."""
    for row in subject.rows:
        yield subject.opened.tokenizer.decode(row.inputs.tolist())


def moved(subject: VerifiedRun) -> Finding:
    """Compare the run's outputs with those of a copy in another folder, without access to the text."""
    texts = _inputs(subject)
    with tempfile.TemporaryDirectory(prefix="glass-verify-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary) / "elsewhere"
        _copy(subject, folder)
        here = _output(OpenedRun.load(subject.folder, subject.which, "cpu").text_model, texts)
        there = _output(OpenedRun.load(folder, subject.which, "cpu").text_model, texts)
    differing = sum(a != b for a, b in zip(here, there, strict=True))
    return Finding(differing, f"{len(texts)} texts, with the run's files only")


def _copy(subject: VerifiedRun, folder: Path) -> None:
    """Copy the run's files and one checkpoint to `folder`, and erase the location of the text."""
    kept = _pointed(subject, subject.which)
    subject.run.manifest()  # so that the error for a missing or damaged manifest names the original, not the copy
    shutil.copytree(subject.folder, folder, ignore=shutil.ignore_patterns("checkpoints", "lock", "*.partial"))
    shutil.copytree(kept, folder / "checkpoints" / kept.name)
    for which in BOTH:
        (folder / which).write_text(kept.name + "\n", encoding="utf-8")
    facts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    facts["data"] = dict.fromkeys(facts["data"], "nowhere")
    (folder / MANIFEST).write_text(json.dumps(facts), encoding="utf-8")


def _inputs(subject: VerifiedRun) -> list[str]:
    """Return a text for each row: the first half of its source or, without a source, of its input."""
    opened = subject.opened
    texts = list[str]()
    for row in subject.rows:
        pair = row.source is not None
        ids = (row.inputs if row.source is None else row.source).tolist()
        tokenizer = opened.source_tokenizer if pair else opened.tokenizer
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
    Check("checkpoints", "the checkpoint files are unaltered", 0, "files", checkpoints, files_only=True),
    Check(
        "settings",
        "settings, tokenizer and weights belong to one model",
        0,
        "mismatches",
        settings_fit,
        files_only=True,
    ),
    Check("vocabulary", "the tokenizer is the one used in training", 0, "files that differ", vocabulary, not_noted),
    Check("tokenizer", "decoding restores encoded text", 0, "texts that are not restored", round_trip),
    Check("moved", "a moved run without its text gives the same output", 0, "texts that differ", moved),
)
