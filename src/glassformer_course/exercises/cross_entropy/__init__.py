"""Exercise: cross-entropy and perplexity."""
