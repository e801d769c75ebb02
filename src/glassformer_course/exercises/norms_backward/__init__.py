"""Exercise: gradients of LayerNorm and RMSNorm."""
