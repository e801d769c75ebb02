"""One case each: `NAME.py` plants the bug and gathers the evidence, `NAME.toml` has the words.

A module of a case has:

* `fault()`: a context in which the library has the bug; afterwards, also on errors, it is as before.
* `observe(bench)`: trains and measures, without the bug and with it.
* `shows(found)`: whether the evidence has what the explanation says of it.
"""
