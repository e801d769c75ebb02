"""Known mistakes, and alternative correct solutions."""

from itertools import combinations

import numpy as np

from glassformer_course.cases import Mistake


def _size_of_the_mean(outputs, gradients):
    return np.abs((outputs * gradients).sum(axis=(2, 3)).mean(axis=0))


def _sizes_everywhere(outputs, gradients):
    return np.abs(outputs * gradients).sum(axis=(2, 3)).mean(axis=0)


def _signed(outputs, gradients):
    return (outputs * gradients).sum(axis=(2, 3)).mean(axis=0)


def _gradient_alone(outputs, gradients):
    return np.abs(gradients.sum(axis=(2, 3))).mean(axis=0)


def _summed(outputs, gradients):
    return np.abs((outputs * gradients).sum(axis=(2, 3))).sum(axis=0)


def _sliced(weights, columns):
    return (*(w[:, columns] for w in weights[:3]), weights[3][columns])


def _interleaved(w_query, w_key, w_value, w_output, heads, removed):
    columns = [c for c in range(w_query.shape[1]) if c % heads not in removed]
    return _sliced((w_query, w_key, w_value, w_output), columns)


def _set_to_zero(w_query, w_key, w_value, w_output, heads, removed):
    gate = np.repeat([0.0 if h in removed else 1.0 for h in range(heads)], w_query.shape[1] // heads)
    return w_query * gate, w_key * gate, w_value * gate, w_output * gate[:, None]


def _the_others(w_query, w_key, w_value, w_output, heads, removed):
    width = w_query.shape[1] // heads
    columns = [h * width + c for h in range(heads) if h in removed for c in range(width)]
    return _sliced((w_query, w_key, w_value, w_output), columns)


def _one_channel(w_query, w_key, w_value, w_output, heads, removed):
    columns = [c for c in range(w_query.shape[1]) if c not in removed]
    return _sliced((w_query, w_key, w_value, w_output), columns)


def _output_left(w_query, w_key, w_value, w_output, heads, removed):
    width = w_query.shape[1] // heads
    columns = [h * width + c for h in range(heads) if h not in removed for c in range(width)]
    return w_query[:, columns], w_key[:, columns], w_value[:, columns], w_output.copy()


def _measured_once(losses, heads, count):
    return sorted(range(heads), key=lambda h: losses[(h,)])[:count]


def _best_set(losses, heads, count):
    return list(min(combinations(range(heads), count), key=lambda subset: losses[subset]))


def _most_important_first(losses, heads, count):
    removed: list[int] = []
    for _ in range(count):
        left = [h for h in range(heads) if h not in removed]
        removed.append(max(left, key=lambda h: losses[tuple(sorted([*removed, h]))]))
    return removed


def _by_einsum(outputs, gradients):
    return np.absolute(np.einsum("nhtc,nhtc->nh", outputs, gradients)).sum(axis=0) / outputs.shape[0]


def _by_loops(outputs, gradients):
    slopes = [
        [float(np.sum(o * g)) for o, g in zip(*text, strict=True)] for text in zip(outputs, gradients, strict=True)
    ]
    return np.array([sum(abs(text[h]) for text in slopes) / len(slopes) for h in range(outputs.shape[1])])


def _by_mask(w_query, w_key, w_value, w_output, heads, removed):
    keep = np.repeat(~np.isin(np.arange(heads), removed), w_query.shape[1] // heads)
    return (*(np.compress(keep, w, axis=1) for w in (w_query, w_key, w_value)), w_output[keep, :])


def _by_split(w_query, w_key, w_value, w_output, heads, removed):
    def without(w, axis):
        width = w.shape[axis] // heads
        return np.delete(w, [h * width + c for h in removed for c in range(width)], axis=axis)

    return without(w_query, 1), without(w_key, 1), without(w_value, 1), without(w_output, 0)


def _by_sets(losses, heads, count):
    removed = ()
    order = []
    for _ in range(count):
        ways = [key for key in losses if len(key) == len(removed) + 1 and set(removed) < set(key)]
        _, head = min((losses[key], (set(key) - set(removed)).pop()) for key in ways)
        order.append(head)
        removed = tuple(sorted((*removed, head)))
    return order


def _by_table(losses, heads, count):
    removed = np.zeros(heads, dtype=bool)
    order = []
    for _ in range(count):
        ways = np.full(heads, np.inf)
        for h in np.flatnonzero(~removed):
            ways[h] = losses[tuple(int(g) for g in np.flatnonzero(removed | (np.arange(heads) == h)))]
        order.append(int(ways.argmin()))
        removed[order[-1]] = True
    return order


MISTAKES = [
    Mistake(
        "the absolute value of the mean",
        "Derivatives for different texts have both signs and cancel, so a head that every text depends on seems "
        "useless. Take the absolute value for each text, then the mean.",
        {"importance": _size_of_the_mean},
    ),
    Mistake(
        "absolute values inside the sum",
        "The derivative of one text's loss is the sum over positions and channels, with signs. Take the absolute "
        "value only of that sum.",
        {"importance": _sizes_everywhere},
    ),
    Mistake(
        "no absolute value",
        "A head that lowers the loss and one that raises it both matter. Take the absolute value of each text's "
        "derivative.",
        {"importance": _signed},
    ),
    Mistake(
        "the gradient without the output",
        "By the chain rule, the derivative with respect to the gate is output times gradient: a head with output 0 has "
        "derivative 0.",
        {"importance": _gradient_alone},
    ),
    Mistake(
        "summed, not averaged",
        "The importance grows with the number of texts. Divide by N.",
        {"importance": _summed},
    ),
    Mistake(
        "interleaved channels",
        "Every H-th column was used for one head. Head h has d adjacent columns, from h·d on.",
        {"remove": _interleaved},
    ),
    Mistake(
        "set to zero, not removed",
        "The attention is right, but no array is smaller. Remove the columns of W_Q, W_K and W_V, and the rows of W_O.",
        {"remove": _set_to_zero},
    ),
    Mistake(
        "the wrong heads are kept",
        "Only the removed heads are left. Keep the heads that are *not* in `removed`.",
        {"remove": _the_others},
    ),
    Mistake(
        "one channel removed for each head",
        "Head numbers were used as column numbers. Head h has d columns, from h·d on.",
        {"remove": _one_channel},
    ),
    Mistake(
        "the rows of W_O are not removed",
        "W_O is applied to the concatenated outputs of the heads. Remove its rows for the removed heads too, or the "
        "channels do not match.",
        {"remove": _output_left},
    ),
    Mistake(
        "measured only once",
        "Heads were ranked by removing each from the whole model. Two heads that can replace each other both seem "
        "useless; after removing one, compare again.",
        {"greedy": _measured_once},
    ),
    Mistake(
        "the best set, not one head at a time",
        "This searches all sets for the lowest loss, which is infeasible for many heads and gives no order. Greedy "
        "search removes one head, then chooses the next.",
        {"greedy": _best_set},
    ),
    Mistake(
        "the most important head first",
        "First remove the *least* important head, the one whose removal gives the lowest loss.",
        {"greedy": _most_important_first},
    ),
]
ALSO_RIGHT = [
    {"importance": _by_einsum, "remove": _by_mask, "greedy": _by_sets},
    {"importance": _by_loops, "remove": _by_split, "greedy": _by_table},
]
