"""Exercise: attention with a KV cache and rotary positions."""
