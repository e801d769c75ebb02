"""Convert an exported encoder-decoder to CTranslate2's format and translate with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from glassformer.interop.output_comparison import TIE_TOLERANCE
from glassformer.model.evaluation_mode import inference
from glassformer.runs.opening import OpenedRun
from glassformer.tasks import Translator

TEXTS = ("the old dog", "it's 7 o'clock", "আমি বাংলায় গান গাই")
COUNT = 30
"""Maximum number of tokens of a translation."""


def unlikely_translations(run: Path, export: Path, texts: Sequence[str] = TEXTS) -> int:
    """Translate texts greedily with CTranslate2, and count the tokens that are not the run's likeliest tokens.

    Tokens that tie with the likeliest token within `TIE_TOLERANCE` are not counted.

    Args:
        run: the run folder.
        export: folder of the same run's export with `--to hf`; the converted model is written beside it.
        texts: texts to translate; a translation ends with its end token or after `COUNT` tokens.
    """
    import ctranslate2
    import transformers

    folder = export.with_name(f"{export.name}-ct2")
    command = [sys.executable, "-m", "ctranslate2.converters.transformers", "--model", str(export)]
    subprocess.run([*command, "--output_dir", str(folder)], check=True, capture_output=True)
    translator = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    words = transformers.AutoTokenizer.from_pretrained(export)
    model = OpenedRun.load(run, device="cpu").text_model
    assert isinstance(model, Translator)
    different = 0
    for text in texts:
        tokens = words.convert_ids_to_tokens(words(text)["input_ids"])
        found = translator.translate_batch(
            [tokens], beam_size=1, min_decoding_length=0, max_decoding_length=COUNT, return_end_token=True
        )
        ids = words.convert_tokens_to_ids(found[0].hypotheses[0])
        assert len(ids) == COUNT or ids[-1] == model.tokenizer.end_id
        different += _unlikely(model, text, ids)
    return different


def _unlikely(model: Translator, text: str, ids: Sequence[int]) -> int:
    """Return the number of tokens of a translation that are neither the run's likeliest token nor tied with it."""
    source = torch.tensor([model.prompt_ids(text)])  # (1, S)
    target = torch.tensor([[*model.tokenizer.target_start, *ids[:-1]]])  # (1, T)
    with inference(model.model):
        logits = model.model(source, target)[0]  # (T, V)
    written = logits.gather(1, torch.tensor(ids)[:, None])[:, 0]  # (T)
    return int((logits.max(dim=-1).values - written > TIE_TOLERANCE).sum())
