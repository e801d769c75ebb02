"""Exercise: the answer mask of conversations."""
