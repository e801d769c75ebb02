"""Inspection: look inside a forward pass, and change it.

`sites` names the parts of a model and `catalogue` all tensors that can be recorded; `recording` keeps them, `trace`
holds a whole pass, `patching` and `ablation` put other values in their place. `heads` finds the roles of attention
heads, `attribution` and `receipt` say what a prediction is made of, `explain` shows a pass as numbers and formulas,
`replay` shows heads while they learn, `pruning` removes heads, `plots` draws.
"""
