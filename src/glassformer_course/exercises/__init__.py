"""Exercises of the course, one folder each."""
