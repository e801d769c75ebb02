"""Load a GGUF file with transformers: its tensors into the Hugging Face class, and its tokenizer."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from glassformer.base.errors import GlassError
from glassformer.interop.output_comparison import Logits

TEXTS = (
    "Once upon a time, there was a fox; it's 3 years old.\n\n  Two spaces, and a tab:\t1234.",
    "আমি বাংলায় গান গাই। Größe, naïve, 日本語, emoji 🙂, \u200dজ্ঞান",
    "<|end|> as text, <b>tags</b>, x=y*2; don't DON'T …",
)
"""Texts with spaces, newlines, digits, several scripts, joiners, contractions and the spelling of a special token."""


class TransformersModel:
    """A decoder class of transformers with the tensors of a GGUF file.

    Args:
        path: the GGUF file.
        config: fields of `config.json`, because a GGUF file lacks some that the Hugging Face class needs.

    Raises:
        GlassError: the file lacks a tensor of the class.
    """

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM
        from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

        model_config = AutoConfig.for_model(
            **{name: value for name, value in config.items() if name != "architectures"}
        )
        self.model: Any = AutoModelForCausalLM.from_config(model_config, dtype=torch.float32).eval()
        with contextlib.redirect_stderr(io.StringIO()):  # a progress bar
            tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=self.model)["tensors"]
        missing_keys = self.model.load_state_dict(tensors, strict=False).missing_keys
        tied_keys = {"lm_head.weight"} if model_config.tie_word_embeddings else set()
        if missing := sorted(set(missing_keys) - tied_keys):
            raise GlassError(
                f"transformers does not find the tensor {missing[0]} in {path}",
                "Report this with the run's config.toml.",
            )
        self.model.tie_weights()

    def logits(self, tokens: Sequence[int]) -> Logits:
        """Compute logits: ids (T) -> (T, V)."""
        with torch.inference_mode():
            logits: Logits = self.model(torch.tensor([list(tokens)])).logits[0].numpy()  # (T, V)
        return logits

    def next_logits(self, source: Sequence[int], tokens: Sequence[int]) -> Logits:
        """Return the logits (V) of the next token, without a cache; see `output_comparison.NextLogitsFunction`."""
        last: Logits = self.logits(tokens)[-1]
        return last


def tokenizer_of(path: Path) -> Any:
    """Load the tokenizer of a GGUF file with transformers."""
    from transformers import AutoTokenizer

    with contextlib.redirect_stderr(io.StringIO()):
        return AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
