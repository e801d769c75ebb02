"""Views of attention: one head, all heads, one query token, one cell, and the alignment of source and target.

All of them use one forward pass, `attention_pass.AttentionPass`, whose kind is in the field `pass` of each answer. For
a short text it is "observed": scores and patterns are tensors of that pass. For a long text it is "recomputed": all
scores and patterns of 12 layers of 12 heads on 4,096 tokens would take 19 GB, so only queries, keys and values are kept
(450 MB), and the layer's own attention computes the rows that a view requests.
"""
