"""Verification: the checks that `glass verify` runs on one run and lists in its report.

`report` runs all checks. Each `*_checks` module defines one group of checks; most checks use the run's own weights.
`device` compares devices and precisions, with random weights.
"""
