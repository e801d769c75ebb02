"""Base: errors, files, locks, settings, recipes and the legend of shapes.

`config` has all settings with their documentation; `settings` validates settings and reports unknown names; `recipes`
are named settings that ship with the package. `errors` has the two-line `GlassError`; `files` writes files atomically;
`locks` lets only one process at a time write to a folder; `report` prints a result as text or JSON; `pages` renders
HTML templates; `svg` draws pictures without a plotting library; `shapes` is the legend of the letters (B, T, S, D, H,
G, K, F, V, L, C) in shape comments. No module in this package imports torch or another subpackage of glassformer.
"""
