"""Experiments: grids of runs that differ in a few settings, with seeds, and what the arithmetic of a model costs."""
