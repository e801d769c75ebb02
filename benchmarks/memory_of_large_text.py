"""The anonymous memory of `glass train` on a text of any size: encoding and training must stay below a limit.

Makes a text of the wanted size in a temporary folder (deleted afterwards), trains on it through the real command line,
and watches the process from outside (`RssAnon` on Linux; the memory-mapped store is file memory and does not count).

    python benchmarks/memory_of_large_text.py --megabytes 1000 --kind bpe
    python benchmarks/memory_of_large_text.py --megabytes 1000 --kind characters --one-line
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EVERY = 0.05  # seconds between two looks


def anonymous_memory(process: int) -> int:
    """Bytes of anonymous resident memory; 0 once the process has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


def write_text(path: Path, size: int, one_line: bool) -> None:
    """A text of `size` bytes: 50,000 words of many frequencies, in lines of 12 in ever new orders."""
    draw = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(draw.choices(letters, range(26, 0, -1), k=draw.randint(1, 10))) for _ in range(50_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    lines = [" ".join(draw.choices(words, weights, k=12)) + "." for _ in range(20_000)]
    end = " " if one_line else "\n"
    with path.open("wb") as file:
        while file.tell() < size:
            draw.shuffle(lines)
            block = "".join(line + end for line in lines).encode("ascii")
            file.write(block[: size - file.tell()])


def main() -> int:
    """Make, train, watch; the exit code is 1 where memory went beyond the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--limit", type=int, default=600, help="megabytes of anonymous memory")
    parser.add_argument("--kind", default="bpe", help="of tokenizer")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--one-line", action="store_true", help="no line ends at all")
    parser.add_argument("--folder", type=Path, help="where the temporary files go")
    options = parser.parse_args()
    if not Path("/proc/self/status").exists():
        print("this measurement needs Linux (/proc)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        source = Path(temporary) / "text.txt"
        write_text(source, options.megabytes * 1_000_000, options.one_line)
        command = [sys.executable, "-m", "glassformer", "train", str(source), "--out", f"{temporary}/run", "--json"]
        command += ["--steps", str(options.steps), "--set", f"tokenizer.kind={options.kind}"]
        begun = time.monotonic()
        peak = 0
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            while process.poll() is None:
                peak = max(peak, anonymous_memory(process.pid))
                time.sleep(EVERY)
            assert process.stdout is not None
            trained = json.loads(process.stdout.read())
    facts = {"megabytes": options.megabytes, "kind": options.kind, "peak_anonymous_megabytes": round(peak / 1e6, 1)}
    print(json.dumps({**facts, "seconds": round(time.monotonic() - begun), "loss": trained["loss"]}))
    return int(peak > options.limit * 1_000_000)


if __name__ == "__main__":
    sys.exit(main())
