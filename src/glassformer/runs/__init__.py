"""Create, find, check and open run folders.

`folder` defines the names in a run folder, and creates, finds and checks run folders; `opening` has `OpenedRun`, a run
in memory: settings, tokenizer, model with weights, task and held-out rows; `parent` has `Parent`, a run from which
another run starts; `run_text` prepares the text of a run and finds its encoded text, and `text_location` finds the text
of a run that was moved. `glassformer.training.checkpoint` reads and writes the training state in a checkpoint.
"""
