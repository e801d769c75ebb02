"""Launch: from a request for a run to a trainer that is ready to take steps.

`request` joins the settings of a new run: corpus, recipe, file, options. `forecasting` chooses the sizes that a recipe
leaves open and forecasts time, memory and loss. `start` opens the trainer, in one process or in all of torchrun;
Ctrl-C then stops the training after a step. `glass train` and `glassformer.fit` call the same functions.
"""
