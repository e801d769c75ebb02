"""The views of attention: one head, all heads, one token, one cell, and which source words a target is made from.

All of them stand on `looked.Looked`: the queries and keys of one forward pass, from which the weights of any head, or
of some of its rows, are worked out by the library's `attend` when they are asked for. All weights of 12 layers of 12
heads on 4,096 tokens would take 9.7 GB; queries and keys take 300 MB, and one head's weights 8 MB at a time.
"""
