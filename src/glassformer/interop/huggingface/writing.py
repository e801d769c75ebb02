"""Convert a glassformer model to a Hugging Face class: fields of `config.json` and tensors."""

from __future__ import annotations

from typing import Any

from glassformer.base.config import ModelConfig, Task
from glassformer.interop.huggingface.architecture import Architecture
from glassformer.interop.huggingface.choosing import closest_form
from glassformer.interop.huggingface.weights import Tensors
from glassformer.model.transformer import Model


def to_huggingface(architecture: Architecture, model: Model, task: Task) -> tuple[dict[str, Any], Tensors]:
    """Return the fields of `config.json`, except the tokenizer's fields, and the tensors.

    Raises:
        GlassError: the class lacks one of the model's tensors.
    """
    config: ModelConfig = model.config.replace(vocab_size=model.vocab_size)
    form, ours = closest_form(architecture, config, dict(model.state_dict()))
    theirs = {
        name: tensor.detach().cpu().clone().contiguous() for name, tensor in architecture.to_theirs(ours, form).items()
    }
    values = {"architectures": [architecture.classes[task]], **architecture.write_config(form), "dtype": "float32"}
    return values, theirs
