"""Exercise: embedding and its gradient."""
