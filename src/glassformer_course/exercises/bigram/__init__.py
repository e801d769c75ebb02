"""Exercise: a bigram language model."""
