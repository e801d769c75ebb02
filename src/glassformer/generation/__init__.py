"""Generation: token ids in, token ids out. Text is unknown here.

`decoding` is the token loop for rows of one length or many; `continuous` lets rows join and leave a running batch;
`beam` searches; `sampling` chooses the next token from logits. `fast` writes one row on a processor with fewer
operations.
"""
