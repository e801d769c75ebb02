"""Settings of the data and of the tokenizer."""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from glassformer.base.config.numbers import Count, Probability, Seed
from glassformer.base.settings import BaseSettings, impossible

TokenizerKind = Literal["characters", "graphemes", "bytes", "words", "bpe", "wordpiece", "unigram"]
TOKENIZER_KINDS: tuple[str, ...] = get_args(TokenizerKind)
CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}"
"""Default chat template: an end token, which every tokenizer has, after each message. The role of a message follows
from its position."""


class TokenizerConfig(BaseSettings):
    """Settings of the tokenizer and of its training."""

    kind: TokenizerKind = Field("bpe", description="type of tokenizer")
    vocab_size: Count = Field(
        2048, description="largest size of a trained vocabulary (bytes: always 256 + special tokens)"
    )
    normalization: Literal["none", "nfc", "nfd", "nfkc", "nfkd"] = Field(
        "none",
        description="Unicode normalization before training and encoding; with any but none, decoding is not exact",
    )
    lowercase: bool = Field(False, description="lower-case the text first; then decoding is not exact")
    min_count: Count = Field(1, description="characters, graphemes, words: rarer symbols become unknown")
    joint: bool = Field(True, description="translate, summarize: one vocabulary for both sides, or one for each")
    sample_bytes: int = Field(
        24_000_000,
        ge=1000,
        description="train on at most this many bytes (unigram: a third), sampled evenly from the whole text; "
        "training needs about twelve times as much memory",
    )
    seed: Seed = Field(0, description="seed of that sampling")


class DataConfig(BaseSettings):
    """Settings of the data: source, format, cleaning, split, and division into rows."""

    source: str = Field("stories", description="a file, a folder, - for standard input, or a generated corpus")
    target: str | None = Field(
        None,
        description="translate, summarize: the file whose line n is the target of line n of the source; unset: a table",
    )
    column: str | None = Field(
        None,
        description="the text column of CSV, TSV and JSONL sources; classify: one or several, as in title,body; chat: "
        "the messages, or the question",
    )
    target_column: str | None = Field(
        None, description="translate, summarize: the column of a table with the target; chat: with the answer"
    )
    label_column: str | None = Field(None, description="classify: the column of a table that holds the label")
    header: Literal["auto", "yes", "no"] = Field(
        "auto", description="CSV and TSV tables: whether row 1 has the names of the columns"
    )
    delimiter: Literal["auto", "comma", "semicolon", "tab", "pipe"] = Field(
        "auto", description="CSV and TSV tables: the character between two cells"
    )
    quoting: Literal["auto", "standard", "line", "none"] = Field(
        "auto",
        description="CSV and TSV tables: standard: a quoted cell may contain delimiters and line breaks; line: a "
        "quoted cell ends on its own line, and a stray quote is a character; none: every quote is a character; auto: "
        "none for a tab-separated table without quoting, else standard, with an error for a stray quote",
    )
    extra_fields: Literal["auto", "join", "cut"] = Field(
        "auto",
        description="CSV and TSV tables: more fields than in row 1: join appends them to the last column, cut drops "
        "them; auto: cut with tabs, otherwise an error",
    )
    validation: str | None = Field(
        None, description="classify, translate, summarize, chat: validate on this source; unset: hold out a part"
    )
    validation_target: str | None = Field(None, description="the target file of data.validation")
    encoding: Literal["auto", "utf-8", "utf-16", "windows-1252"] = Field(
        "auto", description="character encoding of the source"
    )
    document: Literal["file", "paragraph", "line"] = Field(
        "file", description="unit of a document in plain text (in tables, each row is a document)"
    )
    min_words: int = Field(0, ge=0, description="leave out documents with fewer words")
    max_words: int | None = Field(None, ge=1, description="leave out documents with more words")
    clean: bool = Field(
        False,
        description="lm, masked: remove control characters, white space at line ends and repeated blank lines",
    )
    duplicates: Literal["keep", "exact", "near"] = Field(
        "keep",
        description="lm, masked: of equal or nearly equal documents (MinHash), keep all, or only the first",
    )
    split: Literal["end", "random", "tail"] = Field(
        "end",
        description="validation is the end of the text, or a random choice of documents; tail: whole documents from "
        "the end, regardless of their share, as in runs of older versions",
    )
    validation_fraction: float = Field(
        0.1, gt=0, lt=1, description="share of the text or of the documents that is held out"
    )
    validation_limit: Count = Field(2_000_000, description="hold out at most this many characters")
    windows: Literal["stream", "documents"] = Field(
        "stream", description="divide the joined text into rows, or make each document one row, padded"
    )
    too_long: Literal["cut", "leave_out", "refuse"] = Field(
        "cut",
        description="classify, translate, summarize, chat: what to do with texts longer than the context; cut "
        "removes the beginning of a conversation and the end of other texts",
    )
    chat_template: str = Field(
        CHAT_TEMPLATE,
        description="chat: the Jinja template that converts a conversation to text, as in Hugging Face's libraries",
    )
    mix: Probability = Field(
        0.0, description="with --from: probability that a training row comes from the text of that run"
    )
    size: Count = Field(20_000, description="generated corpora: number of documents")
    seed: Seed = Field(0, description="seed of the random split and of generated corpora")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.max_words is not None and self.max_words < self.min_words:
            raise impossible(
                f"max_words = {self.max_words} is less than min_words = {self.min_words}",
                "Exchange them.",
            )
        if self.validation_target is not None and (self.validation is None or self.target is None):
            raise impossible(
                "data.validation_target was given without both data.validation and data.target",
                "Parallel validation files need parallel training files.",
            )
        if self.target is not None and self.validation is not None and self.validation_target is None:
            raise impossible(
                "data.validation is one file, but the training data is two parallel files",
                "Give the second file in data.validation_target.",
            )
        return self
