"""Settings of the data, its split and its cutting, and of the tokenizer."""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from glassformer.base.config.numbers import Count, Probability, Seed
from glassformer.base.settings import BaseSettings, impossible

TokenizerKind = Literal["characters", "graphemes", "bytes", "words", "bpe", "wordpiece", "unigram"]
TOKENIZER_KINDS: tuple[str, ...] = get_args(TokenizerKind)
CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}"
"""The default template of conversations: an end token after each message, which every tokenizer has. Who says a message
follows from its position."""


class TokenizerConfig(BaseSettings):
    """Settings of the tokenizer and of its training."""

    kind: TokenizerKind = Field("bpe", description="the scheme")
    vocab_size: Count = Field(
        2048, description="most tokens a trained vocabulary may have (bytes: always 256 + special)"
    )
    normalization: Literal["none", "nfc", "nfd", "nfkc", "nfkd"] = Field(
        "none",
        description="Unicode form applied before training and encoding; all but none give up the exact round trip",
    )
    lowercase: bool = Field(False, description="lower-case the text first; gives up the exact round trip")
    min_count: Count = Field(1, description="characters, graphemes, words: symbols seen fewer times become unknown")
    joint: bool = Field(True, description="translate, summarize: one vocabulary for both sides, or one for each")
    sample_bytes: int = Field(
        24_000_000,
        ge=1000,
        description="training sees at most this many bytes (unigram: a third), drawn evenly from the whole text; "
        "it takes some twelve times as much memory",
    )
    seed: Seed = Field(0, description="of that draw")


class DataConfig(BaseSettings):
    """Settings of the data: its source and format, cleaning, and how it is split and cut."""

    source: str = Field("stories", description="a file, a folder, - for standard input, or a generated corpus")
    target: str | None = Field(
        None, description="translate, summarize: the file whose line n answers line n of the source; unset: a table"
    )
    column: str | None = Field(
        None,
        description="the text column of CSV, TSV and JSONL sources; classify: several, as in title,body; chat: the "
        "messages, or the question",
    )
    target_column: str | None = Field(
        None, description="translate, summarize: the column of a table to be written; chat: the answer"
    )
    label_column: str | None = Field(None, description="classify: the column of a table that holds the label")
    header: Literal["auto", "yes", "no"] = Field(
        "auto", description="of CSV and TSV tables: whether row 1 holds the names of the columns"
    )
    delimiter: Literal["auto", "comma", "semicolon", "tab", "pipe"] = Field(
        "auto", description="of CSV and TSV tables: the character between two cells"
    )
    quoting: Literal["auto", "standard", "line", "none"] = Field(
        "auto",
        description="of CSV and TSV tables: standard: a quoted cell may hold delimiters and line breaks; line: a "
        "quoted cell ends on its own line, and a stray quote is a character; none: every quote is a character; auto: "
        "none for a table with tabs written without quotes, else standard, refused if a quote seems stray",
    )
    extra_fields: Literal["auto", "join", "cut"] = Field(
        "auto",
        description="of CSV and TSV tables: more fields than row 1: join appends them to the last column, cut drops "
        "them; auto: cut with tabs, refused otherwise",
    )
    validation: str | None = Field(
        None, description="classify, translate, summarize, chat: validate on this source; unset: hold out a part"
    )
    validation_target: str | None = Field(None, description="the second file of that one")
    encoding: Literal["auto", "utf-8", "utf-16", "windows-1252"] = Field("auto", description="of the source's bytes")
    document: Literal["file", "paragraph", "line"] = Field(
        "file", description="what counts as one document in plain text (rows are documents in tables)"
    )
    min_words: int = Field(0, ge=0, description="leave out documents with fewer words")
    max_words: int | None = Field(None, ge=1, description="leave out documents with more words")
    clean: bool = Field(
        False,
        description="lm, masked: take out control characters, white space at line ends and repeated blank lines",
    )
    duplicates: Literal["keep", "exact", "near"] = Field(
        "keep",
        description="lm, masked: of documents that are equal, or nearly so (MinHash), keep all, or the first alone",
    )
    split: Literal["end", "random", "tail"] = Field(
        "end",
        description="validation is the end of the text, or a random choice of documents; tail: whole documents from "
        "the end, whatever their share, as in runs of older versions",
    )
    validation_fraction: float = Field(0.1, gt=0, lt=1, description="share of the text (or of the documents) held out")
    validation_limit: Count = Field(2_000_000, description="hold out at most this many characters")
    windows: Literal["stream", "documents"] = Field(
        "stream", description="rows are cut anywhere from the joined text, or are one document each, padded"
    )
    too_long: Literal["cut", "leave_out", "refuse"] = Field(
        "cut",
        description="classify, translate, summarize, chat: what happens to texts longer than the context; of a "
        "conversation the beginning is cut",
    )
    chat_template: str = Field(
        CHAT_TEMPLATE,
        description="chat: the Jinja template that makes one text of a conversation, as in Hugging Face's libraries",
    )
    mix: Probability = Field(
        0.0, description="runs that begin from another one: probability of a training row to come from its text"
    )
    size: Count = Field(20_000, description="documents to make, for a generated corpus")
    seed: Seed = Field(0, description="of the random split and of generated corpora")

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
                "Two parallel files to validate on go with two parallel files to learn from.",
            )
        if self.target is not None and self.validation is not None and self.validation_target is None:
            raise impossible(
                "data.validation names one file, where the text to learn from is two parallel ones",
                "Give the second in data.validation_target.",
            )
        return self
