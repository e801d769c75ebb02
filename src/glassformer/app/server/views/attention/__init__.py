"""The views of attention: one head, all heads, one token, one cell, and which source words a target is made from.

All of them stand on `attention_pass.AttentionPass`: one forward pass, and `pass` in each answer says which one made the
numbers. Of a short text, "observed": scores and patterns are tensors of that pass. Of a long one, "recomputed": all scores
and patterns of 12 layers of 12 heads on 4,096 tokens would take 19 GB, so queries, keys and values are kept (450 MB),
and the layer's own attention runs on a few rows of them when they are asked for.
"""
