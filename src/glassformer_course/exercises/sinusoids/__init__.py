"""Exercise: sinusoidal positions."""
