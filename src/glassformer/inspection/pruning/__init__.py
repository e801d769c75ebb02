"""Importance and pruning of attention heads.

`importance` measures the importance of each head for the loss, and `direct_effects` its effect along the direct path;
`order` removes heads step by step and computes the pruning curve; `hard_concrete` and `l0` learn which heads to remove;
`removal` removes heads from weights and optimizer state; `prune` writes a run folder with the pruned model.
"""
