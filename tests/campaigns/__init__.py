"""Campaigns: many runs that are stopped and resumed at random, compared with runs that nobody stopped.

`python -m tests.campaigns.kills --help` and `python -m tests.campaigns.second_resume --help` explain them. A few rounds
of each run in the test suite; hundreds are for before a release.
"""
