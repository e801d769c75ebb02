"""Which heads matter, and models without those that do not.

`importance` says how much the loss depends on each head, and `direct_effects` how much by its direct path alone;
`order` removes heads step by step and draws the curve; `hard_concrete` and `l0` learn which may go; `removal` takes
them out of weights and optimizer state; `prune` makes a run folder of what is left.
"""
