"""Base: errors, files, locks, settings, recipes and the letters of shapes. Every other room imports from here.

`config` holds every setting with its documentation; `settings` says how a setting is checked and how an unknown one is
reported; `recipes` are named settings that ship with the package. `errors` has the two-line `GlassError`; `files`
writes files so that a killed process leaves the old one or the new one; `locks` lets one process at a time train a run;
`report` prints a result as text or JSON, `pages` fills HTML templates, `svg` draws without a plotting library; `shapes`
is the legend of the letters (B, T, S, D, H, K, F, V, L) in all comments. Nothing here imports torch.
"""
