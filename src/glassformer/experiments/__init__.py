"""Experiments: grids of runs that differ in a few settings, with seeds, for `glass compare`.

`grid` lists the runs, `runner` and `worker` train them, `statistics` and `report` compare them, `studies` are ready
grids; `cost` says what the arithmetic of a model costs.
"""
