"""Continue a text with a trained model.

  glass generate runs/book "Once upon a time"
  glass generate runs/book "Once upon a time" --tokens 400 --temperature 0.7 --top-p 0.95
  glass generate runs/book "Once upon a" --top 10
  glass generate runs/book --input prompts.txt

The context is the model's memory. When a text grows past it, the model goes on from the text's newest part: at each
such point it forgets the oldest half of the context, and counts places anew.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.cli.settings import add_section_flags
from glassformer.config import Config, SampleConfig
from glassformer.errors import GlassError, nearest_file

if TYPE_CHECKING:
    from glassformer.text_model import TextModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `glass generate`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="the text to continue; - reads standard input")
    parser.add_argument(
        "--input", type=Path, metavar="FILE", help="a prompt per line; each text is written as one line"
    )
    parser.add_argument(
        "--samples", type=int, default=1, metavar="N", help="of each prompt, with seeds seed, seed + 1, …"
    )
    parser.add_argument("--top", type=int, nargs="?", const=10, metavar="N", help="rank the next token's candidates")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="which weights (default: best)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    parser.add_argument("--precision", choices=("auto", "fp32", "bf16"), default="fp32", help="(default: fp32)")
    group = parser.add_argument_group("drawing; what is not given is as the run's own [sample] settings say")
    add_section_flags(group, "sample", SampleConfig, leave_out=("prompt",))


def run(arguments: argparse.Namespace) -> int:
    """Generate, rank, or work through a file of prompts."""
    from glassformer.text_model import TextModel

    if arguments.samples < 1 or (arguments.top is not None and arguments.top < 1):
        wrong = f"--samples {arguments.samples}" if arguments.samples < 1 else f"--top {arguments.top}"
        raise GlassError(f"{wrong} asks for nothing", "Give a number of at least 1.")
    given = {key: value for key, value in vars(arguments).items() if key.startswith("sample.") and value is not None}
    model = TextModel.load(arguments.run, arguments.checkpoint, arguments.device, arguments.precision)
    config = model.config.with_changes({**given, **_stops(given)})
    prompts = _prompts(arguments, config)
    for prompt in prompts:
        _warn_of_unknown(model, prompt)
    if arguments.top is not None:
        return _rank(model, prompts[0], arguments.top, arguments.json)
    if arguments.json or arguments.input or arguments.samples > 1:
        return _write_whole(model, prompts, config, arguments)
    pieces = model.stream(prompts[0], config.sample)
    first = next(pieces, "")  # an error comes before anything is printed
    print(prompts[0] + first, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
    return 0


def _stops(given: dict[str, str]) -> dict[str, str]:
    """A plain word for --stop is one stop text."""
    stop = given.get("sample.stop")
    return {} if stop is None or stop.startswith("[") else {"sample.stop": json.dumps([stop], ensure_ascii=False)}


def _prompts(arguments: argparse.Namespace, config: Config) -> list[str]:
    if arguments.input is None:
        if arguments.prompt == "-":
            return [_utf8(sys.stdin.buffer.read(), "standard input")]
        return [config.sample.prompt if arguments.prompt is None else arguments.prompt]
    if arguments.prompt is not None or arguments.top is not None:
        raise GlassError("--input was given with a PROMPT or --top", "Give one or the other.")
    path: Path = arguments.input
    try:
        text = _utf8(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise GlassError(f"{path} does not exist", nearest_file(path, "Give a file with a prompt per line.")) from None
    except OSError as error:
        raise GlassError(f"{path} cannot be read: {error.strerror}", "Give a file with a prompt per line.") from None
    if not text:
        raise GlassError(f"{path} is empty", "Write a prompt per line into it.")
    return [line.rstrip("\n") for line in io.StringIO(text, newline=None)]  # str.splitlines knows lines editors do not


def _utf8(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GlassError(f"{name} is not UTF-8 at byte {error.start}", "Save it as UTF-8.") from None


def _warn_of_unknown(model: TextModel, prompt: str) -> None:
    unknown = model.unknown_characters(prompt)
    if unknown:
        shown = " ".join(sorted(set(unknown))[:20])
        print(f"the model never saw these characters and reads each as unknown: {shown}", file=sys.stderr)


def _rank(model: TextModel, prompt: str, count: int, as_json: bool) -> int:
    candidates = model.candidates(prompt, count)
    if as_json:
        rows = [{"token": id, "text": text, "probability": p} for id, text, p in candidates]
        print(json.dumps({"prompt": prompt, "candidates": rows}, ensure_ascii=False))
        return 0
    print(
        f"the likeliest of all {model.tokenizer.vocab_size:,} tokens, as the model has it (no temperature, no filter):"
    )
    for place, (_, text, probability) in enumerate(candidates, start=1):
        print(f"{place:>4}  {probability:>8.4%}  {text}")
    return 0


def _write_whole(model: TextModel, prompts: list[str], config: Config, arguments: argparse.Namespace) -> int:
    started, samples = time.perf_counter(), arguments.samples
    last = config.sample.replace(seed=config.sample.seed + samples - 1)  # refused if it is too large
    seeds = range(config.sample.seed, last.seed + 1)
    every = [(prompt, seed) for prompt in prompts for seed in seeds]
    written = model.generate([prompt for prompt, _ in every], config.sample, [seed for _, seed in every])
    results: list[dict[str, Any]] = [
        {**asdict(sample), "seed": seed} for sample, (_, seed) in zip(written, every, strict=True)
    ]
    seconds = time.perf_counter() - started
    if arguments.json:
        tokens = sum(result["tokens"] for result in results)
        facts = {"tokens": tokens, "tokens_per_second": tokens / seconds, "samples": results}
        print(json.dumps({"text": results[0]["text"], **facts}, ensure_ascii=False))
        return 0
    for result in results:
        text = result["prompt"] + result["text"]
        print(" ".join(text.splitlines()) if arguments.input else text)
        if not arguments.input:
            print(f"--- seed {result['seed']}, {result['tokens']} tokens, ended by {result['ended']}")
    return 0
