"""Parallel training: processes started by `torchrun` that train one run together.

`Processes` is the interface for the training loop. `OneProcess` is for a single process; in `Replicas`, each process
has the whole model (DDP); in `Shards`, each process has a shard of every weight (FSDP2, `train.shard`). `joining` reads
torchrun's environment; `sharded_files` reads and writes the checkpoints of sharded runs.
"""
