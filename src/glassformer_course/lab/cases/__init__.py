"""The cases of the lab: `NAME.py` plants the bug and gathers the evidence, `NAME.toml` contains the texts.

Each module has three functions:

* `fault()`: context manager in which the library has the bug; afterwards, even after errors, the library is restored.
* `observe(trainer)`: trains and measures both models, and returns the evidence.
* `evidence_shows_bug(evidence)`: returns whether the evidence supports the explanation.
"""
