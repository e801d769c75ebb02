"""Generation: token ids in, token ids out. Text is unknown here.

`decoding` is the token loop: rows join, grow and leave, for one prompt, many, streams and the server. It asks
`logit_readers` for the logits of the next tokens (with a cache, `slot_reader` and `slot_cache`, or anew each time) and
`sampling` for tokens. `beam` searches with the same readers. `fast` computes one token of each row on a processor with
fewer operations.
"""
