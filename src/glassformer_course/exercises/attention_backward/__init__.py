"""Exercise: gradients of attention."""
