"""The kinds of work of `benchmarks/peers.py`, one in each file; every one yields `rows.Row`s."""
