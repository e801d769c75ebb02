"""Campaigns: long randomized tests that stop and resume training, alter run folders, or break the code.

`python -m tests.campaigns.kills --help`, and the same with `second_resume`, `outputs`, `alterations` and `faults`,
explain them.
The test suite runs a few rounds of the first three; run hundreds of rounds before a release.
"""
