"""Exercise: an induction head, built by hand."""
