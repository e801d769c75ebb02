"""Exercise: attention and means that ignore padding."""
