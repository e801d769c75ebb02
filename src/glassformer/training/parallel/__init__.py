"""Parallel training: processes started by `torchrun` that train one run together.

`Processes` is the interface for the training loop. `OneProcess` is the case of a single process; `Replicas` have a
whole model each (DDP); `Shards` have a part of every weight each (FSDP2, `train.shard`). `joining` reads torchrun's
environment; `sharded_files` reads and writes the checkpoints of sharded runs.
"""
