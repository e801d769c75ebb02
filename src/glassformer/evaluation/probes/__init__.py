"""Probes: does a run know one thing, asked with texts that are made for it. `probe_run` asks, `PROBES` names them.

Every accuracy stands beside its number of questions, its interval, chance, and what rules get that know nothing of it:
a figure that a rule reaches too shows no more than the rule.
"""
