"""Probes: behavioural tests of a run on texts made for one question. `probe_run` runs them, `PROBES` lists them.

Every accuracy is reported with its number of questions, its interval, chance, and the accuracy of simple heuristics. An
accuracy that a heuristic also reaches is no evidence of more than the heuristic.
"""
