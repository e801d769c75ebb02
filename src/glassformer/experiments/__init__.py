"""Experiments for `glass compare`: grids of runs that differ in a few settings, with several seeds each.

`grid` lists the runs, `runner` and `worker` train them, `statistics` and `report` compare them, and `studies` are
predefined grids. `cost` measures the time and memory of a forward and backward pass.
"""
