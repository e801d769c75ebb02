"""Launch: create the trainer of a requested run.

`request` merges the settings of a new run from parent, corpus, recipe, file and options. `forecasting` chooses the
sizes that a recipe leaves unset, and forecasts time, memory and loss. `start` creates the trainer, in one process or in
all processes of torchrun, and lets Ctrl-C stop training after the current step. `glass train` and `glassformer.fit`
call the same functions.
"""
