"""Memory and speed of preparing a large text: the anonymous resident memory must stay below a limit, whatever the size.

Makes a text of the wanted size in a temporary folder (deleted afterwards), prepares it, and prints the highest
`RssAnon` of each step (Linux; the memory-mapped store itself is file memory and does not count).

    python benchmarks/memory_of_large_text.py --megabytes 1000 --kind bpe
    python benchmarks/memory_of_large_text.py --megabytes 1000 --kind characters --one-line
    python benchmarks/memory_of_large_text.py --megabytes 200 --text book.txt --document line --split random
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from glassformer.config import DataConfig, TokenizerConfig
from glassformer.data.prepare import Prepared, prepare

STATUS = Path("/proc/self/status")
EVERY = 0.02  # seconds between two looks


def anonymous_memory() -> int:
    """Bytes of anonymous resident memory of this process."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


@dataclass
class Watch:
    """The highest memory of each step, looked at from a thread of its own."""

    peaks: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Watch what happens inside the block."""
        done = threading.Event()

        def look() -> None:
            while not done.wait(EVERY):
                self.peaks[name] = max(self.peaks[name], anonymous_memory())

        self.peaks[name] = anonymous_memory()
        watcher, begun = threading.Thread(target=look), time.monotonic()
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            self.seconds[name] = round(time.monotonic() - begun, 2)


def write_text(path: Path, size: int, sample: str | None, one_line: bool, seed: int = 0) -> None:
    """A text of `size` bytes: words of many frequencies, or the lines of `sample` in ever new orders."""
    draw = random.Random(seed)
    if sample is None:
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        words = ["".join(draw.choices(letters, range(26, 0, -1), k=draw.randint(1, 10))) for _ in range(50_000)]
        weights = [1 / rank for rank in range(1, len(words) + 1)]
        lines = [" ".join(draw.choices(words, weights, k=12)) + "." for _ in range(20_000)]
    else:
        lines = sample.splitlines()
    end = " " if one_line else "\n"
    with path.open("wb") as file:
        while file.tell() < size:
            draw.shuffle(lines)
            block = "".join(line + end for line in lines).encode("utf-8")
            file.write(block[: size - file.tell()] if block.isascii() else block)


# Each step gets what was prepared; further ones (training) can be added at the end.
STEPS: list[tuple[str, Callable[[Prepared], None]]] = []


def main() -> int:
    """Make, prepare, measure; the exit code is 1 where memory went beyond the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--limit", type=int, default=600, help="megabytes of anonymous memory")
    parser.add_argument("--kind", default="bpe")
    parser.add_argument("--document", default="file")
    parser.add_argument("--split", default="tail")
    parser.add_argument("--text", type=Path, help="take the lines of this file")
    parser.add_argument("--one-line", action="store_true", help="no line ends at all")
    parser.add_argument("--folder", type=Path, help="where the temporary files go")
    options = parser.parse_args()
    if not STATUS.exists():
        print("this measurement needs Linux (/proc/self/status)", file=sys.stderr)
        return 2
    watch = Watch()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        source = Path(temporary) / "text.txt"
        sample = options.text.read_text(encoding="utf-8") if options.text else None
        write_text(source, options.megabytes * 1_000_000, sample, options.one_line)
        del sample
        data = DataConfig(source=str(source), document=options.document, split=options.split)
        tokenizer = TokenizerConfig(kind=options.kind)

        def progress(message: str) -> None:
            print(f"{anonymous_memory() / 1e6:6.0f} MB  {message}", file=sys.stderr)

        with watch.step("prepare"):
            prepared = prepare(data, tokenizer, Path(temporary) / "cache", progress)
        with watch.step("prepare again"):
            assert prepare(data, tokenizer, Path(temporary) / "cache").reused
        for name, step in STEPS:
            with watch.step(name):
                step(prepared)
        for note in prepared.notes:
            print(note, file=sys.stderr)
        del prepared
    result = {
        "megabytes": options.megabytes,
        "kind": options.kind,
        "peak_anonymous_megabytes": {name: round(peak / 1e6, 1) for name, peak in watch.peaks.items()},
        "seconds": watch.seconds,
        "megabytes_per_second": round(options.megabytes / watch.seconds["prepare"], 2),
    }
    print(json.dumps(result))
    return int(max(watch.peaks.values()) > options.limit * 1_000_000)


if __name__ == "__main__":
    sys.exit(main())
