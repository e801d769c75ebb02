"""Probes: behavioural tests of a run on texts that are made to test one skill. `probe_run` runs probes; `PROBES` lists
them.

Every accuracy is reported with the number of questions, an interval, chance, and the accuracy of simple heuristics (if
there are any for the probe). If a heuristic reaches the same accuracy, the probe does not show that the model does more
than the heuristic.
"""
