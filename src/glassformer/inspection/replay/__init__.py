"""Attention while a model learns: snapshots in the run folder, when each head was born, and moving pictures of it.

`snapshot` is the file, `head_arrays` makes one from a model, `history` reads them all; `table`, `page` and `animation`
show them. `glassformer.inspection.replay.of_run` takes them during training.
"""

from glassformer.inspection.replay.history import Birth, History, read_history
from glassformer.inspection.replay.snapshot import Snapshot, read_snapshot

__all__ = ["Birth", "History", "Snapshot", "read_history", "read_snapshot"]
