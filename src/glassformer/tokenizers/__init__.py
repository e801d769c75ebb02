"""Text to tokens and back: seven schemes behind one `Tokenizer`, each stored in one `tokenizer.json`."""

from glassformer.tokenizers.tokenizer import StreamDecoder, Tokenizer
from glassformer.tokenizers.training import train_tokenizer

__all__ = ["StreamDecoder", "Tokenizer", "train_tokenizer"]
