"""Importance and pruning of attention heads.

`importance` measures how much the loss depends on each head, and `direct_effects` how much by its direct path alone;
`order` removes heads step by step and computes the pruning curve; `hard_concrete` and `l0` learn which heads to remove;
`removal` removes them from weights and optimizer state; `prune` makes a run folder of the pruned model.
"""
