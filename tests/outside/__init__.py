"""Programs of other people that are too large for the test suite: each has a group of its own in CI."""
