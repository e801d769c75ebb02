"""Exercise: KV cache."""
