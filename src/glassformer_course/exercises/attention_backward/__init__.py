"""Exercise: attention, backward."""
