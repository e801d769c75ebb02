"""Train tokenizers in bounded memory; the same texts and settings give the same file on any machine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import regex
import tokenizers
from tokenizers import pre_tokenizers, trainers

from glassformer.base.config import TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.text.tokenizers import layout
from glassformer.text.tokenizers.pieces import utf8
from glassformer.text.tokenizers.sample import blocks, draw
from glassformer.text.tokenizers.tokenizer import GRAPHEME, Tokenizer
from glassformer.text.tokenizers.unigram import train_unigram

Json = layout.Json
UNIGRAM_SHARE = 3  # its trainer needs about three times the memory of the others for the same text
LONG_BLOCK = 256
"""Minimum length, in characters, of ASCII blocks that are counted with NumPy, because it is faster for long blocks."""
RUN = regex.compile(r"[\p{L}\p{M}]{17,}")
"""Long runs of letters, as in Chinese, Japanese and Thai, which are written without spaces. Such runs rarely repeat."""
RUN_BYTES = 4_000_000
"""Maximum number of bytes in such runs for pair counting, which needs about 100 bytes of memory for each byte of a run,
and about 10 for each byte of ordinary words."""


def train_tokenizer(config: TokenizerConfig, texts: Iterable[str], mask: bool = False) -> Tokenizer:
    """Train a tokenizer on texts, which are read at most once, in order, one at a time.

    The scheme "characters" counts the characters of all texts. The scheme "bytes" needs no training, so texts are read
    only up to the first nonempty text. All other schemes are trained on a uniform sample of at most
    `config.sample_bytes` (`sample.draw`), or a third of that for unigram, whose trainer needs more memory. For bpe, the
    sample is reduced further if it has many long runs of letters without spaces (see `RUN_BYTES`). With `mask`, the
    tokenizer has one more token, `Tokenizer.mask_id`; all other tokens are the same.

    Raises:
        GlassError: there is no text, or no word for wordpiece; `vocab_size` is too small for the scheme; no symbol
            occurs `min_count` times; a text is not valid Unicode; or sentencepiece, which trains unigram vocabularies,
            is not installed or fails.
    """
    if config.kind == "bytes":
        _first_text(texts)
        return _build_tokenizer(config, _bytes_model(), mask)
    if config.kind == "characters":
        counts = _count_characters(config, texts)
        return _build_tokenizer(config, _symbols_model(config, counts), mask)
    divisor = UNIGRAM_SHARE if config.kind == "unigram" else 1
    sample = draw(texts, config.sample_bytes // divisor, config.seed)
    if not sample:
        raise _no_text_error()
    by_kind: dict[str, Callable[[TokenizerConfig, list[str]], Json]] = {
        "graphemes": _train_graphemes,
        "words": _train_words,
        "bpe": _train_bpe,
        "wordpiece": _train_wordpiece,
        "unigram": _train_unigram_model,
    }
    return _build_tokenizer(config, by_kind[config.kind](config, sample), mask)


def _build_tokenizer(config: TokenizerConfig, model: Json, mask: bool) -> Tokenizer:
    return Tokenizer(layout.build_tokenizer_json(config, model, len(model["vocab"]), mask))


def _first_text(texts: Iterable[str]) -> str:
    for text in texts:
        if text:
            return text
    raise _no_text_error()


def _no_text_error() -> GlassError:
    return GlassError("there is no text to train a tokenizer on", "Give a source that contains some text.")


def _vocabulary_too_small(config: TokenizerConfig, minimum: int, reason: str) -> GlassError:
    return GlassError(
        f"tokenizer.vocab_size = {config.vocab_size} is too small for {config.kind}: {reason}",
        f"Set tokenizer.vocab_size to {minimum} or more.",
    )


def _untrained_tokenizer(
    config: TokenizerConfig, model: Json, pre_tokenizer: Json | None = None
) -> tokenizers.Tokenizer:
    """Return an untrained Hugging Face tokenizer with this scheme's normalizer and pre-tokenizer."""
    document = layout.build_tokenizer_json(config, model, tokens=len(model["vocab"]))
    document["added_tokens"] = []
    document["pre_tokenizer"] = pre_tokenizer or document["pre_tokenizer"]
    return tokenizers.Tokenizer.from_str(json.dumps(document))


def _normalized(config: TokenizerConfig, texts: Iterable[str]) -> Iterator[str]:
    normalizer = _untrained_tokenizer(config, layout.word_level([])).normalizer
    return (normalizer.normalize_str(text) for text in texts) if normalizer is not None else iter(texts)


def _bytes_model() -> Json:
    vocab = {letter: byte for byte, letter in enumerate(layout.byte_letters())}
    return {"type": "BPE", "vocab": vocab, "merges": []}


def _count_characters(config: TokenizerConfig, texts: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    ascii_counts = np.zeros(128, dtype=np.int64)
    for block in _normalized(config, blocks(texts)):
        data = utf8(block)
        if len(data) == len(block) >= LONG_BLOCK:  # only ASCII: NumPy counts bytes ten times faster
            ascii_counts += np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=128)
        else:
            counts.update(block)
    for code in np.flatnonzero(ascii_counts).tolist():
        counts[chr(code)] += int(ascii_counts[code])
    return counts


def _train_graphemes(config: TokenizerConfig, sample: list[str]) -> Json:
    counts: Counter[str] = Counter()
    for block in _normalized(config, sample):
        counts.update(GRAPHEME.findall(block))
    return _symbols_model(config, counts)


def _symbols_model(config: TokenizerConfig, counts: Counter[str]) -> Json:
    """Return a model of the most frequent symbols, sorted; equally frequent symbols are chosen in sorted order."""
    if not counts:
        raise _no_text_error()
    _check_symbol_capacity(config)
    frequent = [symbol for symbol, count in counts.items() if count >= config.min_count]
    if not frequent:
        raise _no_frequent_symbol(config)
    frequent.sort(key=lambda symbol: (-counts[symbol], symbol))
    return layout.word_level(sorted(frequent[: config.vocab_size - 2]))


def _check_symbol_capacity(config: TokenizerConfig) -> None:
    if config.vocab_size < 3:
        raise _vocabulary_too_small(config, 3, f"{layout.UNKNOWN} and {layout.END} take two ids")


def _no_frequent_symbol(config: TokenizerConfig) -> GlassError:
    return GlassError(
        f"tokenizer.min_count = {config.min_count}: no symbol of the text occurs that often",
        "Lower tokenizer.min_count.",
    )


def _train_words(config: TokenizerConfig, sample: list[str]) -> Json:
    """Return a model of the most frequent words; the trainer breaks ties by the word itself."""
    _check_symbol_capacity(config)
    trained = _untrained_tokenizer(config, layout.word_level([]))
    trainer = trainers.WordLevelTrainer(
        vocab_size=config.vocab_size - 2, min_frequency=config.min_count, show_progress=False, special_tokens=[]
    )
    trained.train_from_iterator(sample, trainer)
    vocabulary = _model_of(trained)["vocab"]
    if not vocabulary:
        raise _no_frequent_symbol(config)
    return layout.word_level(sorted(vocabulary))


def _train_bpe(config: TokenizerConfig, sample: list[str]) -> Json:
    """Train byte-level BPE (Sennrich et al. 2016, on bytes as in GPT-2).

    The vocabulary contains all 256 bytes, because `Tokenizer.exact` depends on them.
    """
    if config.vocab_size < 257:
        raise _vocabulary_too_small(config, 257, f"256 bytes and {layout.END} need an id each")
    splitter = _in_chunks(layout.split(layout.WORD_PIECES), layout.pre_tokenizer("bytes"))
    trained = _untrained_tokenizer(config, {"type": "BPE", "vocab": {}, "merges": []}, splitter)
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size - 1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    trained.train_from_iterator(_with_few_runs(sample, config.seed), trainer)
    return _model_of(trained)


def _with_few_runs(sample: list[str], seed: int) -> list[str]:
    """Subsample the texts uniformly so that long runs of letters total about `RUN_BYTES`; keep all if they total less.

    Text without spaces consists of such runs, which rarely repeat, so each run takes memory; repeated words are stored
    only once.
    """
    run_bytes = sum(len(utf8(run)) for block in sample for run in RUN.findall(block))
    if run_bytes <= RUN_BYTES:
        return sample
    return draw(sample, sum(len(utf8(block)) for block in sample) * RUN_BYTES // run_bytes, seed)


def _in_chunks(word_splitter: Json | None, *later_steps: Json | None) -> Json:
    """Return a pre-tokenizer for training that also cuts long words, such as lines of dashes, every 64 characters."""
    chunks = layout.split(rf"[\s\S]{{1,{layout.LONGEST_WORD}}}")
    return {"type": "Sequence", "pretokenizers": [word_splitter, chunks, *later_steps]}


def _model_of(trained: tokenizers.Tokenizer) -> Json:
    model: Json = json.loads(trained.to_str())["model"]
    return model


def _train_wordpiece(config: TokenizerConfig, sample: list[str]) -> Json:
    """Train WordPiece (Schuster and Nakajima 2012) by pair counts, as open reimplementations of BERT's training do.

    Hugging Face `tokenizers` numbers the continuation letters (`##x`) in the order of a hash map. This order differs
    from run to run and decides ties between merges. To make training reproducible, the letters are passed to the
    trainer in sorted order, as special tokens.
    """
    empty = {"type": "WordPiece", "vocab": {}, "unk_token": layout.UNKNOWN, "continuing_subword_prefix": "##"}
    model = {**empty, "max_input_chars_per_word": 100}
    trained = _untrained_tokenizer(config, model, _in_chunks(layout.pre_tokenizer("wordpiece")))
    letters, inner_letters = _wordpiece_letters(trained, sample)
    if not letters:
        raise GlassError("the text contains no words to train a tokenizer on", "Give a source that contains some text.")
    minimum = len(letters) + len(inner_letters) + 2
    if config.vocab_size < minimum:
        raise _vocabulary_too_small(
            config,
            minimum,
            f"{counted(len(letters), 'distinct characters')}, "
            f"{counted(len(inner_letters), 'continuation tokens (##x)')}, {layout.UNKNOWN} and {layout.END} "
            "need an id each",
        )
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.vocab_size - 2,
        special_tokens=[f"##{letter}" for letter in inner_letters],
        continuing_subword_prefix="##",
        show_progress=False,
    )
    trained.train_from_iterator(sample, trainer)
    ordered = [token for token, _ in sorted(trained.get_vocab().items(), key=lambda item: item[1])]
    return {**model, "vocab": {token: id for id, token in enumerate([*ordered, layout.UNKNOWN])}}


def _wordpiece_letters(tokenizer: tokenizers.Tokenizer, sample: list[str]) -> tuple[list[str], list[str]]:
    """Return the characters of all words, and the characters that follow another character in a word; both sorted."""
    letters: set[str] = set()
    inner_letters: set[str] = set()
    for block in sample:
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(block)):
            letters.update(word)
            inner_letters.update(word[1:])
    return sorted(letters), sorted(inner_letters)


def _train_unigram_model(config: TokenizerConfig, sample: list[str]) -> Json:
    return train_unigram(config, _normalized(config, sample))
