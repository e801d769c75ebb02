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
from glassformer.base.wording import counted
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
"""Texts for llama.cpp to tokenize; it adds the start token if the file requires one."""
LENGTHS = (1, 7, 32, 256)
GELU = 10
"""Factor by which the limit is larger with GELU, because llama.cpp reads GELU from a half-precision table
(`ggml_table_gelu_f16` of ggml)."""
DISTANCE = {"f16": 5e-2, "q8_0": 5e-1}
"""Largest allowed `relative_difference` of logits or log-probabilities due to rounded weights and activations."""


def llama_cpp_version() -> str | None:
    """Return "llama.cpp" with the version of the package xllamacpp; None if the package is not installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        return None
    return f"llama.cpp ({version_of(PACKAGE)})"


def compare_with_llama_cpp(
    opened: OpenedRun, path: Path, kind: str, target: GgufArchitecture, end_ids: Collection[int]
) -> list[Comparison]:
    """Compare llama.cpp with the run: log-probabilities after texts and rows of tokens and, for f32, greedy tokens.

    Texts that fill or exceed the context are left out, because llama.cpp needs a position for the next token.

    Args:
        opened: the run; its context is at least 2.
        path: the GGUF file.
        kind: number type of the file; greedy tokens (up to `TOKENS` after each of three prompts) are compared for f32
            only.
        target: architecture of the file.
        end_ids: token ids that end a text in llama.cpp.

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
    inputs: list[tuple[str | list[int], list[int]]] = [(row, row) for row in rows]
    inputs += [(text, ids) for text, ids in texts.items() if len(ids) < context]
    prompts = [random_rows(1, min(length, context - 1), size)[0] for length in (1, 5, 11)] if kind == "f32" else []
    counts = [min(TOKENS, context - len(prompt)) for prompt in prompts]
    whole_token = next(id for id in opened.tokenizer.text_ids if "\ufffd" not in opened.tokenizer.decode([id]))
    requests = [_next_token_request(prompt, size, int(whole_token)) for prompt, _ in inputs]
    requests += [_greedy_request(prompt, count) for prompt, count in zip(prompts, counts, strict=True)]
    answers = run_llama_cpp(path, context, requests)
    our_log_probabilities = [_log_probabilities(model, ids)[-1] for _, ids in inputs]  # (V) each
    their_log_probabilities = [
        _response_log_probabilities(answer, size) for answer in answers[: len(inputs)]
    ]  # (V) each
    texts_read = counted(len(inputs) - len(rows), "texts")
    description = f"log-probabilities after {counted(len(rows), 'rows')} of tokens and {texts_read}"
    if kind != "f32":
        return [
            Comparison(
                "by llama.cpp",
                relative_difference(our_log_probabilities, their_log_probabilities),
                DISTANCE[kind],
                f"{description}, relative to those of the run",
            )
        ]
    limit = logits_limit(our_log_probabilities) * (1 if target.gated else GELU)
    comparisons = [
        Comparison(
            "by llama.cpp", largest_difference(our_log_probabilities, their_log_probabilities), limit, description
        )
    ]
    different = 0
    for prompt, answer in zip(prompts, answers[len(inputs) :], strict=True):
        different += _count_unlikely(model, prompt, answer["tokens"], end_ids, max(TIE_TOLERANCE, 2 * limit))
    token_counts = [len(answer["tokens"]) for answer in answers[len(inputs) :]]
    different += sum(abs(one - other) for one, other in zip(token_counts, counts, strict=True))
    compared = f"{sum(token_counts)} tokens after {len(prompts)} prompts, by llama.cpp with its cache in float32"
    return [*comparisons, Comparison("greedy by llama.cpp", different, 0, compared)]


def known_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    """Return texts without the characters that encode to the unknown token, because llama.cpp drops these characters.

    Texts that consist only of such characters are left out.
    """
    if tokenizer.unknown_id is None:
        return list(texts)
    cleaned = ["".join(each for each in text if tokenizer.unknown_id not in tokenizer.encode(each)) for text in texts]
    return [text for text in cleaned if text]


def run_llama_cpp(path: Path, context: int, requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return llama.cpp's responses to requests, from a separate process with a key-value cache in float32.

    Args:
        path: the GGUF file.
        context: context length, in tokens.
        requests: request bodies for `/completion` of llama-server.

    Raises:
        GlassError: llama.cpp cannot load the file, or crashes.
    """
    script_input = {"path": str(path), "context": context, "requests": list(requests)}
    process = subprocess.run(
        [sys.executable, str(SCRIPT)], input=json.dumps(script_input).encode(), capture_output=True
    )
    if process.returncode:
        stderr_lines = process.stderr.decode(errors="replace").splitlines() or ["no message"]
        reasons = [line.partition("error loading model: ")[2] for line in stderr_lines]
        reason = next((each for each in reasons if each), stderr_lines[-1])
        raise GlassError(
            f"llama.cpp cannot load or run the GGUF export: {reason.strip()}",
            "Nothing was written. Report this with the run's config.toml.",
        )
    answers: list[dict[str, Any]] = json.loads(process.stdout)
    return answers


def _next_token_request(prompt: str | list[int], size: int, whole_token: int) -> dict[str, Any]:
    """Return a request for the log-probabilities of all `size` tokens.

    llama.cpp omits them if the generated token ends inside a character. A logit bias therefore makes it generate
    `whole_token`, a token of whole characters; the reported log-probabilities do not change.
    """
    return {"prompt": prompt, "n_predict": 1, "temperature": 0, "n_probs": size, "logit_bias": [[whole_token, 1e5]]}


def _greedy_request(prompt: list[int], count: int) -> dict[str, Any]:
    """Return a request for `count` greedy tokens, none of which ends the text."""
    return {"prompt": prompt, "n_predict": count, "temperature": 0, "ignore_eos": True, "return_tokens": True}


def _response_log_probabilities(answer: dict[str, Any], size: int) -> Logits:
    """Return the log-probabilities (V) in the response to a request of `_next_token_request`."""
    candidates = answer["completion_probabilities"][0]["top_logprobs"]
    log_probabilities = np.full(size, np.nan)  # (V)
    log_probabilities[[candidate["id"] for candidate in candidates]] = [
        candidate["logprob"] for candidate in candidates
    ]
    return log_probabilities


def _log_probabilities(model: Decoder, ids: Sequence[int]) -> Logits:
    """Return the run's log-probabilities of the next token: ids (T) -> (T, V)."""
    with inference(model):
        log_probabilities: Logits = model(torch.tensor([list(ids)]))[0].double().log_softmax(dim=-1).numpy()  # (T, V)
    return log_probabilities


def _count_unlikely(
    model: Decoder, prompt: Sequence[int], tokens: Sequence[int], end_ids: Collection[int], tolerance: float
) -> int:
    """Count llama.cpp's tokens whose log-probability in the run is more than `tolerance` below the largest.

    Tokens that end a text (`end_ids`) are left out, because the request excludes them.
    """
    ours = _log_probabilities(model, [*prompt, *tokens][:-1])[len(prompt) - 1 :]  # (tokens, V)
    ours[:, list(end_ids)] = -np.inf
    token_log_probabilities = ours[np.arange(len(tokens)), list(tokens)]  # (tokens)
    return int((ours.max(axis=1) - token_log_probabilities > tolerance).sum())


def relative_difference(ours: Sequence[Logits], theirs: Sequence[Logits]) -> float:
    """Return the norm of `ours` - `theirs`, divided by the norm of `ours` minus the mean of each row of `ours`.

    The arrays are (V) or (T, V). The result is infinity if a value is NaN.
    """
    a = np.concatenate([np.atleast_2d(each) for each in ours])  # (rows, V)
    b = np.concatenate([np.atleast_2d(each) for each in theirs])  # (rows, V)
    relative = float(np.linalg.norm(a - b) / np.linalg.norm(a - a.mean(axis=1, keepdims=True)))
    return relative if relative == relative else float("inf")
