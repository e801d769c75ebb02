"""Inspection: record, explain and change a forward pass.

`sites` names the parts of a model and `catalogue` lists all tensors that can be recorded; `recording` records them and
`trace` records a whole forward pass. `patching` and `ablation` replace values. `heads` identifies the roles of
attention heads, `attribution` and `receipt` split a prediction into contributions, `explain` shows a forward pass as
numbers and formulas, `replay` shows heads during training, `pruning` removes heads, and `plots` draws figures.
"""
