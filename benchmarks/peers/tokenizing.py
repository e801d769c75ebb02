"""Train one BPE tokenizer and encode its training text, for `tokens.py`, in a separate process to measure memory."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

Encode = Callable[[str], int]  # text -> number of tokens


def ours(text: str, vocabulary: int) -> Encode:
    """Train our byte-level BPE, which splits words of any script."""
    from glassformer.base.config import TokenizerConfig
    from glassformer.text.tokenizers import train_tokenizer

    trained = train_tokenizer(TokenizerConfig(kind="bpe", vocab_size=vocabulary), [text])
    return lambda text: len(trained.encode(text))


def tokenizers(text: str, vocabulary: int) -> Encode:
    """Train the byte-level BPE of the library tokenizers, with GPT-2's pre-tokenizer."""
    from tokenizers import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(text.splitlines(keepends=True), vocab_size=vocabulary, show_progress=False)
    return lambda text: len(trained.encode(text).ids)


def sentencepiece(text: str, vocabulary: int) -> Encode:
    """Train sentencepiece's BPE on characters, with byte fallback for rare ones."""
    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.splitlines()),
        model_writer=written,
        model_type="bpe",
        vocab_size=vocabulary,
        character_coverage=0.9995,
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=int(os.environ["RAYON_NUM_THREADS"]),
    )
    trained = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    return lambda text: sum(map(len, trained.encode(text.splitlines())))


def main() -> None:
    """Print a JSON object with speeds in MB/s, the process's peak memory after training in MB, and bytes per token."""
    facts = json.loads(sys.argv[1])
    os.environ["RAYON_NUM_THREADS"] = str(facts["threads"])
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    text = Path(facts["text"]).read_text(encoding="utf-8")
    megabytes = len(text.encode("utf-8")) / 1e6
    clock = {"wall": time.perf_counter, "processor": time.process_time}[facts["clock"]]
    start = clock()
    encode = {"ours": ours, "tokenizers": tokenizers, "sentencepiece": sentencepiece}[facts["library"]](
        text, facts["vocabulary"]
    )
    trained = clock()
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    peak = int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) * 1024 / 1e6
    begun = clock()
    count = encode(text)
    found = {
        "training": megabytes / (trained - start),
        "encoding": megabytes / (clock() - begun),
        "peak": peak,
        "bytes_per_token": megabytes * 1e6 / count,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
