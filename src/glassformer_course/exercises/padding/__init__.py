"""Exercise: padding."""
