"""Measure the peak memory of one forward pass, or forward and backward pass, for `memory.py`: 2 layers, width 64."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

LAYERS = 2
HEADS = 2
WIDTH = 64
VOCABULARY = 65


def ours(context: int, facts: dict[str, Any]) -> Any:
    """Return our model with default settings, and changes from `facts`."""
    from glassformer.base.config import ModelConfig
    from glassformer.model.build import build_model

    shape = {"context": context, "layers": LAYERS, "heads": HEADS, "width": WIDTH, "vocab_size": VOCABULARY}
    return build_model(ModelConfig(**shape, **facts.get("model", {})))


def hugging_face(context: int, facts: dict[str, Any]) -> Any:
    """Return transformers' GPT-2 with the attention implementation in `facts`."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=context,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            bos_token_id=None,
            eos_token_id=None,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            attn_implementation=facts["attention"],
        )
    )
    return lambda ids: model(ids, use_cache=False).logits


def once(model: Any, context: int, training: bool) -> None:
    """Run a forward pass on a text of the length `context`, and a backward pass if training."""
    ids = torch.randint(0, VOCABULARY, (1, context), generator=torch.Generator().manual_seed(0))
    with torch.set_grad_enabled(training):
        logits = model(ids)  # (1, T, V)
        if training:
            cross_entropy(logits[0], ids[0]).backward()


def resident(name: str) -> int:
    """Return the resident memory in bytes from /proc: `VmRSS` is the current value, `VmHWM` the peak."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(f"{name}:"))


def main() -> None:
    """Print a JSON object with the increase of memory in megabytes after a warm-up on a short text."""
    facts = json.loads(sys.argv[1])
    torch.set_num_threads(facts["threads"])
    context = facts["context"]
    training = facts["mode"] == "training"
    model = {"ours": ours, "hugging_face": hugging_face}[facts["library"]](context, facts)
    once(model, 32, training)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak, see proc(5)
    before = resident("VmRSS")
    once(model, context, training)
    print(json.dumps({"megabytes": (resident("VmHWM") - before) / 1e6}))


if __name__ == "__main__":
    main()
