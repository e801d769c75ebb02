"""Read and check a Hugging Face model, and convert it to our settings and tensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from glassformer.base.config import ModelConfig, Task
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.interop.huggingface.architecture import Architecture
from glassformer.interop.huggingface.choosing import ARCHITECTURES, architecture_of
from glassformer.interop.huggingface.equivalent_forms import IMPORT_FORMS, apply_forms
from glassformer.interop.huggingface.folder import FLOATS, TensorFiles, find_tensors, read_json
from glassformer.interop.huggingface.weights import Sinusoids, Tensors
from glassformer.model.build import build_model
from glassformer.model.transformer import Model
from glassformer.runs.folder import Folder


@dataclass(frozen=True)
class ImportedModel:
    """Model read from a Hugging Face folder, with its settings and labels.

    Attributes:
        architecture: description of the Hugging Face class.
        values: fields of `config.json`.
        config: our settings.
        model: the model with its weights, in evaluation mode.
        task: task of the model.
        labels: labels of a classifier; empty for other models.
    """

    architecture: Architecture
    values: dict[str, Any]
    config: ModelConfig
    model: Model
    task: Task
    labels: tuple[str, ...]


def read_model(folder: Folder) -> ImportedModel:
    """Read a folder that `save_pretrained` of transformers wrote.

    Raises:
        GlassError: a file is missing or damaged; the class is unknown; our models cannot express a setting or tensor;
            tensors are missing or unexpected, or their shapes differ from those that `config.json` implies.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise GlassError(f"{folder} is not a folder", "Give the folder that contains config.json and the weights.")
    path = folder / "config.json"
    values = read_json(path, "a config.json")
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        problem = "no field model_type" if model_type is None else f"model_type = {model_type!r}"
        model_types = sorted({each.model_type for each in ARCHITECTURES.values()})
        raise GlassError(f"{path} has {problem}", f"Set model_type to one of: {', '.join(model_types)}.")
    architecture = architecture_of(model_type, values.get("architectures"))
    task, labels = _task(architecture, values, path)
    config = architecture.read_config(values, str(path))
    if config.vocab_size is None or config.vocab_size < 2:
        raise GlassError(f"{path} has vocab_size = {config.vocab_size}", "Set it to 2 or more.")
    if architecture.classes[task].endswith("ForTokenClassification") and task == "classify":
        config = config.replace(pooling=_pooling(values, path))
    tensor_files = find_tensors(folder)
    layers = max(config.layers, config.encoder_layers or 0)
    if layers > len(tensor_files.shapes):  # refuse before all these layers are allocated
        raise GlassError(
            f"{path} has {layers} layers, but {folder} has only {counted(len(tensor_files.shapes), 'tensors')}",
            "Copy config.json and the weights again from the same model.",
        )
    our_shapes, their_shapes = architecture.shapes(config, len(labels) or None)
    names = _file_names(
        architecture, tensor_files, {name: tuple(tensor.shape) for name, tensor in their_shapes.items()}, path
    )
    theirs = tensor_files.load(names)
    _check_sinusoids(architecture, theirs, config)
    ours = architecture.to_ours(theirs, config, our_shapes)
    import_forms = [IMPORT_FORMS[name] for name in reversed(architecture.rewrites) if name in IMPORT_FORMS]
    config, ours = apply_forms(import_forms, config, ours)
    model = build_model(config, classes=len(labels) or None)
    model.load_state_dict(ours)
    return ImportedModel(architecture, values, config, model.eval(), task, labels)


def _task(architecture: Architecture, values: dict[str, Any], path: Path) -> tuple[Task, tuple[str, ...]]:
    """Return the task of the class in `architectures`, and the labels of a classifier."""
    class_names = values.get("architectures") or [next(iter(architecture.classes.values()))]
    supported = set(architecture.classes.values())
    if not isinstance(class_names, list) or len(class_names) != 1 or str(class_names[0]) not in supported:
        raise _unsupported_class(architecture, class_names, path)
    only_classifies = list(architecture.classes) == ["classify"]
    if not only_classifies and (len(architecture.classes) == 1 or architecture.family != "encoder"):
        return next(iter(architecture.classes)), ()
    id2label = values.get("id2label") or {str(number): f"LABEL_{number}" for number in range(2)}
    if not isinstance(id2label, dict) or set(map(str, id2label)) != set(map(str, range(len(id2label)))):
        raise GlassError(f"id2label in {path} does not name every label from 0 on", "Correct id2label.")
    if not only_classifies and values.get("summary_type") is None:
        if len(id2label) != values.get("vocab_size"):
            raise GlassError(
                f"{path} has {len(id2label)} labels for tokens, but no summary_type for the labels of whole texts",
                'Add "summary_type": "first" (scores of the first token) or "mean" (mean over the tokens).',
            )
        return "masked", ()
    return "classify", _label_names(id2label, values, path)


def _label_names(id2label: dict[Any, Any], values: dict[str, Any], path: Path) -> tuple[str, ...]:
    """Return the names in `id2label`, in the order of the scores.

    Raises:
        GlassError: there is only one label, two labels have the same name, `label2id` has another number for a label,
            or `problem_type` says that the scores are not those of one label for each text.
    """
    labels = tuple(str(id2label.get(str(number), id2label.get(number))) for number in range(len(id2label)))
    if len(set(labels)) < len(labels):
        name = next(label for label in labels if labels.count(label) > 1)
        raise GlassError(f"id2label in {path} has two labels with the name {name!r}", "Give each label its own name.")
    label2id = values.get("label2id")
    for number, label in enumerate(labels):
        other_number = label2id.get(label, number) if isinstance(label2id, dict) else number
        if str(other_number) != str(number):
            raise GlassError(
                f"{label!r} is label {number} in id2label of {path}, but label {other_number} in its label2id",
                "Correct the wrong field, by the order of the labels with which the model was trained.",
            )
    problem_type = values.get("problem_type")
    if problem_type not in (None, "single_label_classification") or len(labels) < 2:
        what = f"problem_type = {problem_type}" if len(labels) > 1 else f"only one label, {labels[0]!r}"
        raise GlassError(
            f"{path} has {what}, but our classifiers give the probability of each label, of which one is right",
            "Import a model that chooses one of at least two labels (single_label_classification).",
        )
    return labels


def _unsupported_class(architecture: Architecture, class_names: Any, path: Path) -> GlassError:
    """Return the error for an unsupported class; it names the nearest supported class, or all of them."""
    class_text = ", ".join(map(str, class_names)) if isinstance(class_names, list) else str(class_names)
    related = [each for each in ARCHITECTURES.values() if each.model_type == architecture.model_type]
    supported = ", ".join(sorted({name for each in related for name in each.classes.values()}))
    if class_text.endswith("ForSequenceClassification") and architecture.family == "encoder":
        nearest = class_text.replace("Sequence", "Token")
        return GlassError(
            f"{path} has architectures = {class_text}, whose head has a linear layer and tanh, which our models lack",
            f'Nearest: {nearest} with "summary_type": "first", whose output layer reads the first token directly.',
        )
    return GlassError(
        f"{path} has architectures = {class_text}, which is not supported", f"Supported classes: {supported}."
    )


def _pooling(values: dict[str, Any], path: Path) -> str:
    if values["summary_type"] not in ("first", "mean"):
        raise GlassError(f"{path} has summary_type = {values['summary_type']!r}", "Set it to first or mean.")
    return str(values["summary_type"])


def _file_names(
    architecture: Architecture, tensor_files: TensorFiles, expected: dict[str, tuple[int, ...]], path: Path
) -> dict[str, str]:
    """Return the name in the file for each expected tensor, except sinusoidal tables that the file lacks."""
    prefix = architecture.prefix
    sinusoids = {rule.theirs for rule in architecture.rules if isinstance(rule, Sinusoids)}
    bare = bool(prefix) and not any(name.startswith(prefix) for name in tensor_files.shapes)
    names = {name: name.removeprefix(prefix) if bare else name for name in expected}
    for expected_name, name in list(names.items()):
        if name not in tensor_files.shapes and expected_name in sinusoids:
            del names[expected_name]
            continue
        if name not in tensor_files.shapes:
            other = _older_name(architecture, name, tensor_files) or _alias_of(
                architecture, expected_name, tensor_files
            )
            if other is None:
                raise GlassError(
                    f"{tensor_files.folder} has no tensor {name}, which {path} requires",
                    "Copy the whole model again, or correct config.json.",
                )
            names[expected_name] = other
        file_name = names[expected_name]
        if tensor_files.dtypes[file_name] not in FLOATS:
            raise GlassError(
                f"{file_name} in {tensor_files.files[file_name]} has dtype {tensor_files.dtypes[file_name]}",
                "Give the model with its weights in float64, float32, float16 or bfloat16.",
            )
        if tensor_files.shapes[file_name] != expected[expected_name]:
            raise GlassError(
                f"{file_name} has shape {tensor_files.shapes[file_name]}, but {path} implies {expected[expected_name]}",
                "Copy config.json and the weights again from the same model.",
            )
    _check_unused(architecture, tensor_files, names)
    return names


def _check_sinusoids(architecture: Architecture, theirs: Tensors, config: ModelConfig) -> None:
    """Raise a `GlassError` if a table of sinusoids in the file differs from the table that the class requires."""
    for rule in architecture.rules:
        table = theirs.get(rule.theirs) if isinstance(rule, Sinusoids) else None
        if (
            isinstance(rule, Sinusoids)
            and table is not None
            and not torch.allclose(table.float(), rule.table(config), atol=1e-3)
        ):
            raise GlassError(
                f"{rule.theirs} is not the table of sinusoids that {architecture.name} models have",
                "Nearest: bart or blenderbot, whose position tables are learned.",
            )


def _alias_of(architecture: Architecture, expected_name: str, tensor_files: TensorFiles) -> str | None:
    aliases = architecture.aliases or {}
    return next((name for name, main in aliases.items() if main == expected_name and name in tensor_files.shapes), None)


def _older_name(architecture: Architecture, name: str, tensor_files: TensorFiles) -> str | None:
    """Return the name that an older file uses for a tensor; None if the folder has no tensor with such a name."""
    others = (name.removesuffix(new) + old for new, old in architecture.renamed.items() if name.endswith(new))
    return next((other for other in others if other in tensor_files.shapes), None)


def _check_unused(architecture: Architecture, tensor_files: TensorFiles, names: dict[str, str]) -> None:
    """Raise a `GlassError` for an unused tensor, unless the class ignores it or it equals a used tensor."""
    aliases = dict(architecture.aliases or {})
    used = {name: expected_name for expected_name, name in names.items()}
    tied = next((name for name in names if name.endswith(("wte.weight", "embed_tokens.weight"))), None)
    if tied is not None and "lm_head.weight" not in names:
        aliases["lm_head.weight"] = tied
    for name in tensor_files.shapes:
        if name in used or name.endswith(architecture.ignored or ("\0",)):
            continue
        if name not in aliases:
            raise GlassError(
                f"{tensor_files.folder} has a tensor that {architecture.name} models do not have: {name}",
                "Remove the tensor if it has no effect on the result, or import another model.",
            )
        pair = tensor_files.load({"copy": name, "main": names[aliases[name]]})
        if pair["copy"].shape != pair["main"].shape or not torch.equal(pair["copy"], pair["main"]):
            raise GlassError(
                f"{name} differs from {names[aliases[name]]}, but config.json says that they are tied",
                "Correct tie_word_embeddings in config.json, or remove the tensor.",
            )
