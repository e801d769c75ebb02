"""Evaluation of runs: metrics, confidence intervals and baselines.

`evaluate` implements `glass evaluate`. `language_report`, `masked_report`, `label_report`, `pair_report` and
`chat_report` evaluate the different tasks. `simple_predictors`, `ngrams` and `nearest_neighbour` are baselines;
`baseline_table` compares baselines of language models. `translation`, `rouge` and `classification` are metrics, and
`resampling` computes their intervals. `probes` test behaviour on text with known answers. `copying` and
`training_overlap` find text that a run has seen in training.
"""
