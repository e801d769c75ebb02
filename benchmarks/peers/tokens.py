"""Training of BPE tokenizers and encoding in several languages: speed, and memory in a separate process.

The text of a language is the file of `--text NAME=FILE`, repeated to the requested size (with fewer distinct words than
a real text of this size), or else generated: 100,000 words of random letters with Zipf frequencies, in sentences.
Chinese has no spaces between words, so that almost no segment between punctuation marks repeats: the hardest case.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from peers.rows import OURS, Options, Row, in_a_process

LETTERS = {
    "English": "etaoinshrdlucmfwypvbgkjqxz",
    "Bangla": "াের কনিতবসমলুদপটহযগজআইোীশএছচউধখওভথষড",
    "Chinese": "".join(map(chr, range(0x4E00, 0x4E00 + 5000))),
    "Arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهويةىءأإ",
}
LENGTHS = {"Chinese": (1, 2, 2, 2, 3, 4)}
SIGNS = {"Chinese": ("", "，", "。\n"), "Arabic": (" ", "، ", ".\n"), "Bangla": (" ", ", ", "।\n")}
PEERS = ("tokenizers", "sentencepiece")


def measure(options: Options) -> Iterator[Row]:
    """Yield three rows for each language."""
    size = 200_000 if options.quick else options.megabytes * 1_000_000
    vocabulary = 500 if options.quick else 8192
    named = dict(each.split("=", 1) for each in options.text)
    with tempfile.TemporaryDirectory() as folder:
        for language in ["English"] if options.quick else sorted({*LETTERS, *named}):
            path = Path(folder) / "text.txt"
            path.write_bytes(_text(language, named.get(language), size))
            kind = "a file, repeated" if language in named else "generated text"
            found: dict[str, list[dict[str, float]]] = {name: [] for name in (OURS, *PEERS)}
            for _ in range(min(3, options.repeats)):
                for name in found:
                    facts = {
                        "library": name,
                        "text": str(path),
                        "vocabulary": vocabulary,
                        "threads": options.threads,
                        "clock": options.clock,
                    }
                    found[name].append(in_a_process("tokenizing", facts))
            work = f"{language} ({kind}), {size / 1e6:g} MB, {vocabulary} tokens"
            for kind, unit, more in (("training", "MB/s", True), ("encoding", "MB/s", True), ("peak", "MB", False)):
                values = {name: [each[kind] for each in turns] for name, turns in found.items()}
                length = {name: round(turns[0]["bytes_per_token"], 3) for name, turns in found.items()}
                name = "tokenizer memory" if kind == "peak" else f"tokenizer {kind}"
                yield Row(name, work, unit, values, more, {"bytes_per_token": length})


def _text(language: str, file: str | None, size: int) -> bytes:
    """Return UTF-8 text of about `size` bytes: a file, repeated and cut between two characters, or generated text."""
    if file is None:
        return generated_text(language, size)
    once = Path(file).read_bytes()
    return (once * (1 + size // len(once)))[:size].decode("utf-8", errors="ignore").encode("utf-8")


def generated_text(language: str, size: int) -> bytes:
    """Generate sentences of Zipf-Mandelbrot distributed words, at least `size` bytes of UTF-8."""
    rng = random.Random(0)
    letters = rng.sample(LETTERS[language], len(LETTERS[language]))
    rare = [1 / (rank + 3) for rank in range(len(letters))]
    lengths = LENGTHS.get(language, (2, 3, 4, 4, 5, 5, 6, 7, 8))
    words = ["".join(rng.choices(letters, rare, k=rng.choice(lengths))) for _ in range(100_000)]
    shares = list(itertools.accumulate(1 / (rank + 2.7) for rank in range(len(words))))
    gap, pause, stop = SIGNS.get(language, (" ", ", ", ".\n"))
    made = bytearray()
    while len(made) < size:
        parts = [gap.join(rng.choices(words, cum_weights=shares, k=rng.randint(3, 12))) for _ in range(3)]
        made += (pause.join(parts[: rng.randint(1, 3)]) + stop).encode("utf-8")
    return bytes(made)
