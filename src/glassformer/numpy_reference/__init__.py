"""The transformer in NumPy alone: all three families, forward and backward, in float64, to be read beside the formulas.

It shares no line with the PyTorch model, imports nothing of it, and takes the same weights under the same names: a
second opinion, not a copy. Every layer is a pair of functions: `f` gives the output and what the way back needs,
`f_backward` turns the gradient of the output into those of the input and of the weights. Dropout is no part of it.

**To compare another implementation with it**, there is one call for every family:

    >>> import numpy as np
    >>> settings = Settings(family="decoder", layers=1, width=8, heads=2, context=4)
    >>> weights = initial_weights(settings, vocab_size=5)
    >>> logits(settings, weights, tokens=np.array([[3, 1, 4]])).shape
    (1, 3, 5)

Of a run on disk, the settings are `Settings(**tomllib.loads(text_of_config_toml)["model"])` and the weights are what
`safetensors.numpy.load_file` reads. An encoder-decoder also takes `source=` and `real_source=`; a classifier is an
encoder whose settings have `classes`.

**To train with it**: `train(settings, weights, batches)`, or `train_step`, or `gradients` alone.

Read in this order: `linear`, `norms`, `activations`, `feedforward`, `positions`, `attention`, `block`, `stack`,
`families`, `loss`, `adam`, `training`. Shapes are written in the letters of `glassformer.base.shapes`.
"""

from __future__ import annotations

from glassformer.numpy_reference.adam import AdamW, State, adamw
from glassformer.numpy_reference.families import backward, forward, logits
from glassformer.numpy_reference.initial import initial_weights, shapes
from glassformer.numpy_reference.inputs import Inputs
from glassformer.numpy_reference.loss import IGNORED, cross_entropy
from glassformer.numpy_reference.settings import Settings
from glassformer.numpy_reference.training import NumpyBatch, gradients, train, train_step

__all__ = [
    "IGNORED",
    "AdamW",
    "Inputs",
    "NumpyBatch",
    "Settings",
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
