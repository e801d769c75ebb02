"""Save fitted estimators as run folders, which commands can open, with an additional `estimator.json`.

The folder has no pickles: weights are safetensors, and other files are JSON, TOML or plain text. If an estimator
is pickled, for example to send it to another process, the pickle contains the bytes of the files of the run folder.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glassformer.base.files import write_folder
from glassformer.base.version import __version__
from glassformer.interop.sklearn.inputs import RefusedError
from glassformer.model.weights import save_tensors
from glassformer.runs.folder import Run, create_run
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import AnyTextModel, TextClassifier
from glassformer.training.checkpoint import TrainState, step_name, write_state

FORMAT = 1
ESTIMATOR = "estimator.json"
PLAIN = (str, bool, int, float, type(None))


def write_run(folder: Path, text_model: AnyTextModel, step: int) -> None:
    """Write the files that `OpenedRun.load` reads: settings, tokenizers, labels and one checkpoint.

    Raises:
        GlassError: the folder is not empty, or cannot be written.
    """
    config = text_model.config
    tokenizer = text_model.tokenizer

    def add(run: Run) -> None:
        tokenizer.save(run.tokenizer_file)
        if config.two_vocabularies:
            text_model.source_tokenizer.save(run.source_tokenizer_file)
        if isinstance(text_model, TextClassifier):
            run.save_labels(text_model.labels)

    def fill(checkpoint: Path) -> None:
        state = text_model.model.state_dict()
        weights = {name: value.float() if value.is_floating_point() else value for name, value in state.items()}
        save_tensors(weights, checkpoint / "model.safetensors")
        write_state(checkpoint, run, TrainState(step=step), {}, config)

    run = create_run(folder, config, {"data": {"source": config.data.source, "text_hash": "", "tokens": ""}}, add)
    checkpoint = run.checkpoints_folder / step_name(step)
    write_folder(checkpoint, fill)
    run.point("best", checkpoint)
    run.point("last", checkpoint)


def packed(text_model: AnyTextModel, step: int) -> dict[str, bytes]:
    """Return the contents of the files that `write_run` writes, by path."""
    with tempfile.TemporaryDirectory(prefix="glass-pack-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary) / "run"
        write_run(folder, text_model, step)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def unpacked(files: Mapping[str, bytes], device: str) -> AnyTextModel:
    """Load the text model from the files that `packed` returned."""
    with tempfile.TemporaryDirectory(prefix="glass-pack-", ignore_cleanup_errors=True) as temporary:
        for name, data in files.items():
            path = Path(temporary) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return OpenedRun.load(Path(temporary), device=device).text_model


def estimator_json(name: str, parameters: Mapping[str, Any], fitted: Mapping[str, Any]) -> str:
    """Return the contents of `estimator.json`.

    Args:
        name: name of the class.
        parameters: arguments of its constructor. A `random_state` that is not an integer is saved as null.
        fitted: results of `fit` besides the model.

    Raises:
        RefusedError: a parameter cannot be written as JSON.
    """
    plain_parameters = {key: _to_json_value(value, key) for key, value in parameters.items() if key != "random_state"}
    seed = parameters.get("random_state")
    plain_parameters["random_state"] = (
        _to_json_value(seed, "random_state") if isinstance(seed, int | np.integer) else None
    )
    facts = {
        "format": FORMAT,
        "glassformer": __version__,
        "estimator": name,
        "parameters": plain_parameters,
        "fitted": fitted,
    }
    return json.dumps(facts, indent=1, ensure_ascii=False) + "\n"


def read_estimator(folder: Path, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of a saved estimator and its results of `fit`.

    Raises:
        RefusedError: the folder contains no estimator of this class, its `estimator.json` is damaged, or it has another
            format version.
    """
    path = folder / ESTIMATOR
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        saved_name = facts["estimator"]
        format = facts["format"]
        parameters = dict(facts["parameters"])
        fitted = dict(facts["fitted"])
    except OSError:
        raise RefusedError(
            f"{folder} contains no saved estimator: there is no {ESTIMATOR}", "Give a folder that save wrote."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise RefusedError(f"{path} is damaged", "Copy it again from where it was saved.") from None
    if format != FORMAT:
        raise RefusedError(f"{path} has format {format}, not {FORMAT}", "Use the version of glassformer that wrote it.")
    if saved_name != name:
        raise RefusedError(f"{folder} contains a {saved_name}, not a {name}", f"Use {saved_name}.load.")
    return parameters, fitted


def _to_json_value(value: Any, name: str) -> Any:
    """Return a parameter as a JSON value."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {str(key): _to_json_value(one, name) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(one, name) for one in value]
    if not isinstance(value, PLAIN):
        raise RefusedError(f"{name} = {value!r:.60} cannot be saved", "Use numbers, strings, lists and dictionaries.")
    return value
