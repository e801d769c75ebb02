"""Putting questions to an answer: in a process of its own that has NumPy alone, compared here with the reference."""
