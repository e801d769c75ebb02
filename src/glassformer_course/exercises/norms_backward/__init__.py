"""Exercise: norms, backward."""
