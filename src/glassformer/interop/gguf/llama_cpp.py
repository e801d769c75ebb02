"""Check a GGUF file with llama.cpp itself (package xllamacpp), which must load the file and agree with the run."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glassformer.base.errors import GlassError
from glassformer.base.packages import version_of
from glassformer.interop.export_report import Comparison
from glassformer.interop.gguf.targets import GgufArchitecture
from glassformer.interop.output_comparison import (
    TIE_TOLERANCE,
    TOKENS,
    Logits,
    largest_difference,
    logits_limit,
    random_rows,
)
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Decoder
from glassformer.runs.opening import OpenedRun
from glassformer.text.tokenizers import Tokenizer, frame_of

PACKAGE = "xllamacpp"
SCRIPT = Path(__file__).with_name("llama_script.py")
TEXTS = ("It was", "Once upon a time, there was a fox; it's 3 years old.", "আমি বাংলায় গান গাই। Größe, naïve\n\n\tDON'T …")
"""Passed as text, so that llama.cpp tokenizes them and adds the start token if the file says so."""
LENGTHS = (1, 7, 32, 256)
GELU = 10
"""Factor on the limit for GELU, which llama.cpp reads from a half-precision table (`ggml_table_gelu_f16` of ggml)."""
DISTANCE = {"f16": 5e-2, "q8_0": 5e-1}
"""Largest allowed change of logits or log-probabilities due to rounded weights and activations, as in `distance`."""


def llama_cpp_version() -> str | None:
    """Return the name and version of the installed llama.cpp; None if it is not installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        return None
    return f"llama.cpp ({version_of(PACKAGE)})"


def compare_with_llama_cpp(
    opened: OpenedRun, path: Path, kind: str, target: GgufArchitecture, ends: Collection[int]
) -> list[Comparison]:
    """Compare llama.cpp with the run: log-probabilities after texts and rows of tokens and, for f32, greedy tokens.

    Texts that fill the context are left out, because llama.cpp needs a position for the next token.

    Args:
        opened: the run; its context is at least 2.
        path: the GGUF file.
        kind: number type of the file; greedy tokens (up to `TOKENS` after each of three prompts) are compared for f32
            only.
        target: architecture of the file.
        ends: token ids that end a text in llama.cpp.

    Raises:
        GlassError: llama.cpp cannot load the file, or crashes.
    """
    model = opened.model
    assert isinstance(model, Decoder)
    context = opened.config.model.context
    frame = frame_of(opened.tokenizer, opened.config)
    size = opened.tokenizer.vocab_size
    texts = {text: frame.around(opened.tokenizer.encode(text)) for text in known_texts(opened.tokenizer, TEXTS)}
    rows = [random_rows(1, length, size)[0] for length in sorted({min(length, context - 1) for length in LENGTHS})]
    read: list[tuple[str | list[int], list[int]]] = [(row, row) for row in rows]
    read += [(text, ids) for text, ids in texts.items() if len(ids) < context]
    prompts = [random_rows(1, min(length, context - 1), size)[0] for length in (1, 5, 11)] if kind == "f32" else []
    counts = [min(TOKENS, context - len(prompt)) for prompt in prompts]
    whole = next(id for id in opened.tokenizer.text_ids if "\ufffd" not in opened.tokenizer.decode([id]))
    asked = [_next_token(given, size, int(whole)) for given, _ in read]
    asked += [_greedy(prompt, count) for prompt, count in zip(prompts, counts, strict=True)]
    answers = run_llama_cpp(path, context, asked)
    ours = [_log_probabilities(model, ids)[-1] for _, ids in read]  # (V) each
    theirs = [_answered(answer, size) for answer in answers[: len(read)]]  # (V) each
    said = f"log-probabilities after {len(rows)} rows of tokens and {len(read) - len(rows)} texts"
    if kind != "f32":
        return [Comparison("by llama.cpp", distance(ours, theirs), DISTANCE[kind], f"{said}, relative")]
    limit = logits_limit(ours) * (1 if target.gated else GELU)
    found = [Comparison("by llama.cpp", largest_difference(ours, theirs), limit, said)]
    differ = 0
    for prompt, answer in zip(prompts, answers[len(read) :], strict=True):
        differ += _unlikely(model, prompt, answer["tokens"], ends, max(TIE_TOLERANCE, 2 * limit))
    written = [len(answer["tokens"]) for answer in answers[len(read) :]]
    differ += sum(abs(one - other) for one, other in zip(written, counts, strict=True))
    compared = f"{sum(written)} tokens after {len(prompts)} prompts, by llama.cpp with its cache in float32"
    return [*found, Comparison("greedy by llama.cpp", differ, 0, compared)]


def known_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    """Return the texts without characters that encode to the unknown token, which llama.cpp drops.

    Texts without any known character are left out.
    """
    if tokenizer.unknown_id is None:
        return list(texts)
    known = ["".join(each for each in text if tokenizer.unknown_id not in tokenizer.encode(each)) for text in texts]
    return [text for text in known if text]


def run_llama_cpp(path: Path, context: int, asked: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return llama.cpp's responses to requests, from a separate process with a key-value cache in float32.

    Args:
        path: the GGUF file.
        context: context length, in tokens.
        asked: request bodies for `/completion` of llama-server.

    Raises:
        GlassError: llama.cpp cannot load the file, or crashes.
    """
    request = {"path": str(path), "context": context, "requests": list(asked)}
    done = subprocess.run([sys.executable, str(SCRIPT)], input=json.dumps(request).encode(), capture_output=True)
    if done.returncode:
        said = done.stderr.decode(errors="replace").splitlines() or ["no message"]
        reasons = [line.partition("error loading model: ")[2] for line in said]
        reason = next((each for each in reasons if each), said[-1])
        raise GlassError(
            f"llama.cpp cannot load or run the GGUF export: {reason.strip()}",
            "Nothing was written. Report this with the run's config.toml.",
        )
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def _next_token(given: str | list[int], size: int, whole: int) -> dict[str, Any]:
    """Return a request for the log-probabilities of all `size` tokens.

    llama.cpp omits them if the generated token ends inside a character. A logit bias therefore makes it generate
    `whole`, a token of whole characters; the reported log-probabilities do not change.
    """
    return {"prompt": given, "n_predict": 1, "temperature": 0, "n_probs": size, "logit_bias": [[whole, 1e5]]}


def _greedy(prompt: list[int], count: int) -> dict[str, Any]:
    """Return a request for `count` greedy tokens, none of which ends the text."""
    return {"prompt": prompt, "n_predict": count, "temperature": 0, "ignore_eos": True, "return_tokens": True}


def _answered(answer: dict[str, Any], size: int) -> Logits:
    """Return the log-probabilities (V) in the response to a request of `_next_token`."""
    tops = answer["completion_probabilities"][0]["top_logprobs"]
    found = np.full(size, np.nan)  # (V)
    found[[top["id"] for top in tops]] = [top["logprob"] for top in tops]
    return found


def _log_probabilities(model: Decoder, ids: Sequence[int]) -> Logits:
    """Return the run's log-probabilities of the next token: ids (T) -> (T, V)."""
    with inference(model):
        found: Logits = model(torch.tensor([list(ids)]))[0].double().log_softmax(dim=-1).numpy()  # (T, V)
    return found


def _unlikely(model: Decoder, prompt: Sequence[int], tokens: Sequence[int], ends: Collection[int], level: float) -> int:
    """Count llama.cpp's tokens whose log-probability in the run is more than `level` below the largest.

    Tokens that end a text (`ends`) are left out, because the request excludes them.
    """
    ours = _log_probabilities(model, [*prompt, *tokens][:-1])[len(prompt) - 1 :]  # (tokens, V)
    ours[:, list(ends)] = -np.inf
    written = ours[np.arange(len(tokens)), list(tokens)]  # (tokens)
    return int((ours.max(axis=1) - written > level).sum())


def distance(ours: Sequence[Logits], theirs: Sequence[Logits]) -> float:
    """Return the norm of `ours` - `theirs`, divided by the norm of `ours` after each row's mean is subtracted.

    The arrays are (V) or (T, V). The result is infinity if a value is NaN.
    """
    a = np.concatenate([np.atleast_2d(each) for each in ours])  # (rows, V)
    b = np.concatenate([np.atleast_2d(each) for each in theirs])  # (rows, V)
    found = float(np.linalg.norm(a - b) / np.linalg.norm(a - a.mean(axis=1, keepdims=True)))
    return found if found == found else float("inf")
