"""Check answers: each runs in a separate process with NumPy only, and its results are compared with the reference."""
