"""Beam search on a translation model, compared with Hugging Face `generate`: same weights and sources, in one run.

The weights are copied into a `MarianMTModel`, so both libraries must find the same texts; the equal texts are
counted. The libraries are measured in alternate turns. The kinds of work:

* `fixed`: every text has `--tokens` tokens, because the end token is made impossible in both;
* `varied`: texts have different lengths (by default 13 tokens on average and 20 at most), because weights are set so
  that the end token becomes certain after a number of tokens that depends on the source. Here it is an advantage to
  remove finished sources from the batch.
* `text`, `by length` (with `--run`): a trained run translates the first `--sentences` lines of a file, as
  `glass generate --input` does, in batches of up to 128 sources of similar length. Hugging Face's `generate` gets
  `--batch` lines at once, for `text` in the file's order, for `by length` sorted by length.

The first two kinds use a model with random weights (by default 3 + 3 layers of width 256) and the same batches for
both. The length penalty is 0, where both definitions of the score are equal. Needs the package `transformers`.

    python benchmarks/beam_search.py --threads 1
    python benchmarks/beam_search.py --threads 1 --run runs/original --input test.en --sentences 320

`--run` needs a run with Marian's architecture, such as one of the recipe translate-original:

    glass train train.en train.de --task translate --recipe translate-original --out runs/original
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from isa import add_isa, restrict
from torch import Tensor

from glassformer.backends.choosing import open_engine
from glassformer.base.backends import BACKENDS
from glassformer.base.config import ModelConfig, SampleConfig
from glassformer.generation.beam import beam_search
from glassformer.generation.length_batches import batches_by_length
from glassformer.model.build import build_model
from glassformer.model.transformer import EncoderDecoder
from glassformer.runs.opening import OpenedRun
from glassformer.tasks.text_generator import ROWS
from glassformer.tasks.translating import Translator

END = 1  # end token of the random models
Search = Callable[[list[list[int]]], list[list[int]]]  # sources -> the best text of each, without the end token


def our_model(options: argparse.Namespace) -> EncoderDecoder:
    """Return a model with Marian's architecture and random weights.

    The weights are large enough that different sources give different texts.
    """
    shape: dict[str, Any] = {
        "family": "encoder-decoder",
        "vocab_size": options.vocabulary,
        "layers": options.layers,
        "width": options.width,
        "heads": options.heads,
        "hidden": options.hidden,
        "context": 128,
        "norm_order": "post",
        "activation": "relu",
        "attention_bias": True,
        "feedforward_bias": True,
        "norm_bias": True,
        "head_bias": True,
        "embedding_scale": True,
    }
    model = build_model(ModelConfig(**shape))
    assert isinstance(model, EncoderDecoder)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.02)
    return model.eval()


@torch.no_grad()
def never_end(model: EncoderDecoder) -> None:
    """Make the end token impossible."""
    assert model.head.bias is not None
    model.head.bias[END] = -1e4


@torch.no_grad()
def end_after_a_while(model: EncoderDecoder, mean: float, spread: float) -> None:
    """Make the end token impossible at first, and certain after a number of tokens that depends on the source.

    Channel 0 of a target is a clock: it grows with the position, and only the logit of the end token depends on it.
    Channel 1 of a source has a number for each token; the first cross-attention layer shifts the clock by a weighted
    mean of these numbers.
    """
    tokens = model.embedding.tokens.weight  # (V, D)
    positions = model.embedding.positions.table.weight  # (C, D)
    tokens[:, 0] = 0.0
    tokens[:, 1] = torch.randn(len(tokens), generator=torch.Generator().manual_seed(0)) / model.embedding.scale
    tokens[END, 0] = 100.0
    tokens[END, 1] = 0.0
    positions[:, 0] = 0.1 * (torch.arange(len(positions)) - mean)
    positions[:, 1] = 0.0
    positions[0, 0] -= 100.0 * model.embedding.scale  # a target begins with the end token
    for block in [*model.encoder.blocks, *model.decoder.blocks]:
        for name, part in block.named_modules():
            if name.endswith((".output", ".down")):
                part.weight[:2] = 0.0
                part.bias[:2] = 0.0
            elif name.endswith("norm"):
                part.weight[:2] = 1.0
                part.bias[:2] = 0.0
    cross = model.decoder.blocks[0].cross
    cross.value.weight[0] = 0.0
    cross.value.bias[0] = 0.0
    cross.value.weight[0, 1] = 1.0
    cross.output.weight[0, 0] = spread


def their_model(ours: EncoderDecoder, end: int) -> Any:
    """Return Hugging Face's Marian with the same weights."""
    from transformers import MarianConfig, MarianMTModel

    config = ours.config
    theirs = MarianMTModel(
        MarianConfig(
            vocab_size=ours.vocab_size,
            d_model=config.width,
            encoder_layers=config.layers,
            decoder_layers=config.layers,
            encoder_attention_heads=config.heads,
            decoder_attention_heads=config.heads,
            encoder_ffn_dim=config.F,
            decoder_ffn_dim=config.F,
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=config.context,
            pad_token_id=0 if end else 1,
            eos_token_id=end,
            decoder_start_token_id=end,
            forced_eos_token_id=None,
            tie_word_embeddings=True,
        )
    )
    weights: dict[str, Tensor] = {}
    positions = ours.embedding.positions(torch.arange(config.context)[None])[0]  # (C, D)
    for stack, part in (("encoder", ours.encoder), ("decoder", ours.decoder)):
        weights[f"model.{stack}.embed_positions.weight"] = positions
        for name, tensor in part.state_dict().items():
            weights[f"model.{stack}.{_their_name(name, stack)}"] = tensor
    for name in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        weights[f"{name}.weight"] = ours.embedding.tokens.weight
    weights["final_logits_bias"] = torch.zeros(1, ours.vocab_size) if ours.head.bias is None else ours.head.bias[None]
    theirs.load_state_dict(weights)
    return theirs.to(ours.embedding.tokens.weight.dtype).eval()


def _their_name(name: str, stack: str) -> str:
    """Return Hugging Face's name of a weight in a stack."""
    swaps = {
        "blocks.": "layers.",
        "feedforward.up": "fc1",
        "feedforward.down": "fc2",
        "feedforward_norm": "final_layer_norm",
        "attention_norm": "self_attn_layer_norm",
        "cross_norm": "encoder_attn_layer_norm",
        "attention.": "self_attn.",
        "cross.": "encoder_attn.",
        "query.": "q_proj.",
        "key.": "k_proj.",
        "value.": "v_proj.",
        "output.": "out_proj.",
    }
    for ours, theirs in swaps.items():
        name = name.replace(ours, theirs)
    return name


def search_with_ours(model: EncoderDecoder, end: int, options: argparse.Namespace) -> Search:
    """Return our beam search, which returns only the best text of each source, as Hugging Face's does."""
    settings = SampleConfig(tokens=options.tokens, beams=options.beams, length_penalty=0)
    engine = open_engine(options.backend, model)

    def search(sources: list[list[int]]) -> list[list[int]]:
        found = beam_search(model, sources, settings, end, wanted=1, engine=engine)
        return [_without_end(each[0].tokens, end) for each in found]

    return search


def search_with_theirs(model: Any, end: int, options: argparse.Namespace) -> Search:
    """Return Hugging Face's beam search, with sources padded on the right and an attention mask."""

    def search(sources: list[list[int]]) -> list[list[int]]:
        width = max(len(source) for source in sources)
        ids = torch.tensor([source + [0] * (width - len(source)) for source in sources])
        real = torch.tensor([[1] * len(source) + [0] * (width - len(source)) for source in sources])
        with torch.inference_mode():
            found = model.generate(
                input_ids=ids,
                attention_mask=real,
                num_beams=options.beams,
                max_new_tokens=options.tokens,
                do_sample=False,
                length_penalty=0.0,
                early_stopping=False,
            )
        return [_without_end(row[1:], end) for row in found.tolist()]

    return search


def _without_end(tokens: Sequence[int], end: int) -> list[int]:
    tokens = list(tokens)
    return tokens[: tokens.index(end)] if end in tokens else tokens


def in_turn(search: Search, rows: int) -> Search:
    """Return a function that searches in batches of `rows` sources, in the given order."""
    return lambda sources: [
        text for start in range(0, len(sources), rows) for text in search(sources[start : start + rows])
    ]


def by_length(search: Search, rows: int) -> Search:
    """Return a function that searches in batches of `rows` sources of similar length, as `glass generate` does."""

    def searched(sources: list[list[int]]) -> list[list[int]]:
        texts: list[list[int]] = [[]] * len(sources)
        for group in batches_by_length([len(source) for source in sources], rows):
            for index, text in zip(group, search([sources[index] for index in group]), strict=True):
                texts[index] = text
        return texts

    return searched


def take_turns(
    searches: dict[str, Search], sources: list[list[int]], repeats: int
) -> tuple[dict[str, list[float]], dict[str, list[list[int]]]]:
    """Return the seconds of every repeat and the last texts of each search; the first turn is a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    texts: dict[str, list[list[int]]] = {}
    for turn in range(repeats + 1):
        for name, search in searches.items():
            start = time.perf_counter()
            texts[name] = search(sources)
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds, texts


def measure(work: str, searches: dict[str, Search], sources: list[list[int]], repeats: int) -> dict[str, Any]:
    """Return a row of the table for two searches: ours, then Hugging Face's."""
    seconds, texts = take_turns(searches, sources, repeats)
    ratios = [theirs / own for own, theirs in zip(*seconds.values(), strict=True)]
    (ours, own_seconds), (_, their_seconds) = seconds.items()
    lengths = [len(text) for text in texts[ours]]
    return {
        "work": work,
        "sentences": len(sources),
        "tokens_per_text": round(statistics.mean(lengths), 1),
        "longest_text": max(lengths),
        "equal_texts": sum(one == other for one, other in zip(*texts.values(), strict=True)),
        "ours_sentences_per_second": round(len(sources) / statistics.median(own_seconds), 2),
        "hugging_face_sentences_per_second": round(len(sources) / statistics.median(their_seconds), 2),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_lowest": round(min(ratios), 2),
        "ratio_highest": round(max(ratios), 2),
        "seconds": {name: [round(each, 4) for each in times] for name, times in seconds.items()},
    }


def random_work(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table for models with random weights."""
    draw = random.Random(options.seed)
    sources = [
        [*(draw.randrange(2, options.vocabulary) for _ in range(draw.randint(5, 30))), END]
        for _ in range(options.sentences)
    ]
    for kind in ("fixed", "varied"):
        model = our_model(options)
        if kind == "fixed":
            never_end(model)
        else:
            end_after_a_while(model, options.mean, options.spread)
        ours, theirs = both(model, END, options)
        searches = {"ours": in_turn(ours, options.batch), "hugging_face": in_turn(theirs, options.batch)}
        yield measure(kind, searches, sources, options.repeats)


def text_work(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table for a trained run."""
    run = OpenedRun.load(options.run, device="cpu").text_model
    assert isinstance(run, Translator)
    assert isinstance(run.model, EncoderDecoder)
    lines = options.input.read_text(encoding="utf-8").splitlines()[: options.sentences]
    sources = [run.prompt_ids(line) for line in lines]
    ours, theirs = both(run.model, run.tokenizer.end_id, options)
    for name, grouped in (("text", in_turn), ("by length", by_length)):
        searches = {"ours": by_length(ours, ROWS), "hugging_face": grouped(theirs, options.batch)}
        yield measure(name, searches, sources, options.repeats)


def both(model: EncoderDecoder, end: int, options: argparse.Namespace) -> tuple[Search, Search]:
    """Return our beam search and Hugging Face's, with the same weights."""
    model = model.to(torch.bfloat16 if options.precision == "bf16" else torch.float32)
    return search_with_ours(model, end, options), search_with_theirs(their_model(model, end), end, options)


def main() -> None:
    """Measure, and print a table."""
    options = arguments()
    torch.set_num_threads(options.threads)
    rows = list(random_work(options) if options.run is None else text_work(options))
    print("work       tokens  longest   equal texts   sentences/s: ours, Hugging Face   ratio (spread)")
    for row in rows:
        print(
            f"{row['work']:10} {row['tokens_per_text']:6.1f} {row['longest_text']:8d}"
            f" {row['equal_texts']:6d} of {row['sentences']:4d} {row['ours_sentences_per_second']:18.2f}"
            f" {row['hugging_face_sentences_per_second']:13.2f}"
            f" {row['ratio']:7.2f} ({row['ratio_lowest']:.2f} to {row['ratio_highest']:.2f})"
        )
    if options.json is not None:
        import transformers

        machine = {"machine": platform.machine(), "torch": torch.__version__, "transformers": transformers.__version__}
        settings = {
            name: value
            for name, value in vars(options).items()
            if value is None or isinstance(value, int | float | str)
        }
        text = json.dumps({**machine, "settings": settings, "results": rows}, indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value, words in (
        ("threads", 1, "threads of PyTorch"),
        ("repeats", 5, "measured turns of each search"),
        ("sentences", 64, "sources"),
        ("batch", 64, "sources at once"),
        ("beams", 4, "hypotheses of each source"),
        ("tokens", 32, "largest number of tokens per text"),
        ("layers", 3, "layers of the encoder and of the decoder"),
        ("width", 256, "D"),
        ("heads", 4, "H"),
        ("hidden", 1024, "F"),
        ("vocabulary", 8000, "V"),
        ("seed", 0, "seed of the sources"),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{words}; default {value}")
    parser.add_argument("--mean", type=float, default=16.0, help="varied: sets the mean length; default 16")
    parser.add_argument("--spread", type=float, default=35.0, help="varied: sets how lengths differ; default 35")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="precision of both; default fp32")
    parser.add_argument("--run", type=Path, help="a trained run instead of random weights")
    parser.add_argument("--input", type=Path, help="with --run: a file with a source on each line")
    parser.add_argument("--json", type=Path, help="also write all results to this file")
    parser.add_argument("--backend", choices=BACKENDS[1:], default="torch", help="backend of ours; default torch")
    add_isa(parser)
    options = parser.parse_args()
    restrict(options.isa)
    if (options.run is None) != (options.input is None):
        parser.error("--run and --input must be given together")
    return options


if __name__ == "__main__":
    main()
