"""Importance and pruning of attention heads.

`importance` measures how important each head is for the loss, and `direct_effects` the effect of its direct path;
`order` removes heads step by step and computes the pruning curve; `hard_concrete` and `l0` learn which heads to remove;
`removal` removes heads from weights and optimizer state; `new_run` writes the run folder of a pruned model; `prune`
(the command `glass prune`) and `chosen_heads` (heads chosen by the user) combine these steps.
"""
