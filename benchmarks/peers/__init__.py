"""The measurements of `benchmarks/peers.py`, one kind per module; each yields instances of `rows.Row`."""
