"""Generation with a decoder, compared with Hugging Face `generate`: same weights and prompts, in one run.

The weights are copied into a `GPT2LMHeadModel`: greedy decoding in float32 must give the same tokens, and the equal
rows are counted. The libraries are measured in alternate turns; a ratio compares two adjacent turns. The model has
random weights and, by default, the shape of nanoGPT's character model (6 layers, 6 heads, width 384, 65 characters:
10.65 M parameters). Its context is 256, or more if prompt and generated tokens need more. No text ends early.

Memory limits the speed of a batch of one: every weight is read once per token, so tokens per second are at most the
memory bandwidth divided by the bytes of the weights. The bandwidth is measured in the same run with the same threads,
by the sum of a tensor much larger than any cache. A processor whose cache contains a large part of the weights can
exceed this limit. Needs the package `transformers`.

    python benchmarks/generation.py --threads 2
    python benchmarks/generation.py --threads 2 --precision bf16 --their-precision fp32
    python benchmarks/generation.py --threads 1 --batches 1 8 --prompts 16 --temperature 0.8 --top-k 40
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from isa import add_isa, restrict
from torch import Tensor

from glassformer.backends.choosing import open_engine
from glassformer.base.backends import BACKENDS, BackendName
from glassformer.base.config import ModelConfig, SampleConfig
from glassformer.generation.decoding import generate
from glassformer.model.build import build_model
from glassformer.model.transformer import Decoder

Write = Callable[[list[list[int]]], list[list[int]]]  # prompts -> generated tokens of each
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def our_model(options: argparse.Namespace, context: int) -> Decoder:
    """Return a model with GPT-2's architecture, without biases and with random weights.

    The weights are large enough that different prompts give different texts.
    """
    shape: dict[str, Any] = {
        "vocab_size": options.vocabulary,
        "layers": options.layers,
        "width": options.width,
        "heads": options.heads,
        "context": context,
    }
    model = build_model(ModelConfig(**shape))
    assert isinstance(model, Decoder)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)
    return model.eval()


def their_model(ours: Decoder) -> Any:
    """Return Hugging Face's GPT-2 with the same weights and zero biases."""
    from transformers import GPT2Config, GPT2LMHeadModel

    device = ours.embedding.tokens.weight.device
    config = ours.config
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=ours.vocab_size,
            n_positions=config.context,
            n_embd=config.width,
            n_layer=config.layers,
            n_head=config.heads,
            n_inner=config.F,
            activation_function="gelu",
            layer_norm_epsilon=config.eps,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=0,
        )
    )
    weights: dict[str, Tensor] = {name: torch.zeros_like(tensor) for name, tensor in theirs.state_dict().items()}
    own = dict(ours.state_dict())
    weights["transformer.wte.weight"] = weights["lm_head.weight"] = own["embedding.tokens.weight"]
    weights["transformer.wpe.weight"] = own["embedding.positions.table.weight"]
    weights["transformer.ln_f.weight"] = own["stack.norm.weight"]
    for layer in range(config.layers):
        there = f"transformer.h.{layer}"
        here = f"stack.blocks.{layer}"
        parts = [own[f"{here}.attention.{name}.weight"] for name in ("query", "key", "value")]
        weights[f"{there}.attn.c_attn.weight"] = torch.cat(parts).T  # (D, 3 D)
        weights[f"{there}.attn.c_proj.weight"] = own[f"{here}.attention.output.weight"].T
        weights[f"{there}.mlp.c_fc.weight"] = own[f"{here}.feedforward.up.weight"].T
        weights[f"{there}.mlp.c_proj.weight"] = own[f"{here}.feedforward.down.weight"].T
        weights[f"{there}.ln_1.weight"] = own[f"{here}.attention_norm.weight"]
        weights[f"{there}.ln_2.weight"] = own[f"{here}.feedforward_norm.weight"]
    theirs.load_state_dict(weights)
    return theirs.to(device).eval()


def write_with_ours(model: Decoder, options: argparse.Namespace, backend: BackendName = "torch") -> Write:
    """Return our generation function (greedy at temperature 0); its backend is opened before timing starts."""
    engine = open_engine(backend, model, greedy=options.temperature == 0)
    settings = SampleConfig(
        tokens=options.tokens, temperature=options.temperature, top_k=options.top_k, top_p=options.top_p
    )

    def write(prompts: list[list[int]]) -> list[list[int]]:
        texts: list[list[int]] = [[] for _ in prompts]
        for step in generate(model, prompts, settings, engine=engine):
            for row, token in zip(step.rows, step.tokens, strict=True):
                texts[row].append(token)
        return texts

    return write


def write_with_theirs(model: Any, options: argparse.Namespace) -> Write:
    """Return a function that calls Hugging Face's `generate` in inference mode."""
    sampling: dict[str, Any] = {"do_sample": options.temperature > 0}
    if options.temperature > 0:
        sampling |= {"temperature": options.temperature, "top_k": options.top_k or 0, "top_p": options.top_p or 1.0}

    def write(prompts: list[list[int]]) -> list[list[int]]:
        ids = torch.tensor(prompts, device=model.device)  # (B, T)
        with torch.inference_mode():
            found = model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=options.tokens, **sampling
            )
        return found[:, ids.shape[1] :].tolist()

    return write


def take_turns(
    writers: dict[str, Write], prompts: list[list[int]], repeats: int, clock: Callable[[], float]
) -> tuple[dict[str, list[float]], dict[str, list[list[int]]]]:
    """Return the seconds of every repeat and the tokens of the last turn; the first turn is a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in writers}
    texts: dict[str, list[list[int]]] = {}
    for turn in range(repeats + 1):
        for name, write in writers.items():
            start = clock()
            texts[name] = write(prompts)
            if turn:
                seconds[name].append(clock() - start)
    return seconds, texts


def bandwidth(clock: Callable[[], float], repeats: int = 7) -> float:
    """Return the memory bandwidth in bytes per second with the current threads: the best of several sums of 1 GiB."""
    many = torch.ones(1 << 28)
    times = []
    for _ in range(repeats):
        start = clock()
        many.sum()
        times.append(clock() - start)
    return many.numel() * many.element_size() / min(times)


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table."""
    for length in options.prompts:
        context = max(options.context, length + options.tokens)
        model = our_model(options, context)
        theirs = their_model(model).to(PRECISIONS[options.their_precision or options.precision])
        model = model.to(PRECISIONS[options.precision])
        read = sum(each.numel() * each.element_size() for each in model.stack.parameters())
        read += model.embedding.tokens.weight.numel() * model.embedding.tokens.weight.element_size()
        writers = {
            "ours": write_with_ours(model, options, options.backend),
            "hugging_face": write_with_theirs(theirs, options),
        }
        for batch in options.batches:
            random = torch.Generator().manual_seed(options.seed)
            prompts = torch.randint(0, options.vocabulary, (batch, length), generator=random).tolist()
            seconds, texts = take_turns(writers, prompts, options.repeats, CLOCKS[options.clock])
            ratios = [theirs / own for own, theirs in zip(*seconds.values(), strict=True)]
            speed = {name: batch * options.tokens / statistics.median(times) for name, times in seconds.items()}
            yield {
                "batch": batch,
                "prompt": length,
                "context": context,
                "equal_rows": sum(one == other for one, other in zip(*texts.values(), strict=True)),
                "ours_tokens_per_second": round(speed["ours"], 1),
                "hugging_face_tokens_per_second": round(speed["hugging_face"], 1),
                "ratio": round(statistics.median(ratios), 2),
                "ratio_lowest": round(min(ratios), 2),
                "ratio_highest": round(max(ratios), 2),
                "weight_bytes_per_step": read,
                "weight_bytes_per_second": round(read * speed["ours"] / batch),
                "seconds": {name: [round(each, 4) for each in times] for name, times in seconds.items()},
            }


def main() -> None:
    """Measure, and print a table."""
    options = arguments()
    torch.set_num_threads(options.threads)
    given = bandwidth(CLOCKS[options.clock])
    print(f"memory bandwidth: {given / 1e9:.1f} GB/s with {options.threads} threads")
    print(
        "batch  prompt   equal rows   tokens/s: ours, Hugging Face   ratio (spread)         weights read   of memory's"
    )
    rows = []
    for row in measure(options):
        rows.append({**row, "share_of_bandwidth": round(row["weight_bytes_per_second"] / given, 3)})
        print(
            f"{row['batch']:5d} {row['prompt']:7d} {row['equal_rows']:6d} of {row['batch']:3d}"
            f" {row['ours_tokens_per_second']:15.0f} {row['hugging_face_tokens_per_second']:14.0f}"
            f" {row['ratio']:8.2f} ({row['ratio_lowest']:.2f} to {row['ratio_highest']:.2f})"
            f" {row['weight_bytes_per_second'] / 1e9:13.1f} GB/s {rows[-1]['share_of_bandwidth']:9.0%}",
            flush=True,
        )
    if options.json is not None:
        import transformers

        machine = {"machine": platform.machine(), "torch": torch.__version__, "transformers": transformers.__version__}
        settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
        facts = {**machine, "settings": settings, "memory_bytes_per_second": round(given), "results": rows}
        options.json.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value, words in (
        ("threads", 2, "threads of PyTorch"),
        ("repeats", 7, "measured turns of each library"),
        ("tokens", 200, "tokens to generate after each prompt"),
        ("layers", 6, "L"),
        ("width", 384, "D"),
        ("heads", 6, "H"),
        ("vocabulary", 65, "V"),
        ("context", 256, "C"),
        ("seed", 0, "seed of the prompts"),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{words}; default {value}")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32], help="prompts at once; default 1 8 32")
    parser.add_argument(
        "--prompts", type=int, nargs="+", default=[16, 512], help="lengths of the prompts; default 16 512"
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="fp32", help="precision of the weights; default fp32"
    )
    parser.add_argument(
        "--their-precision", choices=PRECISIONS, help="precision of Hugging Face's weights; default as --precision"
    )
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="processor: measure CPU time, for a busy machine and one thread; default wall",
    )
    parser.add_argument("--temperature", type=float, default=0.0, help="default 0: greedy")
    parser.add_argument("--top-k", type=int, help="default: all tokens")
    parser.add_argument("--top-p", type=float, help="default: all tokens")
    parser.add_argument("--json", type=Path, help="also write all results to this file")
    parser.add_argument("--backend", choices=BACKENDS[1:], default="torch", help="backend of ours; default torch")
    add_isa(parser)
    options = parser.parse_args()
    restrict(options.isa)
    return options


if __name__ == "__main__":
    main()
