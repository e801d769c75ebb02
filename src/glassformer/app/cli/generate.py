"""Continue a text with a trained model; translate or summarize it, if the model learnt that.

  glass generate runs/book "Once upon a time"
  glass generate runs/book "Once upon a time" --tokens 400 --temperature 0.7 --top-p 0.95
  glass generate runs/book "Once upon a" --top 10
  glass generate runs/book --input prompts.txt
  glass generate runs/en-de "A man is sleeping." --beams 4 --samples 3

With --beams, beam search looks for the likeliest text, and --samples shows the best few. Runs that translate or
summarize do so with 4 beams where nothing else is said; --beams 1 writes one token after the other.

--backend onnxruntime computes on the processor, up to twice as fast as PyTorch; onnxruntime-int8 is faster still, with
weights of 8 bits, and not exact. auto takes onnxruntime for much greedy text, where it is installed.

The context is the model's memory. When a text grows past it, the model goes on from the text's newest part: at each
such point it forgets the oldest half of the context, and counts places anew.
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
from glassformer.app.cli.texts import lines_of, say_unknown, say_unread, standard_input
from glassformer.app.cli.uses import wrong_command
from glassformer.base.config import Config, SampleConfig
from glassformer.base.errors import GlassError
from glassformer.base.report import SimpleReport, emit
from glassformer.base.wording import counted

if TYPE_CHECKING:
    from glassformer.tasks import TextModel, Translator


DRAWING = {f"sample.{name}" for name in ("temperature", "top_k", "top_p", "min_p", "seed", "repetition_penalty")}
"""Settings that have no meaning for beam search."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass generate`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "prompt", nargs="?", metavar="PROMPT", help="the text to continue or translate; - reads standard input"
    )
    parser.add_argument(
        "--input", type=Path, metavar="FILE", help="a prompt per line; each text is written as one line"
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=1,
        metavar="N",
        help="of each prompt, with seeds seed, seed + 1, …; of beam search the best",
    )
    parser.add_argument("--top", type=int, nargs="?", const=10, metavar="N", help="rank the next token's candidates")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="which weights (default: best)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16"), default="fp32", help="(default: fp32)")
    add_backend(parser)
    group = parser.add_argument_group("drawing; what is not given is as the run's own [sample] settings say")
    add_section_flags(group, "sample", SampleConfig, leave_out=("prompt",))


def run(arguments: argparse.Namespace) -> int:
    """Generate, rank, or work through a file of prompts."""
    from glassformer.backends.choosing import choose_engine
    from glassformer.runs.opening import OpenedRun
    from glassformer.tasks import TextModel, Translator

    if arguments.samples < 1 or (arguments.top is not None and arguments.top < 1):
        wrong = f"--samples {arguments.samples}" if arguments.samples < 1 else f"--top {arguments.top}"
        raise GlassError(f"{wrong} asks for nothing", "Give a number of at least 1.")
    given = {key: value for key, value in vars(arguments).items() if key.startswith("sample.") and value is not None}
    model = OpenedRun.load(arguments.run, arguments.checkpoint, arguments.device, arguments.precision).text_model
    if not isinstance(model, TextModel | Translator):
        raise wrong_command(arguments.run, model.config.train.task)
    config = model.config.with_changes({**given, **stop_changes(given), **drawing_changes(given)})
    refuse_idle_penalty(given, config.sample)
    if 1 < config.sample.beams < arguments.samples:
        raise GlassError(
            f"--samples {arguments.samples} asks for more texts than there are beams ({config.sample.beams})",
            f"Give --beams {arguments.samples}, or --beams 1 to draw.",
        )
    prompts = _prompts(arguments, config)
    if isinstance(model, Translator) and prompts == [""]:
        raise GlassError(
            f"{arguments.run} writes a text for a text, and none was given", "Give SOURCE, or --input FILE."
        )
    _warn(model, prompts)
    refuse_idle_backend(arguments)
    if arguments.top is not None:
        emit(_ranked(model, prompts[0], arguments.top), arguments.json)
        return 0
    model.engine = choose_engine(arguments.backend, model.model, config.sample, len(prompts) * arguments.samples)
    if arguments.json or arguments.input or arguments.samples > 1:
        emit(_written_whole(model, prompts, config, arguments), arguments.json)
        return 0
    pieces = model.stream(prompts[0], config.sample)
    shown = prompts[0] if config.train.task == "lm" else ""
    first = next(pieces, "")  # an error comes before anything is printed
    print(shown + first, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
    if names_backend(arguments.backend, model):
        print(f"--- {model.backend}, {model.precision}", file=sys.stderr)
    return 0


def names_backend(asked: str, model: TextModel | Translator) -> bool:
    """Return whether the output for people names what computed: a backend that was named, or that `auto` chose."""
    return asked != "auto" or model.backend != "torch"


def drawing_changes(given: dict[str, str]) -> dict[str, str]:
    """Return `--beams 1` if sampling flags are given, also for a run that uses beam search by default."""
    said = sorted(DRAWING & given.keys())
    if said and given.get("sample.beams", "1") != "1":
        flag = said[0].removeprefix("sample.").replace("_", "-")
        raise GlassError(f"--{flag} was given with --beams {given['sample.beams']}", "Beam search draws nothing.")
    return {"sample.beams": "1"} if said else {}


def refuse_idle_penalty(given: dict[str, str], settings: SampleConfig) -> None:
    """Raise a `GlassError` for a length penalty that nothing heeds: it ranks the texts of beam search."""
    if "sample.length_penalty" in given and settings.beams == 1:
        raise GlassError(
            f"--length-penalty {given['sample.length_penalty']} was given, and there is no beam search",
            "Give --beams 2 or more with it, or leave it out.",
        )


def refuse_idle_backend(arguments: argparse.Namespace) -> None:
    """Raise a `GlassError` for a backend that would compute nothing, or in another precision than is asked for."""
    if arguments.backend != "auto" and arguments.top is not None:
        raise GlassError(
            f"--backend {arguments.backend} was given with --top, which PyTorch computes", "Leave out one of them."
        )
    if arguments.backend.startswith("onnxruntime") and arguments.precision == "bf16":
        raise GlassError(
            f"--backend {arguments.backend} was given with --precision bf16, which it does not have",
            "Leave out --precision, or give --backend torch.",
        )


def stop_changes(given: dict[str, str]) -> dict[str, str]:
    """A plain word for --stop is one stop text."""
    stop = given.get("sample.stop")
    return {} if stop is None or stop.startswith("[") else {"sample.stop": json.dumps([stop], ensure_ascii=False)}


def _prompts(arguments: argparse.Namespace, config: Config) -> list[str]:
    if arguments.input is None:
        if arguments.prompt == "-":
            return [standard_input(whole=config.train.task == "lm")]
        return [config.sample.prompt if arguments.prompt is None else arguments.prompt]
    if arguments.prompt is not None or arguments.top is not None:
        raise GlassError("--input was given with a PROMPT or --top", "Give one or the other.")
    return lines_of(arguments.input)


def _warn(model: TextModel | Translator, prompts: list[str]) -> None:
    """Say what the model cannot read of the prompts."""
    from glassformer.tasks import Translator

    say_unknown(model.source_tokenizer if isinstance(model, Translator) else model.tokenizer, prompts)
    if isinstance(model, Translator):
        say_unread([model.unread_tokens(prompt) for prompt in prompts], "sources", model.config.model.context)


def _ranked(model: TextModel | Translator, prompt: str, count: int) -> SimpleReport:
    candidates = model.candidates(prompt, count)
    rows = [{"token": id, "text": text, "probability": p} for id, text, p in candidates]
    vocabulary = f"{model.tokenizer.vocab_size:,} tokens"
    lines = [f"the likeliest of all {vocabulary}, as the model has it (no temperature, no filter):"]
    lines += [f"{rank:>4}  {probability:>8.4%}  {text}" for rank, (_, text, probability) in enumerate(candidates, 1)]
    return SimpleReport({"prompt": prompt, "candidates": rows}, lines)


def _written_whole(
    model: TextModel | Translator, prompts: list[str], config: Config, arguments: argparse.Namespace
) -> SimpleReport:
    started = time.perf_counter()
    results = _written(model, prompts, config.sample, arguments.samples)
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
            lines.append(f"--- {how}, {counted(result['tokens'], 'tokens')}, ended by {result['ended']}")
    if names_backend(arguments.backend, model):
        lines.append(f"--- {model.backend}, {model.precision}: {tokens / seconds:,.0f} tokens/s")
    return SimpleReport(facts, lines)


def _written(
    model: TextModel | Translator, prompts: list[str], settings: SampleConfig, samples: int
) -> list[dict[str, Any]]:
    """Return `samples` texts for each prompt: beam search's best, or sampled with consecutive seeds."""
    if settings.beams > 1:
        best = model.best(prompts, settings, samples)
        return [{**asdict(sample), "seed": None} for found in best for sample in found]
    last = settings.replace(seed=settings.seed + samples - 1)  # refused if it is too large
    every = [(prompt, seed) for prompt in prompts for seed in range(settings.seed, last.seed + 1)]
    written = model.generate([prompt for prompt, _ in every], settings, [seed for _, seed in every])
    return [{**asdict(sample), "seed": seed} for sample, (_, seed) in zip(written, every, strict=True)]
