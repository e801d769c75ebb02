"""Known mistakes, and alternative correct solutions."""

import numpy as np

from glassformer_course.cases import Mistake


def _softmax(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _split(x, heads):
    B, T, D = x.shape
    return x.reshape(B, T, heads, D // heads).transpose(0, 2, 1, 3)


def _merge(x):
    return np.swapaxes(x, 1, 2).reshape(x.shape[0], x.shape[2], -1)


def _attend(Q, K, V, width):
    return _softmax(Q @ np.swapaxes(K, -1, -2) / np.sqrt(width)) @ V


def _with(split=_split, merge=_merge):
    """Return the given `split` and `merge` with a correct attention between them."""

    def multi_head(x, W_Q, W_K, W_V, W_O, heads):
        Q, K, V = (split(x @ W, heads) for W in (W_Q, W_K, W_V))
        return merge(_attend(Q, K, V, Q.shape[-1])) @ W_O

    return {"split": split, "merge": merge, "multi_head": multi_head}


def _split_no_transpose(x, heads):
    B, T, D = x.shape
    return x.reshape(B, heads, T, D // heads)


def _split_strided(x, heads):
    B, T, D = x.shape
    return x.reshape(B, T, D // heads, heads).transpose(0, 3, 1, 2)


def _split_tokens_first(x, heads):
    B, T, D = x.shape
    return x.reshape(B, T, heads, D // heads)


def _merge_no_transpose(x):
    B, H, T, d = x.shape
    return x.reshape(B, T, H * d)


def _merge_strided(x):
    B, H, T, d = x.shape
    return x.transpose(0, 2, 3, 1).reshape(B, T, H * d)


def _scaled_by_all(x, W_Q, W_K, W_V, W_O, heads):
    Q, K, V = (_split(x @ W, heads) for W in (W_Q, W_K, W_V))
    return _merge(_attend(Q, K, V, x.shape[-1])) @ W_O


def _no_output(x, W_Q, W_K, W_V, W_O, heads):
    Q, K, V = (_split(x @ W, heads) for W in (W_Q, W_K, W_V))
    return _merge(_attend(Q, K, V, Q.shape[-1]))


def _weights_transposed(x, W_Q, W_K, W_V, W_O, heads):
    Q, K, V = (_split(x @ W.T, heads) for W in (W_Q, W_K, W_V))
    return _merge(_attend(Q, K, V, Q.shape[-1])) @ W_O.T


def _never_split(x, W_Q, W_K, W_V, W_O, heads):
    return _attend(x @ W_Q, x @ W_K, x @ W_V, x.shape[-1] // heads) @ W_O


def _split_before(x, W_Q, W_K, W_V, W_O, heads):
    d = x.shape[-1] // heads
    parts = [slice(head * d, (head + 1) * d) for head in range(heads)]
    outputs = []
    for channels in parts:
        Q, K, V = (x[..., channels] @ W[channels, channels] for W in (W_Q, W_K, W_V))
        outputs.append(_attend(Q, K, V, d))
    return np.concatenate(outputs, axis=-1) @ W_O


def _with_einsum(x, W_Q, W_K, W_V, W_O, heads):
    D = x.shape[-1]
    Q, K, V = (np.einsum("btc,chd->bhtd", x, W.reshape(D, heads, -1)) for W in (W_Q, W_K, W_V))
    weights = _softmax(np.einsum("bhtd,bhsd->bhts", Q, K) / (D / heads) ** 0.5)
    return np.einsum("bhts,bhsd,hdc->btc", weights, V, W_O.reshape(heads, D // heads, D))


def _head_by_head(x, W_Q, W_K, W_V, W_O, heads):
    outputs = []
    for q, k, v in zip(*(np.split(x @ W, heads, axis=-1) for W in (W_Q, W_K, W_V)), strict=True):
        outputs.append(_attend(q, k, v, q.shape[-1]))
    return np.concatenate(outputs, axis=-1) @ W_O


MISTAKES = [
    Mistake(
        "split without transposing",
        "reshape to (B, H, T, d) splits the numbers in memory order, so heads get parts of different tokens. First "
        "reshape to (B, T, H, d), then swap the axes of T and H.",
        _with(split=_split_no_transpose),
    ),
    Mistake(
        "every H-th channel",
        "Head 0 gets channels 0, H, 2H and so on here. It must get the first d channels: reshape to (B, T, H, d), in "
        "this order.",
        _with(split=_split_strided),
    ),
    Mistake(
        "heads after the tokens",
        "The result is (B, T, H, d), so a matrix multiplication would compare the heads of one token. Swap T and H "
        "with transpose(0, 2, 1, 3).",
        {"split": _split_tokens_first},
    ),
    Mistake(
        "merged without transposing",
        "reshape from (B, H, T, d) concatenates parts of different tokens. Swap H and T first, then reshape.",
        _with(merge=_merge_no_transpose),
    ),
    Mistake(
        "merged channel by channel",
        "The channels of the heads are interleaved. All d channels of head 0 come first: (B, T, H, d), then reshape.",
        _with(merge=_merge_strided),
    ),
    Mistake(
        "scaled by the root of D",
        "A head's score is a sum of d products, d = D / H, so the scale is √d.",
        {"multi_head": _scaled_by_all},
    ),
    Mistake(
        "W_O is missing",
        "The heads are only concatenated. Multiply the merged result by W_O, which combines the outputs of the heads.",
        {"multi_head": _no_output},
    ),
    Mistake(
        "the weights are transposed",
        "The weights are input by output here: x @ W. (torch.nn.Linear stores them transposed, and computes x @ W.T.)",
        {"multi_head": _weights_transposed},
    ),
    Mistake(
        "a single head",
        "Q, K and V were never split, so all channels share one softmax. Split them into heads before the scores.",
        {"multi_head": _never_split},
    ),
    Mistake(
        "x is split before it is projected",
        "Each head uses all D channels of x. Multiply by W_Q, W_K and W_V first, then split.",
        {"multi_head": _split_before},
    ),
]
ALSO_RIGHT = [
    {"multi_head": _with_einsum},
    {
        "split": lambda x, heads: np.moveaxis(np.array(np.split(x, heads, axis=-1)), 0, 1),
        "merge": lambda x: np.concatenate(list(np.moveaxis(x, 1, 0)), axis=-1),
        "multi_head": _head_by_head,
    },
]
