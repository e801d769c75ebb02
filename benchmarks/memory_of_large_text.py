"""Anonymous memory of `glass train` on a text of any size: encoding and training must stay below a limit.

Generates a text of the given size in a temporary folder (deleted afterwards), trains on it with the command line, and
observes the process from outside (`RssAnon` on Linux; the memory-mapped store is file memory and does not count).

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

EVERY = 0.05  # seconds between two samples


def anonymous_memory(process: int) -> int:
    """Return the anonymous resident memory of a process in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


def write_text(path: Path, size: int, one_line: bool) -> None:
    """Write a text of `size` bytes: 50,000 words with Zipf frequencies, in shuffled lines of 12 words."""
    rng = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(rng.choices(letters, range(26, 0, -1), k=rng.randint(1, 10))) for _ in range(50_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    lines = [" ".join(rng.choices(words, weights, k=12)) + "." for _ in range(20_000)]
    end = " " if one_line else "\n"
    with path.open("wb") as file:
        while file.tell() < size:
            rng.shuffle(lines)
            block = "".join(line + end for line in lines).encode("ascii")
            file.write(block[: size - file.tell()])


def main() -> int:
    """Generate the text, train and observe; the exit code is 1 if memory exceeds the limit, 2 without /proc."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--limit", type=int, default=600, help="limit of the anonymous memory in megabytes")
    parser.add_argument("--kind", default="bpe", help="kind of tokenizer")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--one-line", action="store_true", help="write the whole text as one line")
    parser.add_argument("--folder", type=Path, help="folder for the temporary files")
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
