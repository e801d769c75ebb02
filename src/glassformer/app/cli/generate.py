"""Continue a prompt with a trained model, or translate or summarize it if the model was trained for that task.

  glass generate runs/book "Once upon a time"
  glass generate runs/book "Once upon a time" --tokens 400 --temperature 0.7 --top-p 0.95
  glass generate runs/book "Once upon a" --top 10
  glass generate runs/book --input prompts.txt
  glass generate runs/en-de "A man is sleeping." --beams 4 --samples 3

With --beams of 2 or more, beam search looks for the likeliest text, and --samples prints the best results. Runs that
translate or summarize use 4 beams by default; --beams 1 and options such as --temperature turn beam search off.

--backend onnxruntime computes on the CPU, usually faster than PyTorch; onnxruntime-int8 is faster still, with 8-bit
weights, but not exact. auto chooses onnxruntime for long greedy generation if it is installed.

When a continued text grows beyond the context, the oldest half of the context is dropped and the positions of the rest
are renumbered from 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.app.cli.backend_option import add_backend
from glassformer.app.cli.settings import add_section_flags
from glassformer.app.cli.texts import (
    add_table_flags,
    standard_input,
    table_flags,
    texts_of,
    warn_truncated,
    warn_unknown,
)
from glassformer.app.cli.uses import wrong_command
from glassformer.base.config import Config, SampleConfig
from glassformer.base.errors import GlassError
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import counted

if TYPE_CHECKING:
    from glassformer.tasks import TextModel, Translator


SAMPLING = {f"sample.{name}" for name in ("temperature", "top_k", "top_p", "min_p", "seed", "repetition_penalty")}
"""Sampling settings, which have no effect in beam search."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glass generate`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "prompt",
        nargs="?",
        metavar="PROMPT",
        help="the text to continue, translate or summarize; - reads standard input",
    )
    parser.add_argument(
        "--input",
        type=Path,
        metavar="FILE",
        help="file with one prompt per line, or a table with one per row; each output is printed as one line",
    )
    add_table_flags(parser, "--input")
    parser.add_argument(
        "--samples",
        type=int,
        default=1,
        metavar="N",
        help="number of texts per prompt, with seeds seed, seed + 1, …; for beam search, the N best",
    )
    parser.add_argument(
        "--top",
        type=int,
        nargs="?",
        const=10,
        metavar="N",
        help="print the N likeliest next tokens (10 without a number)",
    )
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="checkpoint to load (default: best)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    parser.add_argument(
        "--precision", choices=("auto", "fp32", "bf16"), default="fp32", help="floating-point precision (default: fp32)"
    )
    add_backend(parser)
    group = parser.add_argument_group("sampling (defaults: the run's own [sample] settings)")
    add_section_flags(group, "sample", SampleConfig, leave_out=("prompt",))


def run(arguments: argparse.Namespace) -> int:
    """Generate text for the prompts, or rank the candidates for the next token with `--top`."""
    from glassformer.backends.choosing import choose_engine
    from glassformer.runs.opening import OpenedRun
    from glassformer.tasks import TextModel, Translator

    if arguments.samples < 1 or (arguments.top is not None and arguments.top < 1):
        wrong = f"--samples {arguments.samples}" if arguments.samples < 1 else f"--top {arguments.top}"
        raise GlassError(f"{wrong} is below 1", "Give a number of at least 1.")
    flags = {key: value for key, value in vars(arguments).items() if key.startswith("sample.") and value is not None}
    if arguments.top is not None and (flags or arguments.samples > 1):
        name = next(iter(flags), "samples").removeprefix("sample.").replace("_", "-")
        raise GlassError(f"--{name} was given with --top, which generates no text", f"Remove --{name} or --top.")
    model = OpenedRun.load(arguments.run, arguments.checkpoint, arguments.device, arguments.precision).text_model
    if not isinstance(model, TextModel | Translator):
        raise wrong_command(arguments.run, model.config.train.task)
    config = model.config.with_changes({**flags, **stop_changes(flags), **sampling_changes(flags)})
    refuse_unused_penalty(flags, config.sample)
    if 1 < config.sample.beams < arguments.samples:
        raise GlassError(
            f"--samples {arguments.samples} is above the number of beams ({config.sample.beams})",
            f"Give --beams {arguments.samples}, or, to sample, --beams 1 with a --temperature above 0.",
        )
    prompts = _prompts(arguments, config)
    if isinstance(model, Translator) and prompts == [""]:
        raise GlassError(
            f"{arguments.run} needs a source text, but the prompt is missing or empty",
            "Give PROMPT, or --input FILE with one source text per line.",
        )
    _warn(model, prompts)
    refuse_unused_backend(arguments)
    if arguments.top is not None:
        emit(_candidates_report(model, prompts[0], arguments.top), arguments.json)
        return 0
    model.engine = choose_engine(arguments.backend, model.model, config.sample, len(prompts) * arguments.samples)
    if arguments.json or arguments.input or arguments.samples > 1:
        emit(_generation_report(model, prompts, config, arguments), arguments.json)
        return 0
    pieces = model.stream(prompts[0], config.sample)
    printed_prompt = prompts[0] if config.train.task == "lm" else ""
    first = next(pieces, "")  # raise an error before anything is printed
    print(printed_prompt + first, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
    if names_backend(arguments.backend, model):
        print(f"--- {model.backend}, {model.precision}", file=sys.stderr)
    return 0


def names_backend(requested: str, model: TextModel | Translator) -> bool:
    """Return whether the output names the backend: if a backend was requested, or `auto` did not choose PyTorch."""
    return requested != "auto" or model.backend != "torch"


def sampling_changes(flags: dict[str, str]) -> dict[str, str]:
    """Return the setting `sample.beams` = 1 if a sampling flag was given, because sampling turns off beam search.

    Raises:
        GlassError: a sampling flag was given with more than one beam.
    """
    names = sorted(SAMPLING & flags.keys())
    if names and flags.get("sample.beams", "1") != "1":
        flag = names[0].removeprefix("sample.").replace("_", "-")
        raise GlassError(
            f"--{flag} was given with --beams {flags['sample.beams']}: beam search does not sample",
            f"Remove --{flag}, or give --beams 1.",
        )
    return {"sample.beams": "1"} if names else {}


def refuse_unused_penalty(flags: dict[str, str], settings: SampleConfig) -> None:
    """Raise a `GlassError` if a length penalty is given without beam search, because only beam search uses it."""
    if "sample.length_penalty" in flags and settings.beams == 1:
        raise GlassError(
            f"--length-penalty {flags['sample.length_penalty']} was given without beam search",
            "Remove --length-penalty, or use beam search: --beams 2 or more, without sampling options such as "
            "--temperature.",
        )


def refuse_unused_backend(arguments: argparse.Namespace) -> None:
    """Raise a `GlassError` if the backend would not be used, or does not support the requested precision."""
    if arguments.backend != "auto" and arguments.top is not None:
        raise GlassError(
            f"--backend {arguments.backend} was given with --top, which uses PyTorch", "Remove one of the two."
        )
    if arguments.backend.startswith("onnxruntime") and arguments.precision == "bf16":
        raise GlassError(
            f"--backend {arguments.backend} was given with --precision bf16, which it does not support",
            "Remove --precision, or give --backend torch.",
        )


def stop_changes(flags: dict[str, str]) -> dict[str, str]:
    """Return the setting `sample.stop`: a JSON list with the plain text given by `--stop`.

    The result is empty without `--stop`, or if its value is already a list, which begins with `[`.
    """
    stop = flags.get("sample.stop")
    return {} if stop is None or stop.startswith("[") else {"sample.stop": json.dumps([stop], ensure_ascii=False)}


def _prompts(arguments: argparse.Namespace, config: Config) -> list[str]:
    reading = table_flags(arguments, "--input", arguments.input is not None)
    if arguments.input is None:
        if arguments.prompt == "-":
            return [standard_input(keep_line_end=config.train.task == "lm")]
        return [config.sample.prompt if arguments.prompt is None else arguments.prompt]
    if arguments.prompt is not None or arguments.top is not None:
        other = "PROMPT" if arguments.prompt is not None else "--top"
        raise GlassError(f"--input was given with {other}", f"Remove --input or {other}.")
    return texts_of(arguments.input, config, reading)


def _warn(model: TextModel | Translator, prompts: list[str]) -> None:
    """Print warnings about unknown characters and about sources longer than the context."""
    from glassformer.tasks import Translator

    warn_unknown(model, prompts)
    if isinstance(model, Translator):
        warn_truncated([model.unread_tokens(prompt) for prompt in prompts], "sources", model.config.model.context)


def _candidates_report(model: TextModel | Translator, prompt: str, count: int) -> SimpleReport:
    candidates = model.candidates(prompt, count)
    rows = [{"token": id, "text": text, "probability": p} for id, text, p in candidates]
    vocabulary = f"{model.tokenizer.vocab_size:,} tokens"
    lines = [f"the likeliest of all {vocabulary}, by the model's probabilities (no temperature, no filter):"]
    lines += [f"{rank:>4}  {probability:>8.4%}  {text!r}" for rank, (_, text, probability) in enumerate(candidates, 1)]
    return SimpleReport({"prompt": prompt, "candidates": rows}, lines)


def _generation_report(
    model: TextModel | Translator, prompts: list[str], config: Config, arguments: argparse.Namespace
) -> SimpleReport:
    from glassformer.generation.decoding import ENDINGS

    started = time.perf_counter()
    results = _generate(model, prompts, config.sample, arguments.samples)
    seconds = time.perf_counter() - started
    tokens = sum(result["tokens"] for result in results)
    facts = {
        "text": results[0]["text"],
        "tokens": tokens,
        "tokens_per_second": tokens / seconds,
        "backend": model.backend,
        "precision": model.precision,
        "samples": results,
    }
    continues = config.train.task == "lm"
    lines = []
    for result in results:
        text = (result["prompt"] if continues else "") + result["text"]
        lines.append(" ".join(text.splitlines()) if arguments.input else text)
        if not arguments.input:
            how = f"seed {result['seed']}" if result["score"] is None else f"score {result['score']:.4f}"
            lines.append(f"--- {how}, {counted(result['tokens'], 'tokens')}, ended by {ENDINGS[result['ended']]}")
    if names_backend(arguments.backend, model):
        lines.append(f"--- {model.backend}, {model.precision}: {tokens / seconds:,.0f} tokens/s")
    return SimpleReport(facts, lines)


def _generate(
    model: TextModel | Translator, prompts: list[str], settings: SampleConfig, samples: int
) -> list[dict[str, Any]]:
    """Return `samples` texts for each prompt: the best results of beam search, or samples with consecutive seeds."""
    if settings.beams > 1:
        best = model.n_best(prompts, settings, samples)
        return [{**asdict(sample), "seed": None} for samples_of_prompt in best for sample in samples_of_prompt]
    last = settings.replace(seed=settings.seed + samples - 1)  # raises an error if the last seed is too large
    inputs = [(prompt, seed) for prompt in prompts for seed in range(settings.seed, last.seed + 1)]
    generated = model.generate([prompt for prompt, _ in inputs], settings, [seed for _, seed in inputs])
    return [{**asdict(sample), "seed": seed} for sample, (_, seed) in zip(generated, inputs, strict=True)]
