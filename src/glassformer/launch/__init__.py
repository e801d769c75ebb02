"""Launch: creation of a trainer from a request for a run.

`request` merges the settings of a new run: corpus, recipe, file, options. `forecasting` chooses the sizes that a recipe
leaves open, and forecasts time, memory and loss. `start` opens the trainer, in one process or in all processes of
torchrun; Ctrl-C then stops training after a step. `glass train` and `glassformer.fit` call the same functions.
"""
