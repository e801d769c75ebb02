"""Exercise: cross-attention and teacher forcing."""
