"""Campaigns: long randomized tests that stop and resume training, or break the code.

`python -m tests.campaigns.kills --help`, `python -m tests.campaigns.second_resume --help` and
`python -m tests.campaigns.faults --help` explain them. The test suite runs a few rounds of the first two; run hundreds
of rounds before a release.
"""
