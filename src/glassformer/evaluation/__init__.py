"""Evaluation of runs: metrics, confidence intervals and baselines.

`evaluate` implements `glass evaluate`. `language_report`, `masked_report`, `label_report`, `pair_report` and
`chat_report` measure the kinds of tasks. `simple_predictors`, `ngrams` and `nearest_neighbour` are baselines, which
`baseline_table` compares. `translation`, `rouge` and `classification` are metrics, and `resampling` computes their
intervals. `probes` test behaviour on text with known answers. `copying` and `training_overlap` find text that a run has
seen in training.
"""
