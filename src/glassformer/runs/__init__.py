"""Runs: the run folder, and how it is opened.

`folder` knows the names in a run folder and creates, finds and checks it; `opening` joins settings, tokenizer, model
and weights (`load_text_model`); `text_places` finds the text of a run that was moved. What a checkpoint holds beside
the weights is training's: `glassformer.training.checkpoint`.
"""
