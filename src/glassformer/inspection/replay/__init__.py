"""Attention heads during training: snapshots in the run folder, births of head roles, and animations.

`snapshot` is the file format, `head_arrays` computes a snapshot from a model, `history` reads all snapshots of a run;
`table`, `page` and `animation` show them. `glassformer.inspection.replay.of_run` takes snapshots during training.
"""

from glassformer.inspection.replay.history import Birth, History, read_history
from glassformer.inspection.replay.snapshot import Snapshot, read_snapshot

__all__ = ["Birth", "History", "Snapshot", "read_history", "read_snapshot"]
