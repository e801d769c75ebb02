"""Exercise: the masked language model."""
