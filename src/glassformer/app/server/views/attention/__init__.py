"""The views of attention: one head, all heads, one token, one cell, and which source words a target is made from.

All of them read one forward pass, `attention_pass.AttentionPass`, and `pass` in each answer says which one. Of a short
text it is "observed": scores and patterns are tensors of that pass. Of a long one it is "recomputed": all scores and
patterns of 12 layers of 12 heads on 4,096 tokens would take 19 GB, so queries, keys and values are kept (450 MB), and
the layer's own attention runs on the rows that a view asks for.
"""
