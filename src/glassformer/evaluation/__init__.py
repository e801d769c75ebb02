"""Evaluation: how good a run is, with intervals and baselines.

`evaluate` is `glass evaluate`: `language_report`, `masked_report`, `label_report` and `pair_report` measure the four
kinds of tasks; `simple_predictors`, `ngrams` and `nearest_neighbour` are baselines, `baseline_table` compares with
them; `translation`, `rouge` and `classification` are metrics, `resampling` their intervals. `probes` test behaviour on
texts whose answers are known; `copying` and `training_overlap` find text that a run has seen in training.
"""
