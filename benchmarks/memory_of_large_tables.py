"""Anonymous memory and time of reading a large table: `glass data look` reads every row.

Writes a table of texts and labels in the given format, with delimiters, quotes and line breaks in its cells, in a
temporary folder (deleted afterwards), reads it with the command line, and observes the process from outside.

    python benchmarks/memory_of_large_tables.py --megabytes 300 --format csv
    python benchmarks/memory_of_large_tables.py --megabytes 300 --format parquet
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import memory_of_large_text as large

FORMATS = ("csv", "tsv", "jsonl", "windows-1252", "parquet")


def rows(size: int) -> Iterator[tuple[str, str]]:
    """Yield labels and texts of about `size` bytes in total; every ninth text has a comma, a quote or a line break."""
    rng = random.Random(0)
    words = ["".join(rng.choices("etaoinshrdlucmf", k=rng.randint(1, 10))) for _ in range(5_000)]
    odd = (", and more", ' said "yes"', "\nand a second line")
    texts = [" ".join(rng.choices(words, k=rng.randint(4, 60))) for _ in range(5_000)]
    number = written = 0
    while written < size:
        text = rng.choice(texts) + (odd[number // 9 % 3] if number % 9 == 0 else "")
        yield ("ham", "spam")[number % 3 == 0], text
        number += 1
        written += len(text) + 6


def write_table(path: Path, format: str, size: int) -> None:
    """Write the rows in a format."""
    if format == "parquet":
        import pyarrow
        from pyarrow import parquet

        schema = pyarrow.schema([("label", pyarrow.string()), ("text", pyarrow.string())])
        with parquet.ParquetWriter(path, schema) as writer:
            block: list[tuple[str, str]] = []
            for row in rows(size):
                block.append(row)
                if len(block) == 50_000:
                    writer.write_batch(pyarrow.record_batch(list(zip(*block, strict=True)), schema=schema))
                    block.clear()
            if block:
                writer.write_batch(pyarrow.record_batch(list(zip(*block, strict=True)), schema=schema))
        return
    encoding = "cp1252" if format == "windows-1252" else "utf-8"
    with path.open("w", encoding=encoding, newline="") as file:
        if format == "jsonl":
            file.writelines(json.dumps({"label": label, "text": text}) + "\n" for label, text in rows(size))
            return
        writer = csv.writer(file, delimiter="\t" if format == "tsv" else ",", lineterminator="\n")
        writer.writerow(("label", "text"))
        writer.writerows((label, f"café {text}" if encoding == "cp1252" else text) for label, text in rows(size))


def main() -> int:
    """Write the table, read it and observe; the exit code is 1 if memory exceeds the limit, 2 without /proc."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--limit", type=int, default=600, help="limit of the anonymous memory in megabytes")
    parser.add_argument("--format", choices=FORMATS, default="csv")
    parser.add_argument("--folder", type=Path, help="folder for the temporary files")
    options = parser.parse_args()
    if not Path("/proc/self/status").exists():
        print("this measurement needs Linux (/proc)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        source = Path(temporary) / f"table.{'csv' if options.format == 'windows-1252' else options.format}"
        write_table(source, options.format, options.megabytes * 1_000_000)
        command = [sys.executable, "-m", "glassformer", "data", "look", str(source), "--task", "classify", "--json"]
        begun = time.monotonic()
        peak = 0
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            while process.poll() is None:
                peak = max(peak, large.anonymous_memory(process.pid))
                time.sleep(large.EVERY)
        seconds = time.monotonic() - begun
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        json.dumps(
            {
                "megabytes": options.megabytes,
                "format": options.format,
                "peak_anonymous_megabytes": round(peak / 1e6, 1),
                "seconds": round(seconds, 1),
                "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
                "exit_code": process.returncode,
            }
        )
    )
    return int(peak > options.limit * 1_000_000 or process.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
