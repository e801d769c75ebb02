"""Exercise: dot product and matrix product."""
