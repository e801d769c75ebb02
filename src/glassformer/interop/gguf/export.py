"""`glass export RUN --to gguf`: one file with sizes, tokenizer and weights, for llama.cpp.

The file appears only after its reloaded copies agree with the run: in transformers (`read_back`), in a NumPy
implementation of llama.cpp's rules (`numpy_reader`) and, if the package xllamacpp is installed and the context is at
least 2, in llama.cpp itself (`llama_cpp`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from glassformer.base.config import ModelConfig
from glassformer.base.errors import GlassError, nearest
from glassformer.base.files import refuse_taken
from glassformer.base.packages import require_packages
from glassformer.base.wording import quoted
from glassformer.interop.atomic_output import write_atomically
from glassformer.interop.export_report import Comparison, ExportReport, ExportRequest
from glassformer.interop.gguf.llama_cpp import (
    DISTANCE,
    LENGTHS,
    compare_with_llama_cpp,
    llama_cpp_version,
    relative_difference,
)
from glassformer.interop.gguf.numpy_reader import GgufModel
from glassformer.interop.gguf.read_back import TEXTS, TransformersModel, tokenizer_of
from glassformer.interop.gguf.targets import choose_target
from glassformer.interop.gguf.tokens import read_tokens
from glassformer.interop.gguf.writing import TYPES, gguf_tensors, need_gguf, write_gguf
from glassformer.interop.huggingface.choosing import ARCHITECTURES, closest_form
from glassformer.interop.huggingface.tokenizer_files import special_ids, template_tokens
from glassformer.interop.huggingface.weights import Tensors
from glassformer.interop.huggingface.writing import to_huggingface
from glassformer.interop.output_comparison import check_greedy, largest_difference, logits_limit, random_rows
from glassformer.model.build import build_model
from glassformer.model.transformer import Decoder
from glassformer.runs.opening import OpenedRun
from glassformer.text.tokenizers import Tokenizer, frame_of

SHORT = "not checked by llama.cpp itself, which needs a context of at least 2"
MISSING = "not checked by llama.cpp itself, which needs the package xllamacpp: pip install xllamacpp"

UNKNOWN = "llama.cpp drops characters that are not in the vocabulary; glassformer reads each as the unknown token"


def export(request: ExportRequest) -> ExportReport:
    """Export a language model as a GGUF file, and compare the file with the run.

    Args:
        request: the export; `dtype` is one of `writing.TYPES`, or None for f32.

    Raises:
        GlassError: `request.dtype` or `request.architecture` is unknown, a package is missing, `request.out` exists,
            the run cannot be read or is not a language model, llama.cpp cannot express its settings or tokenizer, a
            matrix cannot be quantized to q8_0, or the file does not match the run; then nothing is written.
    """
    out = request.out
    kind = (request.dtype or "f32").lower()
    if kind not in TYPES:
        raise GlassError(f"unknown --dtype {request.dtype!r} for GGUF", nearest(kind, TYPES))
    refuse_taken(out)
    require_packages("export to GGUF", "gguf", "transformers")
    opened = OpenedRun.load(request.folder, request.which, device="cpu")
    if not isinstance(opened.model, Decoder):
        raise GlassError(
            f"only language models can be exported to GGUF; this run has train.task = {opened.config.train.task}",
            "Use --to onnx or --to hf.",
        )
    config = opened.model.config.replace(vocab_size=opened.model.vocab_size)
    target = choose_target(config, dict(opened.model.state_dict()), request.architecture)
    template = opened.files.chat_template()
    tokens = replace(
        read_tokens(opened.files.tokenizer_file),
        end_id=opened.tokenizer.end_id,
        start_id=opened.tokenizer.start_id,
        answer_end_id=None if template is None else answer_end(template, opened.tokenizer),
    )
    values, theirs = to_huggingface(ARCHITECTURES[target.name], opened.model, "lm")
    form, ours = closest_form(ARCHITECTURES[target.name], config, dict(opened.model.state_dict()))
    begins_with_start = bool(frame_of(opened.tokenizer, opened.config).before)
    llama_cpp = llama_cpp_version() if config.context > 1 else None  # llama.cpp reserves a position for the next token
    checked_by = llama_cpp or "glassformer's GGUF reader"

    def fill(partial: Path) -> list[Comparison]:
        request.note(f"writing {target.name} in {kind}")
        tensors = gguf_tensors(theirs, target, form)
        write_gguf(
            partial, tensors, kind, target, form, tokens, begins_with_start, request.folder.resolve().name, template
        )
        request.note(f"comparing with {checked_by}")
        comparisons = compare(opened, partial, kind, values, rounded(form, ours, kind))
        return comparisons + (compare_with_llama_cpp(opened, partial, kind, target, tokens.ends) if llama_cpp else [])

    comparisons = write_atomically("GGUF", out, fill)
    use = f"llama-server --model {quoted(out)}"
    notes = []
    if config.context == 1:
        notes.append(SHORT)
    elif llama_cpp is None:
        notes.append(MISSING)
    if tokens.unknown_id is not None:
        notes.append(UNKNOWN)
    return ExportReport("gguf", target.name, out, out.stat().st_size, comparisons, checked_by, tuple(notes), use)


def answer_end(template: str, tokenizer: Tokenizer) -> int | None:
    """Return the id of the special token that ends an answer in a chat template.

    The result is None if answers end with the end token or with plain text.
    """
    ends, _ = template_tokens(template, tokenizer)
    return next(iter(ends - {tokenizer.end_id}), None)


def rounded(form: ModelConfig, ours: Tensors, kind: str) -> Decoder:
    """Return the run's model with its weights rounded as in the file, to compare its logits with those of the file."""
    gguf = need_gguf()
    quantization_type = gguf.GGMLQuantizationType[kind.upper()]
    tensors = {}
    for name, tensor in ours.items():
        quantized = kind != "f32" and tensor.ndim > 1 and "positions" not in name
        array = tensor.detach().float().numpy()
        tensors[name] = (
            torch.from_numpy(gguf.dequantize(gguf.quantize(array, quantization_type), quantization_type))
            if quantized
            else tensor
        )
    model = build_model(form)
    model.load_state_dict(tensors)
    assert isinstance(model, Decoder)
    return model.eval()


def compare(
    opened: OpenedRun, path: Path, kind: str, values: dict[str, object], rounded_model: Decoder
) -> list[Comparison]:
    """Compare the file with the run: logits of two implementations, and token ids of texts if the tokenizer is BPE.

    If nothing was rounded, greedy tokens are compared too; otherwise the effect of rounding on the logits is measured.

    Args:
        opened: the run.
        path: the GGUF file.
        kind: number type of the file.
        values: fields of `config.json` for the Hugging Face class.
        rounded_model: the model that `rounded` returned.
    """
    context = opened.config.model.context
    lengths = sorted({min(length, context) for length in LENGTHS})
    text_ids = opened.tokenizer.text_ids.tolist()
    rows = [[text_ids[index] for index in random_rows(1, length, len(text_ids))[0]] for length in lengths]
    with torch.inference_mode():
        run_logits, rounded_logits = (
            [model(torch.tensor([row]))[0].numpy() for row in rows] for model in (opened.model, rounded_model)
        )  # (T, V)
    numpy_model = GgufModel(path)
    transformers_model = TransformersModel(path, {**values, **special_ids(opened.tokenizer, opened.config)})
    numpy_logits = [numpy_model.logits(row) for row in rows]  # (T, V)
    transformers_logits = [transformers_model.logits(row) for row in rows]  # (T, V)
    rows_text = f"rows of {', '.join(map(str, lengths))} tokens" if len(lengths) > 1 else "a row of 1 token"
    limit = logits_limit(run_logits)
    weights_text = "" if kind == "f32" else f" against the run with weights rounded to {kind},"
    comparisons = [
        Comparison(
            "by rules",
            largest_difference(rounded_logits, numpy_logits),
            limit,
            f"logits by llama.cpp's rules,{weights_text} {rows_text}",
        ),
        Comparison(
            "by transformers",
            largest_difference(rounded_logits, transformers_logits),
            limit,
            f"logits,{weights_text} {rows_text}",
        ),
    ]
    if kind == "f32":
        comparisons.append(check_greedy(opened, transformers_model.next_logits, "by transformers without a cache"))
    else:
        comparisons.append(
            Comparison(
                "rounding",
                relative_difference(run_logits, numpy_logits),
                DISTANCE[kind],
                f"logits, relative to those of the run, {rows_text}",
            )
        )
    if opened.tokenizer.kind != "bpe":  # transformers refuses merges whose parts are not tokens
        return comparisons
    tokenizer = tokenizer_of(path)
    encoded = [tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"] for text in TEXTS]
    different = sum(ids != opened.tokenizer.encode(text) for ids, text in zip(encoded, TEXTS, strict=True))
    return [
        *comparisons,
        Comparison("token ids", different, 0, f"{len(TEXTS)} texts in several scripts, by transformers"),
    ]
