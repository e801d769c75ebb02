"""The processes that train one run together, as `torchrun` starts them.

`Processes` is what the training loop asks of them. `OneProcess` is the ordinary case and does nothing; `Replicas`
keep a whole model each (DDP); `Shards` keep a part of every weight each (FSDP2, `train.shard`). `joining` reads
torchrun's environment; `sharded_files` are the checkpoints of sharded runs.
"""
