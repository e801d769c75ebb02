"""NumPy reference implementation of the transformer: all three families, forward and backward, in float64.

It is written to be read next to the formulas. It shares no code with the PyTorch model, but takes the same settings,
and the same weights under the same names. Every layer is a pair of functions: `f` returns the output and the values
saved for the backward pass, and `f_backward` maps the gradient of the output to the gradients of the input and the
weights. There is no dropout.

**To compare another implementation with it**, call `logits`, which takes a model of any family:

    >>> import numpy as np
    >>> from glassformer.base.config import ModelConfig
    >>> settings = ModelConfig(family="decoder", layers=1, width=8, heads=2, context=4)
    >>> weights = initial_weights(settings, vocab_size=5)
    >>> logits(settings, weights, tokens=np.array([[3, 1, 4]])).shape
    (1, 3, 5)

For a run on disk, get the settings with `Config.read(path_of_config_toml).model` and the weights with
`safetensors.numpy.load_file`. An encoder-decoder also takes `source=` and `source_attention_mask=`. A classifier is an
encoder whose settings have `classes`; `classes` is usually unset in `config.toml`, so set it to the number of labels.

**To train with it**, use `train(settings, weights, batches)`, `train_step` or `gradients`.

Read in this order: `linear`, `norms`, `activations`, `feedforward`, `positions`, `attention`, `block`, `stack`,
`families`, `loss`, `adam`, `training`. `glassformer.base.shapes` defines the letters of the shapes.
"""

from __future__ import annotations

from glassformer.numpy_reference.adam import AdamW, State, adamw
from glassformer.numpy_reference.families import backward, forward, logits
from glassformer.numpy_reference.initial import initial_weights, shapes
from glassformer.numpy_reference.inputs import Inputs
from glassformer.numpy_reference.loss import IGNORED, cross_entropy
from glassformer.numpy_reference.training import NumpyBatch, gradients, train, train_step

__all__ = [
    "IGNORED",
    "AdamW",
    "Inputs",
    "NumpyBatch",
    "State",
    "adamw",
    "backward",
    "cross_entropy",
    "forward",
    "gradients",
    "initial_weights",
    "logits",
    "shapes",
    "train",
    "train_step",
]
