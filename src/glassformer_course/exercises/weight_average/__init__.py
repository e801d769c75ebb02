"""Exercise: averages of weights."""
