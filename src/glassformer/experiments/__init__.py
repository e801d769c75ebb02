"""Experiments for `glass compare`: grids of runs that differ in a few settings, with several seeds each.

`grid` lists the runs, `runner` and `worker` train them, and `statistics`, `report` and `pictures` compare them. `study`
loads the predefined grids in the folder `studies`. `part_removal` removes components of a model that no setting can
remove. `cost` measures the time and memory of a forward and backward pass.
"""
