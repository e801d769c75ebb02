"""Transformer models, from token ids to logits: decoders, encoders and encoder-decoders.

Read `transformer` (block, stack, the three families) and `attention` (`attend`, `Attention`) first: they contain the
forward pass, with the shapes of the tensors in comments. `positions` has the position methods, and `cache` the
key-value cache. `build` makes a model with its initial weights, `weights` reads and writes weights, and `count` counts
parameters and FLOPs. `shapes_only` builds models without allocating their weights. `pruned_attention` is an attention
layer with some heads removed. `device`, `precision` and `threads` choose the device, the data type and the number of
CPU threads; `evaluation_mode` switches off dropout and gradients. Losses are in `glassformer.tasks.losses`.

`CONTRIBUTING.md` explains how to add an activation or a position method.
"""
