"""Legend of the shape comments in this package. It has no code.

======  ==============================================================
letter  meaning
======  ==============================================================
B       batch size: number of rows processed together
T       query length: number of tokens per row in this call
S       key length: number of tokens that can be attended to (T plus the tokens in the cache; in cross-attention, the
        number of source tokens)
D       width of the residual stream (``model.width``)
H       number of query heads (``model.heads``)
G       number of key and value heads (``model.kv_heads``; H: multi-head, 1: multi-query, between: grouped-query)
K       width of one head: of its queries and keys (``model.head_width``)
U       width of one head's values (``model.value_width``; unset: K)
F       hidden width of the feed-forward layer (``model.hidden``)
V       vocabulary size (``model.vocab_size``)
L       number of layers (``model.layers``)
C       number of classes of a classifier (``model.classes``)
======  ==============================================================

A shape in a comment, such as ``# (B, H, T, S)``, reads left to right in the order of the tensor's axes.
"""
