"""Exercise: the learning-rate schedule."""
