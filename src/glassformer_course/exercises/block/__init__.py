"""Exercise: the pre-norm block."""
