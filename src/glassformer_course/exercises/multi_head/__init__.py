"""Exercise: multi-head attention."""
