"""Exercise: the training loop."""
