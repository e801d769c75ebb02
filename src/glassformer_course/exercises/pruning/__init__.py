"""Exercise: which heads matter, and taking heads out."""
