"""Runs: the run folder, and how it is opened.

`folder` defines the names in a run folder, and creates, finds and checks run folders; `opening` has `OpenedRun`:
settings, tokenizer, model with weights, task and held-out rows of a run; `parent` has the run from which another run
begins; `run_text` finds the encoded text of a run, and `text_location` the text of a run that was moved. The training
state in a checkpoint belongs to `glassformer.training.checkpoint`.
"""
