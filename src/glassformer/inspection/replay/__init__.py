"""Attention heads during training: snapshots in the run folder, "births" of head roles, and animations.

A role is born when a head first has it in several consecutive snapshots (see `Birth`).

`snapshot` defines the file format, `head_arrays` computes a snapshot from a model, and `of_run` takes snapshots during
training. `history` reads all snapshots of a run, and `table`, `page` and `animation` show this history.
"""

from glassformer.inspection.replay.history import Birth, History, read_history
from glassformer.inspection.replay.snapshot import Snapshot, read_snapshot

__all__ = ["Birth", "History", "Snapshot", "read_history", "read_snapshot"]
