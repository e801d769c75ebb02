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
from glassformer.text.tokenizers import layout
from glassformer.text.tokenizers.pieces import utf8
from glassformer.text.tokenizers.sample import blocks, draw
from glassformer.text.tokenizers.tokenizer import GRAPHEME, Tokenizer
from glassformer.text.tokenizers.unigram import train_unigram

Json = layout.Json
UNIGRAM_SHARE = 3  # its trainer needs about three times the memory of the others for the same text
LONG_BLOCK = 256
"""Minimum length, in characters, of blocks that NumPy counts faster."""
RUN = regex.compile(r"[\p{L}\p{M}]{17,}")
"""Long runs of letters, as in Chinese, Japanese and Thai, written without spaces. Such runs rarely repeat."""
RUN_BYTES = 4_000_000
"""Maximum number of bytes in such runs for pair counting, which needs about 100 bytes of memory for each byte of a run,
and about 10 for each byte of ordinary words."""


def train_tokenizer(config: TokenizerConfig, texts: Iterable[str], mask: bool = False) -> Tokenizer:
    """Train a tokenizer on texts, which are read at most once, in order, one at a time.

    Characters are counted over the whole text. The other schemes are trained on a uniform sample of at most
    `config.sample_bytes` (`sample.draw`), or a third of that for unigram, whose trainer needs more memory. Bytes need
    no training, so texts are read only up to the first nonempty one. With `mask`, the tokenizer has one more token,
    `Tokenizer.mask_id`; all other tokens are the same.

    Raises:
        GlassError: there is no text, or no word for wordpiece; `vocab_size` is too small for the scheme; no symbol
            occurs `min_count` times; a text is not valid Unicode; or sentencepiece, which trains unigram vocabularies,
            is not installed or fails.
    """
    if config.kind == "bytes":
        _first(texts)
        return _made(config, _bytes_model(), mask)
    if config.kind == "characters":
        counts = _count_characters(config, texts)
        return _made(config, _symbols_model(config, counts), mask)
    share = UNIGRAM_SHARE if config.kind == "unigram" else 1
    sample = draw(texts, config.sample_bytes // share, config.seed)
    if not sample:
        raise _no_text()
    by_kind: dict[str, Callable[[TokenizerConfig, list[str]], Json]] = {
        "graphemes": _graphemes,
        "words": _words,
        "bpe": _bpe,
        "wordpiece": _wordpiece,
        "unigram": _unigram,
    }
    return _made(config, by_kind[config.kind](config, sample), mask)


def _made(config: TokenizerConfig, model: Json, mask: bool) -> Tokenizer:
    return Tokenizer(layout.build_tokenizer_json(config, model, len(model["vocab"]), mask))


def _first(texts: Iterable[str]) -> str:
    for text in texts:
        if text:
            return text
    raise _no_text()


def _no_text() -> GlassError:
    return GlassError("there is no text to train a tokenizer on", "Give a source that holds some text.")


def _too_small(config: TokenizerConfig, least: int, why: str) -> GlassError:
    return GlassError(
        f"tokenizer.vocab_size = {config.vocab_size} is too small for {config.kind}: {why}",
        f"Set tokenizer.vocab_size to {least} or more.",
    )


def _bare(config: TokenizerConfig, model: Json, pre_tokenizer: Json | None = None) -> tokenizers.Tokenizer:
    """Return an untrained Hugging Face tokenizer with this scheme's normalizer and pre-tokenizer."""
    whole = layout.build_tokenizer_json(config, model, tokens=len(model["vocab"]))
    whole["added_tokens"] = []
    whole["pre_tokenizer"] = pre_tokenizer or whole["pre_tokenizer"]
    return tokenizers.Tokenizer.from_str(json.dumps(whole))


def _normalized(config: TokenizerConfig, texts: Iterable[str]) -> Iterator[str]:
    steps = _bare(config, layout.word_level([])).normalizer
    return (steps.normalize_str(text) for text in texts) if steps is not None else iter(texts)


def _bytes_model() -> Json:
    vocab = {letter: byte for byte, letter in enumerate(layout.byte_letters())}
    return {"type": "BPE", "vocab": vocab, "merges": []}


def _count_characters(config: TokenizerConfig, texts: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    of_ascii = np.zeros(128, dtype=np.int64)
    for block in _normalized(config, blocks(texts)):
        data = utf8(block)
        if len(data) == len(block) >= LONG_BLOCK:  # only ASCII: NumPy counts bytes ten times faster
            of_ascii += np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=128)
        else:
            counts.update(block)
    for code in np.flatnonzero(of_ascii).tolist():
        counts[chr(code)] += int(of_ascii[code])
    return counts


def _graphemes(config: TokenizerConfig, sample: list[str]) -> Json:
    counts: Counter[str] = Counter()
    for block in _normalized(config, sample):
        counts.update(GRAPHEME.findall(block))
    return _symbols_model(config, counts)


def _symbols_model(config: TokenizerConfig, counts: Counter[str]) -> Json:
    """Return a model of the most frequent symbols, sorted; equally frequent symbols are chosen in sorted order."""
    if not counts:
        raise _no_text()
    _check_symbol_room(config)
    often = [symbol for symbol, count in counts.items() if count >= config.min_count]
    if not often:
        raise _none_often_enough(config)
    often.sort(key=lambda symbol: (-counts[symbol], symbol))
    return layout.word_level(sorted(often[: config.vocab_size - 2]))


def _check_symbol_room(config: TokenizerConfig) -> None:
    if config.vocab_size < 3:
        raise _too_small(config, 3, f"{layout.UNKNOWN} and {layout.END} take two ids")


def _none_often_enough(config: TokenizerConfig) -> GlassError:
    return GlassError(
        f"tokenizer.min_count = {config.min_count}: no symbol of the text occurs that often",
        "Lower tokenizer.min_count.",
    )


def _words(config: TokenizerConfig, sample: list[str]) -> Json:
    """Return a model of the most frequent words; the trainer breaks ties by the word itself."""
    _check_symbol_room(config)
    trained = _bare(config, layout.word_level([]))
    trainer = trainers.WordLevelTrainer(
        vocab_size=config.vocab_size - 2, min_frequency=config.min_count, show_progress=False, special_tokens=[]
    )
    trained.train_from_iterator(sample, trainer)
    vocabulary = _model_of(trained)["vocab"]
    if not vocabulary:
        raise _none_often_enough(config)
    return layout.word_level(sorted(vocabulary))


def _bpe(config: TokenizerConfig, sample: list[str]) -> Json:
    """Train byte-level BPE (Sennrich et al. 2016, on bytes as in GPT-2); `Tokenizer.exact` relies on its 256 bytes."""
    if config.vocab_size < 257:
        raise _too_small(config, 257, f"256 bytes and {layout.END} need an id each")
    cut = _in_chunks(layout.split(layout.WORD_PIECES), layout.pre_tokenizer("bytes"))
    trained = _bare(config, {"type": "BPE", "vocab": {}, "merges": []}, cut)
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

    Text without spaces consists of such runs, which rarely repeat, so each one takes memory; repeated words are stored
    once.
    """
    runs = sum(len(utf8(run)) for block in sample for run in RUN.findall(block))
    if runs <= RUN_BYTES:
        return sample
    return draw(sample, sum(len(utf8(block)) for block in sample) * RUN_BYTES // runs, seed)


def _in_chunks(words: Json | None, *then: Json | None) -> Json:
    """Return a pre-tokenizer for training that also cuts long words, such as lines of dashes, every 64 characters."""
    chunks = layout.split(rf"[\s\S]{{1,{layout.LONGEST_WORD}}}")
    return {"type": "Sequence", "pretokenizers": [words, chunks, *then]}


def _model_of(trained: tokenizers.Tokenizer) -> Json:
    model: Json = json.loads(trained.to_str())["model"]
    return model


def _wordpiece(config: TokenizerConfig, sample: list[str]) -> Json:
    """Train WordPiece (Schuster and Nakajima 2012) by pair counts, as open reimplementations of BERT's training do.

    The library numbers the continuation letters (`##x`) in the order of a hash map, which differs from run to run and
    decides ties between merges. Passed to the trainer in sorted order, as special tokens, they make it reproducible.
    """
    empty = {"type": "WordPiece", "vocab": {}, "unk_token": layout.UNKNOWN, "continuing_subword_prefix": "##"}
    model = {**empty, "max_input_chars_per_word": 100}
    trained = _bare(config, model, _in_chunks(layout.pre_tokenizer("wordpiece")))
    letters, inside = _wordpiece_letters(trained, sample)
    if not letters:
        raise GlassError("the text holds no words to train a tokenizer on", "Give a source that holds some text.")
    least = len(letters) + len(inside) + 2
    if config.vocab_size < least:
        raise _too_small(config, least, f"the text has {len(letters)} letters, {len(inside)} of them inside words")
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.vocab_size - 2,
        special_tokens=[f"##{letter}" for letter in inside],
        continuing_subword_prefix="##",
        show_progress=False,
    )
    trained.train_from_iterator(sample, trainer)
    ordered = [token for token, _ in sorted(trained.get_vocab().items(), key=lambda item: item[1])]
    return {**model, "vocab": {token: id for id, token in enumerate([*ordered, layout.UNKNOWN])}}


def _wordpiece_letters(cut: tokenizers.Tokenizer, sample: list[str]) -> tuple[list[str], list[str]]:
    """Return the characters of all words, and the characters that follow another one in a word; both sorted."""
    letters: set[str] = set()
    inside: set[str] = set()
    for block in sample:
        for word, _ in cut.pre_tokenizer.pre_tokenize_str(cut.normalizer.normalize_str(block)):
            letters.update(word)
            inside.update(word[1:])
    return sorted(letters), sorted(inside)


def _unigram(config: TokenizerConfig, sample: list[str]) -> Json:
    return train_unigram(config, _normalized(config, sample))
