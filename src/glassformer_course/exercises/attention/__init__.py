"""Exercise: single-head attention."""
