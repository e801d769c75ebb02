"""What was written, loaded by `transformers` and compared with the run: token ids, logits, and text that is written."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.config import Config
from glassformer.errors import GlassError
from glassformer.generation.context import CachedReader, Reader, reading
from glassformer.generation.targets import CachedTargetReader
from glassformer.interop.export_report import Measured
from glassformer.interop.huggingface.tokenizer_files import frame
from glassformer.model.families import Decoder, Encoder, EncoderDecoder, Model
from glassformer.tokenizers import Tokenizer

LOGITS = 1e-3  # largest difference that is allowed
WRITTEN = 64  # tokens, where the context has room for them
TEXTS = (
    "The old dog sleeps in the sun.", "It wasn't 3,141.59 — was it?\n\n\tYes!  ",
    "আমার সোনার বাংলা, আমি তোমায় ভালোবাসি।",
    "Привет, мир! Ελληνικά. עברית, العربية", "今天天气很好。東京タワー",
    "क्षत्रिय त्रिज्ञ 👩‍👩‍👧‍👦 e\u0301",
    "a\u200cb \u00a0<s></s><|end|>[MASK]",
)  # fmt: skip
"""Several scripts, spaces of all kinds, joined characters, and text that spells special tokens."""


def require_transformers() -> None:
    """Raise a `GlassError` where the package is missing."""
    if importlib.util.find_spec("transformers") is None:
        raise GlassError(
            "an export is loaded back and compared, which needs the package transformers",
            'pip install -c constraints.txt -e ".[export]"',
        )


@contextmanager
def quiet() -> Iterator[Any]:
    """The package, without its messages, without its progress bars, and without the network; as it was afterwards."""
    offline = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(50)  # critical
    logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
        if offline is None:
            del os.environ["HF_HUB_OFFLINE"]


def compare(folder: Path, model: Model, tokenizer: Tokenizer, config: Config) -> tuple[Measured, ...]:
    """Load a folder by the package's own automatic classes, and measure how far it is from the run.

    Raises:
        GlassError: the package cannot load it.
    """
    with quiet() as transformers:
        kind = {
            Decoder: transformers.AutoModelForCausalLM,
            EncoderDecoder: transformers.AutoModelForSeq2SeqLM,
        }.get(type(model), transformers.AutoModelForTokenClassification)
        try:
            theirs = kind.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
            words = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # whatever their loading may raise
            raise GlassError(
                f"transformers {transformers.__version__} cannot load what was written: {type(error).__name__} {error}",
                "Install the version of transformers that constraints.txt names.",
            ) from error
        found = [_token_ids(words, tokenizer, config), _logits(theirs, model)]
        if isinstance(model, Decoder | EncoderDecoder):
            found.append(_written(theirs, model, tokenizer.end_id))
    return tuple(found)


def compare_logits(folder: Path, model: Model) -> Measured:
    """Load a folder by the class that its `config.json` names, and measure how far a model of ours is from it.

    Raises:
        GlassError: the package cannot load it.
    """
    with quiet() as transformers:
        try:
            kind = getattr(transformers, transformers.AutoConfig.from_pretrained(folder).architectures[0])
            theirs = kind.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
        except Exception as error:  # whatever their loading may raise
            raise GlassError(
                f"transformers {transformers.__version__} cannot load {folder}: {type(error).__name__} {error}",
                "Copy the model again from where it was made.",
            ) from error
        return _logits(theirs, model)


def _token_ids(words: Any, tokenizer: Tokenizer, config: Config) -> Measured:
    """How many texts have other ids, without and with their frame."""
    before, after = frame(tokenizer, config)
    different = 0
    for text in TEXTS:
        ids = tokenizer.encode(text)
        plain = words(text, add_special_tokens=False)["input_ids"]
        different += plain != ids or words(text)["input_ids"] != [*before, *ids, *after]
    return Measured("token ids", different, 0, f"{len(TEXTS)} texts in nine scripts")


def rows_of(model: Model, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Three rows of random tokens, (3, T), of different lengths, and which places are real, (3, T)."""
    longest = min(model.config.context, 48)
    lengths = torch.tensor([longest, max(1, longest // 2), max(1, longest // 3)])  # (3)
    size = model.vocab_size
    if isinstance(model, EncoderDecoder) and model.source_embedding is not None:
        size = model.source_embedding.tokens.num_embeddings
    tokens = torch.randint(size, (3, longest), generator=torch.Generator().manual_seed(seed))  # (3, T)
    return tokens, torch.arange(longest) < lengths[:, None]


@torch.no_grad()
def _logits(theirs: Any, model: Model) -> Measured:
    """The largest difference at places that are not padding."""
    tokens, real = rows_of(model)  # (B, T) each
    if isinstance(model, EncoderDecoder):
        target = rows_of(model, seed=1)[0]  # (B, T)
        other = theirs(input_ids=tokens, attention_mask=real.long(), decoder_input_ids=target).logits  # (B, T, V)
        with reading(model):
            ours = model(tokens, target, real)  # (B, T, V)
        real = torch.ones_like(real)
    else:
        other = theirs(input_ids=tokens, attention_mask=real.long()).logits  # (B, T, V or C)
        with reading(model):
            ours = model(tokens, real)  # (B, T, V), or (B, C) of a classifier
    if not isinstance(model, Decoder | Encoder | EncoderDecoder):  # a text's scores, of its first token or the mean
        weights = real.float() if model.config.pooling == "mean" else (torch.arange(real.shape[1]) == 0).float()[None]
        other = (other * weights[..., None]).sum(1) / weights.sum(1, keepdim=True)  # (B, C)
        difference = float((other - ours).abs().max())
    else:
        difference = float((other - ours)[real].abs().max())
    compared = f"{ours.numel():,} numbers, of three texts of up to {tokens.shape[1]} tokens, padded"
    return Measured("logits", difference, LOGITS, compared)


@torch.no_grad()
def _written(theirs: Any, model: Decoder | EncoderDecoder, end: int) -> Measured:
    """How many tokens differ of what both write greedily for three prompts; the end token ends nothing here."""
    tokens, real = rows_of(model, seed=2)  # (B, T) each
    most = min(8, max(1, model.config.context // 3))
    prompts = [row[keep][:most].tolist() for row, keep in zip(tokens, real, strict=True)]
    count = min(WRITTEN, model.config.context - (most if isinstance(model, Decoder) else 1))
    ours = greedy(model, prompts, count, end)
    theirs.generation_config.eos_token_id = theirs.generation_config.forced_eos_token_id = None
    different = 0
    for prompt, wanted in zip(prompts, ours, strict=True):
        mask = torch.ones(1, len(prompt), dtype=torch.long)  # (1, T)
        sizes = {"max_new_tokens": count, "do_sample": False, "num_beams": 1, "pad_token_id": end}
        found = theirs.generate(torch.tensor([prompt]), attention_mask=mask, **sizes)[0].tolist()[-count:]
        different += sum(one != other for one, other in zip(found, wanted, strict=True))
    return Measured("greedy tokens", different, 0, f"{count} tokens for each of {len(prompts)} prompts")


def greedy(model: Decoder | EncoderDecoder, prompts: list[list[int]], count: int, end: int) -> list[list[int]]:
    """The likeliest token, again and again: `count` for each prompt, the end token like any other."""
    reader: Reader
    if isinstance(model, Decoder):
        rows, reader = [list(prompt) for prompt in prompts], CachedReader(model, max(map(len, prompts)) + count)
    else:
        rows, reader = [[end] for _ in prompts], CachedTargetReader(model, prompts, count)
    for _ in range(count):
        with reading(model):
            logits = reader.read(rows)  # (B, V)
        for row, token in zip(rows, logits.argmax(dim=-1).tolist(), strict=True):
            row.append(token)
    return [row[-count:] for row in rows]
