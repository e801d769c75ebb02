"""`glass import FOLDER --out RUN`: convert a Hugging Face model to a run folder."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.base.config import OF_DECODERS, PAIRS, Config, command_for
from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.files import convert_os_errors, no_empty_folders, partial_path
from glassformer.interop.export_report import Comparison
from glassformer.interop.huggingface.folder import read_json
from glassformer.interop.huggingface.read_model import ImportedModel, read_model
from glassformer.interop.huggingface.tokenizer_import import ImportedTokenizer, read_tokenizer
from glassformer.runs.folder import CHAT_TEMPLATE_FILE, Run, create_run, refuse_existing
from glassformer.training.checkpoint import TrainState, save_checkpoint
from glassformer.training.optimizers import make_optimizers

SPECIAL = ("eos_token_id", "decoder_start_token_id", "forced_bos_token_id")
"""Fields whose value in `generation_config.json` overrides the value in `config.json`."""
WRITING: dict[str, Any] = {
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "min_length": 0,
    "repetition_penalty": 1.0,
    "bad_words_ids": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}
"""Fields for generation that runs do not keep, with the values that have no effect."""
DEFAULT = "default"
"""Name of the chat template that is used by default."""
MORE_TEMPLATES = "additional_chat_templates"
"""Folder of named chat templates; without one named `DEFAULT`, the default is `chat_template.jinja` beside it."""


@dataclass(frozen=True)
class ImportReport:
    """Report on the import of a Hugging Face model folder.

    Attributes:
        run: the new run folder.
        architecture: the Hugging Face class.
        task: task of the run.
        parameters: number of parameters.
        measured: comparison with transformers, if it is installed.
        notes: remarks for the user.
    """

    run: Path
    architecture: str
    task: str
    parameters: int
    measured: tuple[Comparison, ...]
    notes: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON values, for `--json`."""
        return {
            "run": str(self.run),
            "architecture": self.architecture,
            "task": self.task,
            "parameters": self.parameters,
            "measured": [{**each.__dict__, "ok": each.ok} for each in self.measured],
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """Return the report as lines of text."""
        return "\n".join(
            [
                f"{self.run}: {self.architecture}, {self.parameters:,} parameters",
                *(each.line() for each in self.measured),
                *(f"note: {note}" for note in self.notes),
                f"{self.run} is ready: {command_for(self.run, self.task)}",
            ]
        )


def import_model(folder: Path, out: Path, note: Callable[[str], None]) -> ImportReport:
    """Import a Hugging Face model folder as a new run.

    Raises:
        GlassError: `out` is not empty, `folder` is a run, a file cannot be read or converted (see `read_model` and
            `read_tokenizer`), or the logits differ from those of transformers; then nothing is written.
    """
    refuse_existing(out)
    if (folder / "config.toml").exists() and not (folder / "config.json").exists():
        raise GlassError(
            f"{folder} is a run already, not a Hugging Face folder",
            "Use it as it is, or convert it with glass export --to hf.",
        )
    found, said = _with_generation_fields(read_model(folder), folder)
    words = read_tokenizer(folder, found.model.vocab_size, found.task, found.values)
    note(f"read {found.architecture.classes[found.task]} and its tokenizer: {words.tokenizer.description()}")
    measured, notes = _compared(folder, found, note)
    notes += said
    config = _config(found, words, folder)
    template = None
    if found.task in OF_DECODERS:
        template, left_out = _chat_template(folder, out)
        notes += left_out
    _write_run(out, found, words, config, folder, template)
    parameters = sum(parameter.numel() for parameter in found.model.parameters())
    kind = found.architecture.classes[found.task]
    return ImportReport(out, kind, found.task, parameters, measured, tuple(notes))


def _with_generation_fields(found: ImportedModel, folder: Path) -> tuple[ImportedModel, list[str]]:
    """Add the `SPECIAL` fields of `generation_config.json`; also return notes on the fields that runs do not keep."""
    path = folder / "generation_config.json"
    table = read_json(path, "a model") if path.exists() else {}
    values = {**found.values, **{name: table[name] for name in SPECIAL if table.get(name) is not None}}
    told = [f"{name} = {value}" for name, default in WRITING.items() if (value := values.get(name, default)) != default]
    told += [f"{name} = {table[name]}" for name, default in WRITING.items() if table.get(name, default) != default]
    kept = ", ".join(dict.fromkeys(told))
    notes = (
        [f"the model's generation settings {kept} are not imported; the run's [sample] settings apply"] if kept else []
    )
    return replace(found, values=values), notes


def _compared(
    folder: Path, found: ImportedModel, note: Callable[[str], None]
) -> tuple[tuple[Comparison, ...], list[str]]:
    """Compare the model's logits with those of transformers, or return a note that it is not installed.

    Raises:
        GlassError: the logits differ, or transformers cannot load the folder.
    """
    if importlib.util.find_spec("transformers") is None:
        return (), ["not compared with transformers, which is not installed"]
    from glassformer.interop.huggingface.compare import compare_logits

    note("comparing with transformers")
    kind = found.architecture.classes[found.task]
    measured = compare_logits(folder, kind, found.model, found.architecture.needs_padding)
    if not measured.ok:
        raise GlassError(
            f"the imported model does not match transformers: logits differ by {measured.value:g}",
            "This is a bug in glassformer: please report it with the model's config.json.",
        )
    return (measured,), []


def _config(found: ImportedModel, words: ImportedTokenizer, folder: Path) -> Config:
    model = found.config.model_dump(exclude_none=True)
    joint = found.config.shared_embedding or found.task not in PAIRS
    return Config.from_dict(
        {
            "model": {**model, "vocab_size": None, "source_vocab_size": None},
            "tokenizer": {"kind": words.tokenizer.kind, "vocab_size": words.tokenizer.vocab_size, "joint": joint},
            "data": {"source": str(folder), **({"windows": "documents"} if _in_frames(found, words) else {})},
            "train": {"task": found.task},
        },
        str(folder),
    )


def _in_frames(found: ImportedModel, words: ImportedTokenizer) -> bool:
    return words.framed and found.task in ("lm", "masked")


def _chat_template(folder: Path, out: Path) -> tuple[str | None, list[str]]:
    """Return the chat template, and notes on templates that are left out.

    As in transformers, template files take precedence over the tokenizer's entry, and of several templates, the
    template named default is used.

    Raises:
        GlassError: a template cannot be read.
    """
    own = folder / CHAT_TEMPLATE_FILE
    named = {DEFAULT: _read_template(own)} if own.exists() else {}
    for path in sorted((folder / MORE_TEMPLATES).glob("*.jinja")):
        named[path.stem] = _read_template(path)
    if not named:
        named = _configured_templates(folder)
    others = [name for name in named if name != DEFAULT]
    if not others:
        return named.get(DEFAULT), []
    listed = ", ".join(others)
    if DEFAULT in named:
        return named[DEFAULT], [f"imported the chat template named {DEFAULT}; left out: {listed}"]
    problem = f"no chat template is imported: the folder has templates named {listed}, but none named {DEFAULT}"
    return None, [f"{problem}. Copy one of them to {out / CHAT_TEMPLATE_FILE}"]


def _read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GlassError(f"{path} cannot be read: {error}", "Copy it again, or remove it from the folder.") from None


def _configured_templates(folder: Path) -> dict[str, str]:
    """Return the chat templates in `tokenizer_config.json` by name; a template without a name is the default."""
    path = folder / "tokenizer_config.json"
    found = read_json(path, "a tokenizer").get("chat_template") if path.exists() else None
    if found is None:
        return {}
    if isinstance(found, str):
        return {DEFAULT: found}
    try:
        named = {each["name"]: each["template"] for each in found}
        if all(isinstance(text, str) for text in (*named, *named.values())):
            return named
    except MALFORMED:
        pass
    raise GlassError(
        f"chat_template in {path} is neither a string nor a list of named templates",
        'Correct or remove chat_template; an item of the list looks like {"name": "default", "template": "..."}.',
    )


def _write_run(
    out: Path, found: ImportedModel, words: ImportedTokenizer, config: Config, folder: Path, template: str | None
) -> None:
    """Write the complete run folder, or nothing."""
    partial = partial_path(out)
    facts = {
        "data": {"source": str(folder), "text_hash": "not known", "tokens": "not known"},
        "tokenizers": dict.fromkeys(("tokenizer.json", "source_tokenizer.json"), words.tokenizer.digest),
        "imported": {"architecture": found.architecture.name, "from": str(folder)},
    }
    with no_empty_folders(out.parent), convert_os_errors(out):
        try:
            run: Run = create_run(partial, config, facts)
            words.tokenizer.save(run.tokenizer_file)
            if config.two_vocabularies:
                words.tokenizer.save(run.source_tokenizer_file)
            if found.labels:
                run.save_labels(found.labels)
            if template is not None:
                run.save_chat_template(template)
            optimizers = make_optimizers(found.model, config.train)
            save_checkpoint(run, found.model, optimizers, TrainState(), config)
            if out.exists():
                out.rmdir()  # an existing folder is empty here
            partial.rename(out)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
