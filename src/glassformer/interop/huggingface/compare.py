"""Compare an export, loaded by `transformers`, with the run: token ids, logits and generated tokens."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.base.errors import GlassError
from glassformer.base.wording import counted
from glassformer.interop.export_report import Comparison
from glassformer.interop.huggingface.tokenizer_files import spells_special_tokens
from glassformer.interop.output_comparison import TIE_TOLERANCE, TOKENS, logits_limit
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Classifier, Decoder, EncoderDecoder, Model, ModelInput
from glassformer.runs.opening import OpenedRun
from glassformer.tasks.filling import MaskFiller
from glassformer.text.tokenizers import frame_of

LEAST_CONTEXT_FOR_MASKS = 42
"""Longest context for which texts with masks are not compared: encoded as bytes, they may exceed such a context."""
TEXTS = (
    "The old dog sleeps in the sun.",
    "It wasn't 3,141.59 — was it?\n\n\tYes!  ",
    "আমার সোনার বাংলা, আমি তোমায় ভালোবাসি।",
    "Привет, мир! Ελληνικά. עברית, العربية",
    "今天天气很好。東京タワー",
    "क्षत्रिय त्रिज्ञ 👩‍👩‍👧‍👦 e\u0301",
    "a\u200cb \u00a0<s></s><|end|>[MASK]",
)
"""Texts with several scripts, several kinds of spaces, joined characters, and spellings of special tokens."""


@contextmanager
def quiet() -> Iterator[Any]:
    """Yield transformers without messages, progress bars or network access; restore its state at the end."""
    offline = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers
    from transformers.utils import logging

    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
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
        else:
            os.environ["HF_HUB_OFFLINE"] = offline


def class_named(name: str) -> Any:
    """Return a class of transformers or of this package by name; code in a model folder is never executed."""
    import transformers

    if name.startswith("BertMean"):
        from glassformer.interop.huggingface import bert_mean

        return getattr(bert_mean, name)
    if name.startswith("EsmMean"):
        from glassformer.interop.huggingface import esm_mean

        return getattr(esm_mean, name)
    return getattr(transformers, name)


def compare(folder: Path, opened: OpenedRun, class_name: str, padding_id: int | None = None) -> tuple[Comparison, ...]:
    """Load an exported folder with transformers, and compare token ids, logits and greedy tokens with the run.

    Greedy tokens are compared if the model generates text and the context has room for new tokens.

    Args:
        folder: the exported folder.
        opened: the run.
        class_name: the name of the model's class, for `class_named`.
        padding_id: id of the padding token, if the class computes positions from it.

    Raises:
        GlassError: transformers cannot load the folder.
    """
    model = opened.model
    tokenizer = opened.tokenizer
    with quiet() as transformers:
        try:
            theirs = class_named(class_name).from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
            their_tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # loading may raise any exception
            raise GlassError(
                f"transformers {transformers.__version__} cannot load the export: {_on_one_line(error)}",
                "Install the version of transformers that constraints.txt names.",
            ) from error
        comparisons = [_token_id_comparison(their_tokenizer, opened), _logits_comparison(theirs, model, padding_id)]
        if isinstance(model, Decoder | EncoderDecoder):
            greedy = _greedy_comparison(theirs, model, tokenizer.end_id)
            comparisons += [greedy] if greedy is not None else []
    return tuple(comparisons)


def compare_logits(folder: Path, class_name: str, model: Model, padding_id: int | None = None) -> Comparison:
    """Load a folder with transformers, and compare its logits with those of our model.

    Args:
        folder: the model folder.
        class_name: the name of the class, for `class_named`.
        model: our model.
        padding_id: as in `compare`.

    Raises:
        GlassError: transformers cannot load the folder.
    """
    with quiet() as transformers:
        try:
            options = {"dtype": torch.float32, "local_files_only": True, "use_safetensors": True}
            theirs = class_named(class_name).from_pretrained(folder, **options).eval()
        except Exception as error:  # loading may raise any exception
            raise GlassError(
                f"transformers {transformers.__version__} cannot load {folder}: {_on_one_line(error)}",
                "Copy the model again from its source.",
            ) from error
        return _logits_comparison(theirs, model, padding_id)


def _on_one_line(error: Exception) -> str:
    """Return the error's type and message on one line of at most 300 characters."""
    return f"{type(error).__name__} {' '.join(str(error).split())}"[:300]


def _token_id_comparison(their_tokenizer: Any, opened: OpenedRun) -> Comparison:
    """Count texts whose token ids differ, with or without their frame; for a masked model, also texts with masks."""
    tokenizer = opened.tokenizer
    frame = frame_of(opened.tokenizer, opened.config)
    masked = opened.config.train.task == "masked"
    different = 0
    spells = spells_special_tokens(opened.config, opened.files.chat_template())
    texts = [_without_spellings(text, their_tokenizer.all_special_tokens) for text in TEXTS] if spells else TEXTS
    for text in texts:
        ids = tokenizer.encode(text)
        plain = their_tokenizer(text, add_special_tokens=False)["input_ids"]
        different += plain != ids or their_tokenizer(text)["input_ids"] != frame.around(ids)
    if not masked or opened.config.model.context <= LEAST_CONTEXT_FOR_MASKS:
        return Comparison("token ids", different, 0, f"{len(texts)} texts in nine scripts")
    mask_filler = MaskFiller(opened.model, tokenizer, opened.config)
    for text in (f"The {mask_filler.MASK} dog", f"{mask_filler.MASK}, {mask_filler.MASK} and it"):
        theirs = their_tokenizer(text.replace(mask_filler.MASK, their_tokenizer.mask_token))
        different += theirs["input_ids"] != mask_filler.ids(text)
    return Comparison("token ids", different, 0, f"{len(texts)} texts in nine scripts, and with masks")


def _without_spellings(text: str, names: Sequence[str]) -> str:
    """Remove the spellings of special tokens, which a tokenizer with masks or a chat template would read as tokens."""
    for name in names:
        text = text.replace(name, "")
    return text


def random_batch(model: Model, seed: int = 0, padding_id: int | None = None) -> tuple[Tensor, Tensor]:
    """Return random token ids, (3, T), and their attention mask, (3, T).

    The second and third rows are shorter and padded on the right. No id is `padding_id`.
    """
    longest = min(model.config.context, 48)
    lengths = torch.tensor([longest, max(1, longest // 2), max(1, longest // 3)])  # (3)
    size = model.vocab_size
    if isinstance(model, EncoderDecoder) and model.source_embedding is not None:
        size = model.source_embedding.tokens.num_embeddings
    tokens = torch.randint(size, (3, longest), generator=torch.Generator().manual_seed(seed))  # (3, T)
    if padding_id is not None:
        tokens[tokens == padding_id] = (padding_id + 1) % size
    return tokens, torch.arange(longest) < lengths[:, None]


@torch.no_grad()
def _logits_comparison(theirs: Any, model: Model, padding_id: int | None) -> Comparison:
    """Measure the largest difference of the logits at positions that are not padding."""
    tokens, attention_mask = random_batch(model, padding_id=padding_id)  # (B, T) each
    target = random_batch(model, seed=1)[0] if len(model.stacks) == 2 else None  # (B, T)
    their_target = {} if target is None else {"decoder_input_ids": target}
    their_logits = theirs(input_ids=tokens, attention_mask=attention_mask.long(), **their_target).logits
    with inference(model):
        our_logits = model.run(ModelInput(tokens, target, attention_mask))  # (B, T, V), or (B, C) of a classifier
    if target is not None:
        attention_mask = torch.ones_like(attention_mask)  # (B, T)
    if isinstance(model, Classifier) and their_logits.ndim == 3:  # text scores: of the first token, or the mean
        weights = (
            attention_mask.float()
            if model.config.pooling == "mean"
            else (torch.arange(attention_mask.shape[1]) == 0).float()[None]
        )
        their_logits = (their_logits * weights[..., None]).sum(1) / weights.sum(1, keepdim=True)  # (B, C)
    if isinstance(model, Classifier):
        difference = float((their_logits - our_logits).abs().max())
    else:
        difference = float((their_logits - our_logits)[attention_mask].abs().max())
    compared = f"{our_logits.numel():,} logits of three padded texts of up to {counted(tokens.shape[1], 'tokens')}"
    return Comparison("logits", difference, logits_limit([our_logits.numpy()]), compared)


@torch.no_grad()
def _greedy_comparison(theirs: Any, model: Decoder | EncoderDecoder, end_id: int) -> Comparison | None:
    """Count transformers' greedy tokens, for three prompts, that are not the run's most likely tokens.

    A token whose logit is within `TIE_TOLERANCE` of the largest does not count. Forced tokens are off, and the end
    token does not end a text. The result is None if the context has no room for new tokens.
    """
    tokens, attention_mask = random_batch(model, seed=2)  # (B, T) each
    prompt_length = min(8, max(1, model.config.context // 3))
    prompts = [row[row_mask][:prompt_length] for row, row_mask in zip(tokens, attention_mask, strict=True)]  # (T) each
    count = min(TOKENS, model.config.context - (prompt_length if isinstance(model, Decoder) else 1))
    if count < 1:
        return None
    for name in ("eos_token_id", "forced_eos_token_id", "forced_bos_token_id"):
        setattr(theirs.generation_config, name, None)
    options = {
        "min_new_tokens": count,
        "max_new_tokens": count,
        "do_sample": False,
        "num_beams": 1,
        "pad_token_id": end_id,
    }
    different = 0
    for prompt in prompts:
        mask = torch.ones(1, len(prompt), dtype=torch.long)  # (1, T)
        generated = theirs.generate(prompt[None], attention_mask=mask, **options)  # (1, T)
        with inference(model):
            inputs = generated[:, :-1]  # (1, T)
            logits = model(inputs) if isinstance(model, Decoder) else model(prompt[None], inputs)  # (1, T, V)
        highest_logits = logits[0, -count:].max(dim=-1).values  # (count)
        chosen_logits = logits[0, -count:].gather(1, generated[0, -count:, None])[:, 0]  # (count)
        different += int((highest_logits - chosen_logits > TIE_TOLERANCE).sum())
    return Comparison("greedy tokens", different, 0, f"{counted(count, 'tokens')} for each of {len(prompts)} prompts")
