"""Generate token ids from token ids; text is handled elsewhere.

`decoding` is the token loop: rows join, grow and leave. It serves single prompts, batches, streams and the server. The
loop gets next-token logits from `logit_readers` (with a cache: `slot_reader` and `slot_cache`; or without) and tokens
from `sampling`. `beam` is beam search with the same readers. `fast` computes the logits of one token per row with fewer
and larger kernels than the model itself. `context_window` chooses the tokens that a decoder reads, and `length_batches`
groups texts by length.
"""
