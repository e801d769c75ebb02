"""Verification: the checks behind the report of `glass verify`, made for one run on this machine.

`report` runs all checks. Each `*_checks` module has one group of them, most of which use the run's own weights;
`device` compares devices and precisions, with random weights.
"""
