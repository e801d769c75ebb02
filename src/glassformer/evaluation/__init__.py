"""Evaluation: how good a run is, with intervals and baselines.

`evaluate` is `glass evaluate`: `language`, `masked`, `labels` and `pairs` measure the four kinds of tasks; `ladder`,
`ngrams` and `nearest` are baselines; `translation`, `rouge` and `classification` are metrics, `resampling` their
intervals. `probes` test behaviour on texts whose answers are known; `copying` and `seen` find text that a run has seen
in training.
"""
