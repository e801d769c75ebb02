"""The model: ids to logits, for decoders, encoders and encoder-decoders.

Read `transformer` (block, stack, the three families) and `attention` (`attend`, `Attention`) first: they are the whole
forward pass, with the shape of each tensor beside the line that makes it. `positions` has the position methods,
`cache` the keys and values that writing keeps, `build` makes a model with its initial weights, `weights` reads and
writes them, `count` counts parameters and operations. `pruned_attention` is an attention without some of its heads.
`device` and `precision` choose where and in which type a model computes. Losses are in `glassformer.tasks.losses`.

`CONTRIBUTING.md` says what a new activation and a new position method take.
"""
