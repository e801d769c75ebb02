"""Proof that what runs here is right: of a run's weights, and of this machine."""
