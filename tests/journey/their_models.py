"""Save tiny Hugging Face models with random weights, as transformers writes them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.parity.hugging_face import transformers

TEXTS = ["It was a small day.", "the old dog sleeps", "আমার সোনার বাংলা", "Привет, мир!", "3,141 days\n\tlater"] * 3
END = "<|endoftext|>"
BEGIN = "<|begin|>"


def bytes_bpe(begin: str | None = None, added: Iterable[str | AddedToken] = ()) -> Any:
    """Return a byte-level BPE tokenizer like GPT-2's.

    Args:
        begin: token to put before every text, as in Llama 3.
        added: further special tokens.
    """
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    special = [END, *([begin] if begin else [])]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    words.train_from_iterator(TEXTS, trainer)
    if begin:
        frame = processors.TemplateProcessing(single=f"{begin} $A", special_tokens=[(begin, 1)])
        words.post_processor = frame
    words.add_special_tokens(list(added))
    names = {"bos_token": begin} if begin else {}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token=END, **names)


def unigram() -> Any:
    """Return a tokenizer like T5's: spaces are part of tokens, and an end token follows each text."""
    words = Tokenizer(models.Unigram())
    words.normalizer = normalizers.NFKC()
    words.pre_tokenizer = pre_tokenizers.Metaspace()
    words.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    words.train_from_iterator(TEXTS, trainers.UnigramTrainer(vocab_size=90, special_tokens=special, unk_token="<unk>"))
    words.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>", unk_token="<unk>")


def wordpiece(texts: Iterable[str]) -> Any:
    """Return a tokenizer like BERT's: special tokens first, lower case, [CLS] TEXT [SEP]."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    words.normalizer = normalizers.BertNormalizer()
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.decoder = decoders.WordPiece()
    words.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special))
    frame = [("[CLS]", 2), ("[SEP]", 3)]
    words.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=frame)
    parts = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    names = dict(zip(parts, special, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **names)


def saved(folder: Path, kind: str, words: Any, **values: Any) -> Any:
    """Save a Hugging Face model with random weights and its tokenizer with `save_pretrained`, and return the model."""
    cls = getattr(transformers, kind)
    torch.manual_seed(0)
    model = cls(cls.config_class(vocab_size=len(words), eos_token_id=words.eos_token_id, **values)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return model


GPT2: dict[str, Any] = {"n_embd": 30, "n_layer": 2, "n_head": 5, "n_positions": 41, "bos_token_id": 0}
LLAMA: dict[str, Any] = {
    "hidden_size": 30,
    "intermediate_size": 37,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "head_dim": 6,
    "max_position_embeddings": 41,
    "bos_token_id": 1,
}
T5: dict[str, Any] = {
    "d_model": 30,
    "d_kv": 6,
    "d_ff": 37,
    "num_layers": 2,
    "num_heads": 5,
    "n_positions": 41,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
}
