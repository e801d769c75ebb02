"""Unigram vocabularies (Kudo 2018), trained by sentencepiece and run by Hugging Face `tokenizers`.

Hugging Face's own unigram trainer is not reproducible; sentencepiece with one thread is. Characters outside the
vocabulary are encoded as bytes (`<0x00>` to `<0xFF>`), so every text can be encoded and, unless the settings
normalize the text, decoded exactly.
"""

from __future__ import annotations

import io
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import regex

from glassformer.base.config import TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.base.packages import install_command
from glassformer.base.wording import counted
from glassformer.text.tokenizers import layout
from glassformer.text.tokenizers.pieces import pieces

COVERAGE = 0.9995  # fraction of the text that letters must cover if all would need over a quarter of the vocabulary
LINE = 1000  # characters; sentencepiece leaves out sentences of more than a few thousand bytes
BOUNDARY = regex.compile(layout.ALONE_IN_UNIGRAM)
SPACE = "\u2581"  # sentencepiece's symbol for a space


def train_unigram(config: TokenizerConfig, sample: Iterable[str]) -> layout.Json:
    """Train on a sample and return the field `model` of a `tokenizer.json`.

    Raises:
        GlassError: sentencepiece is not installed or fails, there is no text, or `vocab_size` is too small for the
            bytes and the letters.
    """
    try:
        import sentencepiece
    except ImportError:
        raise GlassError(
            "training a unigram tokenizer needs the package sentencepiece", install_command("tok")
        ) from None
    lines = list(_lines(sample))
    if not lines:
        raise GlassError("there is no text to train a tokenizer on", "Give a source that contains some text.")
    counts = Counter(itertools.chain.from_iterable(lines))
    coverage = 1.0 if 4 * len(counts) <= config.vocab_size else COVERAGE
    letters = _letters(counts, coverage)
    if config.vocab_size < 258 + letters:
        raise GlassError(
            f"tokenizer.vocab_size = {config.vocab_size} is too small for unigram: 256 bytes, "
            f"{counted(letters, 'distinct characters')} and the special tokens need an id each",
            f"Set tokenizer.vocab_size to {258 + letters} or more.",
        )
    return _model(_train(sentencepiece, lines, config.vocab_size, coverage))


def _lines(sample: Iterable[str]) -> Iterator[str]:
    """Yield lines to train on, without characters that are separate words or that sentencepiece reserves."""
    for block in sample:
        for line in BOUNDARY.split(block):
            for piece in pieces(line.replace("\0", "").replace(SPACE, ""), LINE):
                yield from (piece[start : start + LINE] for start in range(0, len(piece), LINE))


def _letters(counts: Counter[str], coverage: float) -> int:
    """Return the number of most frequent characters needed to cover the fraction `coverage`; the rest become bytes."""
    total = sum(counts.values())
    covered = 0
    for needed, (_, count) in enumerate(counts.most_common(), start=1):
        covered += count
        if covered >= coverage * total:
            return needed
    return len(counts)


def _train(sentencepiece: Any, lines: list[str], vocab_size: int, coverage: float) -> Any:
    """Return a trained sentencepiece processor.

    `vocab_size` includes the unknown token of sentencepiece, which the end token replaces in `tokenizer.json`.
    """
    model_file = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model_file,
            model_type="unigram",
            vocab_size=vocab_size,
            hard_vocab_limit=False,  # a short text may have fewer pieces
            character_coverage=coverage,
            byte_fallback=True,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            bos_id=-1,
            eos_id=-1,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise GlassError(
            f"sentencepiece could not train on this text: {error}", "Give more text, or change tokenizer.vocab_size."
        ) from None
    return sentencepiece.SentencePieceProcessor(model_proto=model_file.getvalue())


def _model(processor: Any) -> layout.Json:
    """Return the model: the 256 bytes, then the trained pieces with spaces instead of sentencepiece's symbol.

    Bytes have the score of the rarest piece. The format of Hugging Face requires an unknown token; it is never used,
    because all bytes are in the vocabulary, and has the id of the first byte.
    """
    ids = [id for id in range(processor.vocab_size()) if not (processor.is_byte(id) or processor.is_unknown(id))]
    pieces_and_scores = [[processor.id_to_piece(id).replace(SPACE, " "), processor.get_score(id)] for id in ids]
    rarest = min(score for _, score in pieces_and_scores)
    vocab = [[f"<0x{byte:02X}>", rarest] for byte in range(256)] + pieces_and_scores
    return {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": True}
