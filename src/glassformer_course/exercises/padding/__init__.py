"""Exercise: padding is nobody's key."""
