"""Tokenizers: one class, `Tokenizer`, for seven schemes; each tokenizer is stored in a single `tokenizer.json`."""

from glassformer.text.tokenizers.frames import Frame
from glassformer.text.tokenizers.roles import number_tokenizer_json
from glassformer.text.tokenizers.tokenizer import StreamDecoder, Tokenizer, frame_of
from glassformer.text.tokenizers.training import train_tokenizer

__all__ = ["Frame", "StreamDecoder", "Tokenizer", "frame_of", "number_tokenizer_json", "train_tokenizer"]
