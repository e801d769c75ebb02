"""Exercise: the importance and the removal of heads."""
