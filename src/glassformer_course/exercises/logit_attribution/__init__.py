"""Exercise: direct logit attribution."""
