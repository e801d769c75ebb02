"""Exercise: byte pair encoding."""
