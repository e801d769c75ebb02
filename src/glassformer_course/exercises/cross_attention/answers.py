"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _attend(q, k, v, allowed):
    scores = np.where(allowed, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return weights @ v, weights


def _self_attention(decoder, encoder, real_source, w_query, w_key, w_value):
    return _attend(decoder @ w_query, decoder @ w_key, decoder @ w_value, True)


def _encoder_asks(decoder, encoder, real_source, w_query, w_key, w_value):
    q = np.where(real_source[:, :, None], encoder @ w_query, 0.0)
    return _attend(q, decoder @ w_key, decoder @ w_value, True)


def _no_padding(decoder, encoder, real_source, w_query, w_key, w_value):
    return _attend(decoder @ w_query, encoder @ w_key, encoder @ w_value, True)


def _after_softmax(decoder, encoder, real_source, w_query, w_key, w_value):
    _, weights = _attend(decoder @ w_query, encoder @ w_key, encoder @ w_value, True)
    weights = weights * real_source[:, None, :]
    return weights @ (encoder @ w_value), weights


def _causal(decoder, encoder, real_source, w_query, w_key, w_value):
    T = decoder.shape[1]
    S = encoder.shape[1]
    allowed = real_source[:, None, :] & np.tri(T, S, dtype=bool)
    return _attend(decoder @ w_query, encoder @ w_key, encoder @ w_value, allowed)


def _values_asked_for(decoder, encoder, real_source, w_query, w_key, w_value):
    return _attend(decoder @ w_query, encoder @ w_key, encoder @ w_key, real_source[:, None, :])


def _not_shifted(targets, bos):
    return targets.copy()


def _first_replaced(targets, bos):
    result = targets.copy()
    result[:, 0] = bos
    return result


def _shifted_left(targets, bos):
    return np.concatenate([targets[:, 1:], np.full((len(targets), 1), bos)], axis=1)


def _longer(targets, bos):
    return np.concatenate([np.full((len(targets), 1), bos), targets], axis=1)


def _rolled(targets, bos):
    return np.roll(targets, 1, axis=1)


def _rolled_and_set(targets, bos):
    result = np.roll(targets, 1, axis=-1)
    result[:, 0] = bos
    return result


def _lists(targets, bos):
    return np.array([[bos, *row[:-1]] for row in targets.tolist()])


def _with_loops(decoder, encoder, real_source, w_query, w_key, w_value):
    B = len(decoder)
    T = decoder.shape[1]
    S = encoder.shape[1]
    mixed = np.zeros((B, T, w_value.shape[1]))
    weights = np.zeros((B, T, S))
    for b in range(B):
        real = np.flatnonzero(real_source[b])
        k = encoder[b, real] @ w_key
        v = encoder[b, real] @ w_value
        for t in range(T):
            scores = k @ (decoder[b, t] @ w_query) / np.sqrt(w_key.shape[1])
            sizes = np.exp(scores - scores.max())
            weights[b, t, real] = sizes / sizes.sum()
            mixed[b, t] = weights[b, t, real] @ v
    return mixed, weights


def _with_einsum(decoder, encoder, real_source, w_query, w_key, w_value):
    scores = np.einsum("btd,de,fe,bsf->bts", decoder, w_query, w_key, encoder, optimize=True) / w_key.shape[1] ** 0.5
    scores[~np.broadcast_to(real_source[:, None], scores.shape)] = -np.inf
    weights = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
    return np.einsum("bts,bsd,de->bte", weights, encoder, w_value), weights


MISTAKES = [
    Mistake(
        "the decoder attends to itself",
        "Keys and values were computed from the decoder's vectors, so the source is never used. Keys and values come "
        "from the encoder, only the queries from the decoder.",
        {"cross_attention": _self_attention},
    ),
    Mistake(
        "queries from the encoder",
        "Queries came from the encoder and keys from the decoder, which gives one row for each source token. The "
        "result needs one row for each *target* position, so the queries come from the decoder.",
        {"cross_attention": _encoder_asks},
    ),
    Mistake(
        "source padding is attended to",
        "A translation would depend on the lengths of the other sources in the batch. Set the scores of source "
        "padding to -inf, for every target position.",
        {"cross_attention": _no_padding},
    ),
    Mistake(
        "the mask comes after the softmax",
        "Padding was included in the sum and then set to 0, so the weights sum to less than 1. Set its scores to -inf.",
        {"cross_attention": _after_softmax},
    ),
    Mistake(
        "a causal mask on the source",
        "Target position i sees only source positions up to i. The causal mask belongs to the decoder's "
        "self-attention; the whole source is known.",
        {"cross_attention": _causal},
    ),
    Mistake(
        "keys used as values",
        "The keys determine the weights; the values are averaged: use encoder W_V, not encoder W_K.",
        {"cross_attention": _values_asked_for},
    ),
    Mistake(
        "the target is not shifted",
        "Each position reads the token that it must predict: the loss goes to 0 and the model learns nothing. Put bos "
        "in front and leave the last token out.",
        {"shift_right": _not_shifted},
    ),
    Mistake(
        "the first token is overwritten",
        "bos replaced the first token, and each other position still reads the token that it must predict. Shift all "
        "tokens by one position to the right.",
        {"shift_right": _first_replaced},
    ),
    Mistake(
        "shifted to the left",
        "Position i reads token i + 1, from the future. It must read token i - 1: put bos in front and leave the last "
        "token out.",
        {"shift_right": _shifted_left},
    ),
    Mistake(
        "the last token is still there",
        "The inputs are one token longer than the targets. The last token is predicted but never read: leave it out.",
        {"shift_right": _longer},
    ),
    Mistake(
        "the last token moves to the front",
        "np.roll puts the last token in the first column. Set the first column to bos.",
        {"shift_right": _rolled},
    ),
]
ALSO_RIGHT = [
    {"shift_right": _rolled_and_set, "cross_attention": _with_loops},
    {"shift_right": _lists, "cross_attention": _with_einsum},
]
