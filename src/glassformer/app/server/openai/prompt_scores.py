"""Log-probabilities of the tokens of a prompt, for `echo` together with `logprobs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from glassformer.app.server.engine.jobs import ScoredToken
from glassformer.generation.decoding import check_finite
from glassformer.model.evaluation_mode import inference
from glassformer.model.transformer import Decoder
from glassformer.text.tokenizers import frame_of

if TYPE_CHECKING:
    from glassformer.app.server.engine.loaded import LoadedCheckpoint

ROWS = 128
"""Maximum number of positions whose distributions over the vocabulary are computed at once."""


def prompt_scores(loaded: LoadedCheckpoint, ids: Sequence[int], likeliest: int, is_text: bool) -> list[ScoredToken]:
    """Return the tokens of a prompt, each with its log-probability given the tokens before it.

    If a start token was added before a text, it is not returned; otherwise, the first token has no log-probability.

    Args:
        loaded: a loaded decoder.
        ids: token ids of the prompt.
        likeliest: number of likeliest tokens to return with each token.
        is_text: whether the prompt was text, before which a start token may have been added.

    Raises:
        GlassError: the logits are not finite.
    """
    model = loaded.text_model.model
    assert isinstance(model, Decoder)
    start_tokens = len(frame_of(loaded.tokenizer, loaded.text_model.config).before) if is_text else 0
    decoder = loaded.tokenizer.stream_decoder()
    offset = 0
    scored_tokens: list[ScoredToken] = []
    with inference(model):
        device = model.embedding.tokens.weight.device
        hidden = model.hidden_states(torch.tensor([list(ids)], device=device))  # (1, T, D)
        for position, token in enumerate(ids):
            if position == 0:
                scored = ScoredToken(token, None, (), 0)
            else:
                if (position - 1) % ROWS == 0:
                    logits = model.head(hidden[:, position - 1 : position - 1 + ROWS], model.embedding)[0]  # (ROWS, V)
                    check_finite(logits)
                    log_probabilities = logits.double().log_softmax(dim=-1)  # (ROWS, V)
                    best = log_probabilities.topk(min(likeliest, log_probabilities.shape[1]))
                row = (position - 1) % ROWS
                pairs = zip(best.indices[row].tolist(), best.values[row].tolist(), strict=True)
                scored = ScoredToken(token, float(log_probabilities[row, token]), tuple(pairs), offset)
            if position >= start_tokens:
                scored_tokens.append(scored)
                offset += len(decoder.feed(token))
    return scored_tokens
