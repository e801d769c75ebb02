"""Exercise: rotary positions."""
