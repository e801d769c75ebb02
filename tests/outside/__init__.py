"""Checks with external programs that are too large for the test suite; CI runs each check separately."""
