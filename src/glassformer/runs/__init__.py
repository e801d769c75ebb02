"""Runs: the run folder, and how it is opened.

`folder` knows the names in a run folder and creates, finds and checks it; `opening` has `OpenedRun`: settings,
tokenizer, model with weights, task and held-out rows of a run; `run_text` finds its encoded text, and `text_location`
the text of a run that was moved. What a checkpoint holds beside the weights is training's:
`glassformer.training.checkpoint`.
"""
