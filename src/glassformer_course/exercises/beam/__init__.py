"""Exercise: beam search with a length penalty."""
