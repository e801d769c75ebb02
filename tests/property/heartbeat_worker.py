"""A process with a heartbeat, for `test_heartbeat.py`: RANK WORLD_SIZE PORT SECONDS."""

from __future__ import annotations

import os
import sys
import time

from torch.distributed import TCPStore

from glassformer.training.parallel import heartbeat


def main(rank: int, world_size: int, port: int, seconds: float) -> None:
    """Beat twice a second, while the main thread is busy for some seconds.

    A process is then lost after four seconds: on a busy machine, it may not run for one.
    """
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    heartbeat.BEAT = 0.5
    store = TCPStore("127.0.0.1", port, None, rank == 0, wait_for_workers=False)
    with heartbeat.Heartbeat(store, rank, world_size).running():
        print("beats", flush=True)
        time.sleep(seconds)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
