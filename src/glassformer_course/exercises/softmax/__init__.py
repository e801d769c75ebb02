"""Exercise: stable softmax."""
