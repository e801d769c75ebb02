"""Exercise: temperature, top-k, top-p and a draw."""
