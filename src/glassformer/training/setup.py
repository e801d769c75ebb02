"""From settings to a trainer that is ready to go, for a new run or an interrupted one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from glassformer.config import Config
from glassformer.data.corpora import CORPORA
from glassformer.data.corpora.truth import true_nats
from glassformer.data.prepare import Prepared, open_prepared, prepare
from glassformer.data.store import DamagedStoreError
from glassformer.errors import GlassError
from glassformer.files import write_text
from glassformer.model.build import build_model
from glassformer.model.device import choose_device
from glassformer.runs import Run, create_run, list_runs, open_run, refuse_existing
from glassformer.tokenizers import Tokenizer
from glassformer.training.reporting import Reporter
from glassformer.training.trainer import Trainer

LIMITS = (
    "steps",
    "minutes",
    "until_loss",
    "patience",
    "evaluate_every",
    "save_every",
    "log_every",
    "threads",
    "device",
)
"""Settings of `train` that a resumed run may change: they say how long and where, not what."""


def new_training(config: Config, folder: Path, reporter: Reporter) -> Trainer:
    """Read and encode the text, build the model, make the run folder.

    Args:
        config: all settings.
        folder: of the run; must not hold one yet.
        reporter: is told what happens.
    """
    refuse_existing(folder)
    if config.model.family != "decoder":
        raise GlassError(
            f"model.family = {config.model.family} cannot be trained as a language model", "Set model.family = decoder."
        )
    choose_device(config.train.device)
    _set_threads(config)
    data = prepare(config.data, config.tokenizer, token_cache(folder), reporter.note)
    for note in data.notes:
        reporter.note(note)
    _refuse_short_text(data, config)
    model = build_model(config.model, data.tokenizer.vocab_size, config.train.seed)
    facts = {"data": {"source": config.data.source, "text_hash": data.text_hash, "tokens": str(data.folder.resolve())}}
    run = create_run(folder, config, facts)
    data.tokenizer.save(run.tokenizer_file)
    return Trainer(run, config, model, data, reporter, _floor(config, data))


def resume_training(folder: Path, changes: dict[str, str], reporter: Reporter) -> Trainer:
    """Take up an interrupted run where its newest whole checkpoint left it.

    Args:
        folder: of the run.
        changes: `train.…` limits to change, as text; nothing else of a run may change.
        reporter: is told what happens.
    """
    run = open_run(folder)
    config = run.config()
    for key in changes:
        if key not in {f"train.{name}" for name in LIMITS}:
            raise GlassError(
                f"{key} cannot change when a run is resumed",
                f"Only {', '.join('train.' + name for name in LIMITS)} can; for the rest start a new run.",
            )
    config = config.with_changes(changes)
    _set_threads(config)
    data = encoded_text(run, config, reporter.note)
    model = build_model(config.model, data.tokenizer.vocab_size, config.train.seed)
    trainer = Trainer(run, config, model, data, reporter, _floor(config, data))
    trainer.resume()
    if not run.tokenizer_file.exists():  # the run was killed before it was written
        data.tokenizer.save(run.tokenizer_file)
    if changes:
        write_text(run.folder / "config.toml", config.to_toml())
    reporter.note(f"going on with {folder} after step {trainer.state.step}")
    return trainer


def token_cache(folder: Path) -> Path:
    """Where encoded texts lie: beside the runs, so that runs share them and a run can be moved without them."""
    return folder.resolve().parent / ".tokens"


def newest_run(parent: Path) -> Path:
    """The run that was used last, for `--resume` without a name."""
    runs = list_runs(parent)
    if not runs:
        raise GlassError(f"there is no run to resume in {parent}", "Name one: glass train --resume --out RUN")
    return runs[-1].folder


def encoded_text(run: Run, config: Config, note: Callable[[str], None]) -> Prepared:
    """The encoded text that the run began with; encoded again if it is gone, refused if it is another text now."""
    facts = run.manifest()["data"]
    stored = Path(facts["tokens"])
    try:
        return open_prepared(stored)
    except DamagedStoreError as error:
        problem = error.problem if stored.is_dir() else f"{stored} is gone"
        if config.data.source not in CORPORA and not Path(config.data.source).expanduser().exists():
            raise GlassError(
                f"{problem}, and so is {config.data.source}, the text that {run.folder} began with",
                "Put it back where it was, or run the command in the folder where the run began.",
            ) from None
        note(f"{problem}: reading {config.data.source} again")
    data = prepare(config.data, config.tokenizer, token_cache(run.folder), note)
    if data.text_hash != facts["text_hash"]:
        raise GlassError(
            f"{config.data.source} is not the text that {run.folder} began with: its hash differs",
            "Restore the text, or start a new run.",
        )
    if data.tokenizer.digest != Tokenizer.load(run.tokenizer_file).digest:
        raise GlassError(
            f"training the tokenizer again did not give that of {run.folder}: another version of a library does it now",
            "Install the versions that the run's manifest.json names, or give evaluate a text of its own.",
        )
    return data


def _refuse_short_text(data: Prepared, config: Config) -> None:
    """Say in numbers when a text cannot fill one window, before anything is written."""
    tokens = len(data.train.tokens)
    if config.data.windows == "stream" and tokens <= config.model.context:
        raise GlassError(
            f"the training part has {tokens:,} tokens, but one window needs {config.model.context + 1:,}",
            f"Give a longer text, or --set model.context={max(1, tokens // 4)}",
        )


def _floor(config: Config, data: Prepared) -> float | None:
    """The true entropy of the validation part in nats per predicted token, where the text is generated."""
    if config.data.source not in CORPORA:
        return None
    truth = true_nats(data.validation, data.tokenizer, config.data.source)
    predicted = len(data.validation) - (config.data.windows == "stream")
    return truth[0] / predicted if truth is not None else None


def _set_threads(config: Config) -> None:
    """Use the threads that the settings name; torch's own choice otherwise."""
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
