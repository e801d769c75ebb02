"""Exercise: sampling with temperature, top-k and top-p."""
