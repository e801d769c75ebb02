"""Verification: the checks behind the proof sheet of `glass verify`, made with a run's own weights on this machine.

`sheet` runs all checks. Each `*_checks` module has one group of them; `device` compares devices and precisions.
"""
