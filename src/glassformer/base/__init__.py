"""Base: errors, files, locks, settings, recipes and the letters of shapes, for all other packages.

`config` holds every setting with its documentation; `settings` validates settings and reports unknown ones; `recipes`
are named settings that ship with the package. `errors` has the two-line `GlassError`; `files` writes files atomically;
`locks` lets only one process at a time train a run; `report` prints a result as text or JSON, `pages` fills HTML
templates, `svg` draws pictures without a plotting library; `shapes` is the legend of the letters (B, T, S, D, H, K, F,
V, L) in shape comments. Nothing here imports torch.
"""
