"""Views of attention: one head, all heads, one query token, one cell, alignment of source and target, roles of heads.

All these views except `roles` use one forward pass, `attention_pass.AttentionPass`; the field `pass` of each response
has its kind. For a short text, the kind is "observed": scores and patterns are tensors of that pass. For a long text,
it is "recomputed": all scores and patterns of 12 layers of 12 heads on 4,096 tokens would take 19 GB, so only queries,
keys and values are kept (450 MB if a head has width 64), from which the attention module of the layer computes the
rows that a view requests.
"""
