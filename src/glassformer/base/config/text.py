"""Settings of the data and of the tokenizer."""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from glassformer.base.config.numbers import Count, Probability, Seed
from glassformer.base.settings import BaseSettings, impossible

TokenizerKind = Literal["characters", "graphemes", "bytes", "words", "bpe", "wordpiece", "unigram"]
TOKENIZER_KINDS: tuple[str, ...] = get_args(TokenizerKind)
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}{{ eos_token }}{{ message.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant{{ eos_token }}{% endif %}"
)
"""Default chat template: the role and the content of each message, each followed by an end token, which every tokenizer
has. So the content is encoded separately, and no content can look like a role."""


class TokenizerConfig(BaseSettings):
    """Settings of the tokenizer and of its training."""

    kind: TokenizerKind = Field("bpe", description="type of tokenizer")
    vocab_size: Count = Field(
        2048,
        description="maximum vocabulary size, without the mask token of task masked (bytes: always 256 + special "
        "tokens)",
    )
    normalization: Literal["none", "nfc", "nfd", "nfkc", "nfkd"] = Field(
        "none",
        description="Unicode normalization before training and encoding; decoding is exact only with none",
    )
    lowercase: bool = Field(False, description="lower-case the text first; decoding is then not exact")
    min_count: Count = Field(1, description="characters, graphemes, words: symbols with a lower count are unknown")
    joint: bool = Field(True, description="translate, summarize: one vocabulary shared by source and target")
    sample_bytes: int = Field(
        24_000_000,
        ge=1000,
        description="train on at most this many bytes (unigram: a third; characters: all bytes), sampled evenly from "
        "the whole text; training needs about twelve times as much memory",
    )
    seed: Seed = Field(0, description="seed of the sample that sample_bytes limits")


class DataConfig(BaseSettings):
    """Settings of the data: source, format, cleaning, split, and division into rows."""

    source: str = Field(
        "stories", description="a file, a folder, - for standard input, or the name of a generated corpus"
    )
    target: str | None = Field(
        None,
        description="translate, summarize: the file whose line n is the target of line n of the source; unset: the "
        "source is a table",
    )
    column: str | None = Field(
        None,
        description="tables (CSV, TSV, JSONL, Parquet, Arrow): the column with the text (classify: one or several, "
        "such as title,body), the source (translate, summarize), or the messages or the question (chat; one or several "
        "columns of a question)",
    )
    target_column: str | None = Field(
        None, description="tables: the column with the target (translate, summarize) or the answer (chat)"
    )
    label_column: str | None = Field(None, description="tables: the column with the label (classify)")
    header: Literal["auto", "yes", "no"] = Field(
        "auto", description="CSV and TSV tables: whether row 1 contains the column names"
    )
    delimiter: Literal["auto", "comma", "semicolon", "tab", "pipe"] = Field(
        "auto", description="CSV and TSV tables: the character between two fields"
    )
    quoting: Literal["auto", "standard", "line", "none"] = Field(
        "auto",
        description="CSV and TSV tables; standard: a quoted field may contain delimiters and line breaks; line: a "
        "quoted field ends on its line, and a stray quote is a character; none: every quote is a character; auto: none "
        "for a tab-separated table without quoting, otherwise standard with an error for a stray quote",
    )
    extra_fields: Literal["auto", "join", "cut"] = Field(
        "auto",
        description="CSV and TSV tables, if a row has more fields than the table has columns; join: append the extra "
        "fields to the last column; cut: drop them; auto: cut in tab-separated tables, otherwise an error",
    )
    validation: str | None = Field(
        None,
        description="classify, translate, summarize, chat: source of the validation split; unset: split data.source",
    )
    validation_target: str | None = Field(None, description="the target file for data.validation")
    encoding: str = Field(
        "auto",
        description="character encoding of the source: auto (UTF-8, UTF-16 or Windows-1252), or the name of an "
        "encoding in Python, such as windows-1251 or shift-jis",
    )
    document: Literal["file", "paragraph", "line"] = Field(
        "file", description="lm, masked: unit of plain text that is one document (in a table, each row is a document)"
    )
    min_words: int = Field(0, ge=0, description="leave out documents or examples with fewer words")
    max_words: int | None = Field(None, ge=1, description="leave out documents or examples with more words")
    min_characters: int = Field(0, ge=0, description="lm, masked: leave out documents with fewer characters")
    clean: bool = Field(
        False,
        description="lm, masked: remove control characters, white space at line ends and around documents, and all "
        "but one of several blank lines",
    )
    duplicates: Literal["keep", "exact", "near"] = Field(
        "keep",
        description="lm, masked: of equal or nearly equal (MinHash) documents, keep all or only the first",
    )
    split: Literal["end", "random", "rows"] = Field(
        "end",
        description="validation split; end: the end of the text, or the last examples; random: randomly chosen "
        "documents or examples; rows: with windows = prefixes, randomly chosen rows of the whole text, so that most "
        "validation tokens are also in training rows",
    )
    validation_fraction: float = Field(
        0.1, gt=0, lt=1, description="fraction of the text, documents or examples to hold out for validation"
    )
    validation_limit: Count = Field(2_000_000, description="maximum number of characters to hold out for validation")
    windows: Literal["stream", "documents", "prefixes", "halves"] = Field(
        "stream",
        description="lm, masked; stream: cut the joined text into rows of one length; documents: cut each document "
        "into rows of its own; prefixes (lm): rows with the first 1, 2, ... or context tokens of a document, each of "
        "which predicts only the next token; halves: one row for each document, whose first half is the input and "
        "whose second half the targets, position by position",
    )
    too_long: Literal["cut", "leave_out", "refuse"] = Field(
        "cut",
        description="classify, translate, summarize, chat: treatment of texts longer than the context; cut removes the "
        "beginning of a conversation and the end of other texts",
    )
    chat_template: str = Field(
        CHAT_TEMPLATE,
        description="chat: the Jinja template that converts a conversation to text, as in Hugging Face Transformers",
    )
    mix: Probability = Field(
        0.0,
        description="with --from RUN: probability that a training row (with batch_tokens, all rows of a step) comes "
        "from the text of RUN",
    )
    size: Count = Field(20_000, description="generated corpora: number of documents or examples")
    seed: Seed = Field(0, description="seed of the random split and of generated corpora")

    def for_other_text(self) -> Self:
        """Return these settings for the rows of a text that has no split and no given targets."""
        windows = "stream" if self.windows == "stream" else "documents"
        return self.replace(windows=windows, split="end")

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.encoding != "auto":
            try:
                "".encode(self.encoding)
            except (LookupError, UnicodeError, ValueError):
                raise impossible(
                    f"encoding = {self.encoding!r} is not the name of an encoding",
                    "Use auto, utf-8, utf-16, windows-1252 or another encoding of Python, such as shift-jis.",
                ) from None
        if self.split == "rows" and self.windows != "prefixes":
            raise impossible(
                f"split = rows needs windows = prefixes, but windows = {self.windows}",
                "Set data.windows = prefixes, or data.split = random.",
            )
        if self.max_words is not None and self.max_words < self.min_words:
            raise impossible(
                f"max_words = {self.max_words} is less than min_words = {self.min_words}",
                "Lower min_words or raise max_words.",
            )
        if self.validation_target is not None and (self.validation is None or self.target is None):
            raise impossible(
                "data.validation_target was given without data.validation or without data.target",
                "Give data.validation and data.target too: a parallel validation file needs parallel training files.",
            )
        if self.target is not None and self.validation is not None and self.validation_target is None:
            raise impossible(
                "data.validation is one file, but the training data has two parallel files",
                "Give the file of targets as data.validation_target.",
            )
        return self
