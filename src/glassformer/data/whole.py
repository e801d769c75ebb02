"""A text that is only measured, never learnt from: encoded whole with a tokenizer that exists already."""

from __future__ import annotations

from pathlib import Path

from glassformer.config import DataConfig
from glassformer.data.documents import kept_pieces, survey
from glassformer.data.encode import Encoder
from glassformer.data.reading import open_source
from glassformer.data.split import SidedPiece
from glassformer.data.store import StoreWriter, TokenStore
from glassformer.tokenizers import Tokenizer


def encode_whole(data: DataConfig, tokenizer: Tokenizer, folder: Path) -> tuple[TokenStore, list[str]]:
    """All documents of a source as one token store in `folder`, and what a person should know of the reading.

    Raises:
        GlassError: the source cannot be read, or holds no text.
    """
    with open_source(data, folder) as source:
        found = survey(source, data)
        writer = StoreWriter(folder / "text", tokenizer)
        try:
            pieces = kept_pieces(source, data, found, marks=False)
            Encoder(tokenizer, {"train": writer, "validation": writer}).encode(
                SidedPiece("validation", piece.text, piece.last) for piece in pieces
            )
            writer.close()
        finally:
            writer.abandon()
        return TokenStore.open(folder / "text"), list(source.notes)
