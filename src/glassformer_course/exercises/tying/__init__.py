"""Exercise: the tied output layer."""
