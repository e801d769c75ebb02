"""`glass import FOLDER --out RUN`: convert a Hugging Face model to a run folder."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glassformer.base.config import OF_DECODERS, PAIRS, Config, command_for
from glassformer.base.errors import MALFORMED, GlassError
from glassformer.base.files import new_output
from glassformer.interop.export_report import Comparison
from glassformer.interop.huggingface.folder import read_json
from glassformer.interop.huggingface.read_model import ImportedModel, read_model
from glassformer.interop.huggingface.tokenizer_import import ImportedTokenizer, read_tokenizer
from glassformer.runs.folder import CHAT_TEMPLATE_FILE, Run, create_run, refuse_existing
from glassformer.training.checkpoint import TrainState, save_checkpoint
from glassformer.training.optimizers import make_optimizers

SPECIAL = ("eos_token_id", "decoder_start_token_id", "forced_bos_token_id")
"""Fields whose value in `generation_config.json` overrides the value in `config.json`."""
IGNORED_GENERATION_FIELDS: dict[str, Any] = {
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "min_length": 0,
    "repetition_penalty": 1.0,
    "bad_words_ids": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}
"""Generation field that is not imported -> the value that has no effect."""
DEFAULT = "default"
"""Name of the chat template that is used by default."""
MORE_TEMPLATES = "additional_chat_templates"
"""Folder of named chat templates; a template named `DEFAULT` in it takes precedence over `chat_template.jinja`."""


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
            `read_tokenizer`), or the logits differ from those of transformers. In each case, nothing is written.
    """
    refuse_existing(out)
    if (folder / "config.toml").exists() and not (folder / "config.json").exists():
        raise GlassError(
            f"{folder} is already a run, not a Hugging Face folder",
            "Use it as it is, or convert it with glass export --to hf.",
        )
    imported, generation_notes = _with_generation_fields(read_model(folder), folder)
    imported_tokenizer = read_tokenizer(folder, imported.model.vocab_size, imported.task, imported.values)
    note(
        f"read {imported.architecture.classes[imported.task]} and its tokenizer: "
        f"{imported_tokenizer.tokenizer.description()}"
    )
    comparisons, notes = _compare_with_transformers(folder, imported, note)
    notes += generation_notes
    config = _config(imported, imported_tokenizer, folder)
    template = None
    if imported.task in OF_DECODERS:
        template, template_notes = _chat_template(folder, out)
        notes += template_notes
    _write_run(out, imported, imported_tokenizer, config, folder, template)
    parameters = sum(parameter.numel() for parameter in imported.model.parameters())
    class_name = imported.architecture.classes[imported.task]
    return ImportReport(out, class_name, imported.task, parameters, comparisons, tuple(notes))


def _with_generation_fields(imported: ImportedModel, folder: Path) -> tuple[ImportedModel, list[str]]:
    """Add the `SPECIAL` fields of `generation_config.json`; also return notes on the fields that are not imported."""
    path = folder / "generation_config.json"
    generation_config = read_json(path, "a model") if path.exists() else {}
    values = {
        **imported.values,
        **{name: generation_config[name] for name in SPECIAL if generation_config.get(name) is not None},
    }
    ignored = [
        f"{name} = {value}"
        for name, default in IGNORED_GENERATION_FIELDS.items()
        if (value := values.get(name, default)) != default
    ]
    ignored += [
        f"{name} = {generation_config[name]}"
        for name, default in IGNORED_GENERATION_FIELDS.items()
        if generation_config.get(name, default) != default
    ]
    ignored_text = ", ".join(dict.fromkeys(ignored))
    notes = (
        [f"not imported from the model's generation settings: {ignored_text}; the run's [sample] settings apply"]
        if ignored_text
        else []
    )
    return replace(imported, values=values), notes


def _compare_with_transformers(
    folder: Path, imported: ImportedModel, note: Callable[[str], None]
) -> tuple[tuple[Comparison, ...], list[str]]:
    """Compare the model's logits with those of transformers, or return a note that it is not installed.

    Raises:
        GlassError: the logits differ, or transformers cannot load the folder.
    """
    if importlib.util.find_spec("transformers") is None:
        return (), ["not compared with transformers, which is not installed"]
    from glassformer.interop.huggingface.compare import compare_logits

    note("comparing with transformers")
    class_name = imported.architecture.classes[imported.task]
    comparison = compare_logits(folder, class_name, imported.model, imported.architecture.needs_padding)
    if not comparison.ok:
        raise GlassError(
            f"the imported model does not match transformers: logits differ by {comparison.value:g}",
            "This is a bug in glassformer: please report it with the model's config.json.",
        )
    return (comparison,), []


def _config(imported: ImportedModel, imported_tokenizer: ImportedTokenizer, folder: Path) -> Config:
    model = imported.config.model_dump(exclude_none=True)
    joint = imported.config.shared_embedding or imported.task not in PAIRS
    return Config.from_dict(
        {
            "model": {**model, "vocab_size": None, "source_vocab_size": None},
            "tokenizer": {
                "kind": imported_tokenizer.tokenizer.kind,
                "vocab_size": imported_tokenizer.tokenizer.vocab_size,
                "joint": joint,
            },
            "data": {
                "source": str(folder),
                **({"windows": "documents"} if _uses_document_windows(imported, imported_tokenizer) else {}),
            },
            "train": {"task": imported.task, "precision": "fp32", "muon_precision": "fp32"},
        },
        str(folder),
    )


def _uses_document_windows(imported: ImportedModel, imported_tokenizer: ImportedTokenizer) -> bool:
    return imported_tokenizer.framed and imported.task in ("lm", "masked")


def _chat_template(folder: Path, out: Path) -> tuple[str | None, list[str]]:
    """Return the chat template, and notes on templates that are left out.

    As in transformers, template files take precedence over the tokenizer's entry, and if there are several
    templates, the template named `default` is used.

    Raises:
        GlassError: a template cannot be read.
    """
    default_path = folder / CHAT_TEMPLATE_FILE
    templates = {DEFAULT: _read_template(default_path)} if default_path.exists() else {}
    for path in sorted((folder / MORE_TEMPLATES).glob("*.jinja")):
        templates[path.stem] = _read_template(path)
    if not templates:
        templates = _configured_templates(folder)
    other_names = [name for name in templates if name != DEFAULT]
    if not other_names:
        return templates.get(DEFAULT), []
    listed = ", ".join(other_names)
    if DEFAULT in templates:
        return templates[DEFAULT], [f"imported the chat template named {DEFAULT}; left out: {listed}"]
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
    entry = read_json(path, "a tokenizer").get("chat_template") if path.exists() else None
    if entry is None:
        return {}
    if isinstance(entry, str):
        return {DEFAULT: entry}
    try:
        templates = {each["name"]: each["template"] for each in entry}
        if all(isinstance(text, str) for text in (*templates, *templates.values())):
            return templates
    except MALFORMED:
        pass
    raise GlassError(
        f"chat_template in {path} is neither a string nor a list of named templates",
        'Correct or remove chat_template; an item of the list looks like {"name": "default", "template": "..."}.',
    )


def _write_run(
    out: Path,
    imported: ImportedModel,
    imported_tokenizer: ImportedTokenizer,
    config: Config,
    folder: Path,
    template: str | None,
) -> None:
    """Write the complete run folder, or nothing."""
    facts = {
        "data": {"source": str(folder), "text_hash": "not known", "tokens": "not known"},
        "imported": {"architecture": imported.architecture.name, "from": str(folder)},
    }

    def add(run: Run) -> None:
        imported_tokenizer.tokenizer.save(run.tokenizer_file)
        if config.two_vocabularies:
            imported_tokenizer.tokenizer.save(run.source_tokenizer_file)
        if imported.labels:
            run.save_labels(imported.labels)
        if template is not None:
            run.save_chat_template(template)

    with new_output(out) as temporary:
        run = create_run(temporary, config, facts, add)
        optimizers = make_optimizers(imported.model, config.train)
        save_checkpoint(run, imported.model, optimizers, TrainState(), config)
