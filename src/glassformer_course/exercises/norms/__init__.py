"""Exercise: LayerNorm and RMSNorm."""
