"""Known mistakes, and alternative correct solutions."""

import heapq

import numpy as np

from glassformer_course.cases import Mistake


def _wu(n, alpha):
    return ((5 + n) / 6) ** alpha


def _extensions(table, bos, running):
    for tokens, total in running:
        for token, step in enumerate(table[tokens[-1] if tokens else bos].tolist()):
            if step > -np.inf:
                yield [*tokens, token], total + step


def _best(hypotheses, n):
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis[1])[:n]


def _search(table, bos, beams, most, finish):
    """Return (active, finished) after `most` steps; `finish(selected, finished)` returns the active hypotheses."""
    finished = []
    running = [([], 0.0)]
    for _ in range(most):
        running = finish(_best(_extensions(table, bos, running), beams), finished)
    return running, finished


def _split(selected, finished, eos):
    finished += [hypothesis for hypothesis in selected if hypothesis[0][-1] == eos]
    return [hypothesis for hypothesis in selected if hypothesis[0][-1] != eos]


def _scored(hypotheses, beams, penalty):
    return _best([(tokens, total / penalty(len(tokens))) for tokens, total in hypotheses], beams)


def _finished_dropped(table, bos, eos, beams, most, alpha):
    extended = [([], 0.0)]
    running = extended
    for _ in range(most):
        extended = _best(_extensions(table, bos, running), beams)
        running = [hypothesis for hypothesis in extended if hypothesis[0][-1] != eos]
        if not running:
            break
    return _scored(extended, beams, lambda n: _wu(n, alpha))


def _goes_on_after_the_end(table, bos, eos, beams, most, alpha):
    running, _ = _search(table, bos, beams, most, lambda selected, finished: selected)
    return _scored(running, beams, lambda n: _wu(n, alpha))


def _no_penalty(table, bos, eos, beams, most, alpha):
    running, finished = _search(table, bos, beams, most, lambda selected, done: _split(selected, done, eos))
    return _scored(finished + running, beams, lambda n: 1.0)


def _by_length(table, bos, eos, beams, most, alpha):
    running, finished = _search(table, bos, beams, most, lambda selected, done: _split(selected, done, eos))
    return _scored(finished + running, beams, lambda n: n**alpha)


def _ranked_without_penalty(table, bos, eos, beams, most, alpha):
    running, finished = _search(table, bos, beams, most, lambda selected, done: _split(selected, done, eos))
    return [(tokens, total / _wu(len(tokens), alpha)) for tokens, total in _best(finished + running, beams)]


def _greedy_each(table, bos, eos, beams, most, alpha):
    finished = []
    running = _split(_best(_extensions(table, bos, [([], 0.0)]), beams), finished, eos)
    for _ in range(most - 1):
        extended = [hypothesis for parent in running for hypothesis in _best(_extensions(table, bos, [parent]), 1)]
        running = _split(_best(extended, beams), finished, eos)
    return _scored(finished + running, beams, lambda n: _wu(n, alpha))


def _unfinished_dropped(table, bos, eos, beams, most, alpha):
    _, finished = _search(table, bos, beams, most, lambda selected, done: _split(selected, done, eos))
    return _scored(finished, beams, lambda n: _wu(n, alpha))


def _stops_at_the_first(table, bos, eos, beams, most, alpha):
    finished = []
    running = [([], 0.0)]
    for _ in range(most):
        running = _split(_best(_extensions(table, bos, running), beams), finished, eos)
        if finished:
            break
    return _scored(finished + running, beams, lambda n: _wu(n, alpha))


def _with_arrays(table, bos, eos, beams, most, alpha):
    finished = []
    tokens = [[]]
    totals = np.zeros(1)
    for _ in range(most):
        last = [row[-1] if row else bos for row in tokens]
        flat = (totals[:, None] + table[last]).ravel()
        order = np.argsort(-flat, kind="stable")[:beams]
        order = order[flat[order] > -np.inf]
        rows = [[*tokens[position // len(table)], int(position % len(table))] for position in order]
        ended = np.array([row[-1] == eos for row in rows], dtype=bool)
        finished += [(row, float(flat[position])) for row, position, end in zip(rows, order, ended, strict=True) if end]
        tokens = [row for row in rows if row[-1] != eos]
        totals = flat[order][~ended]
        if not tokens:
            break
    finished += zip(tokens, totals.tolist(), strict=True)
    ranked = sorted(((total / _wu(len(row), alpha), -i, row) for i, (row, total) in enumerate(finished)), reverse=True)
    return [(row, score) for score, _, row in ranked[:beams]]


def _with_a_heap(table, bos, eos, beams, most, alpha):
    pool = []
    running = [(0.0, 0, ())]
    for step in range(most):
        heap = []
        for total, rank, tokens in running:
            for token in range(len(table)):
                more = float(table[tokens[-1] if tokens else bos][token])
                if more != -np.inf:
                    heapq.heappush(heap, (total - more, rank, token, (*tokens, token)))
        selected = [heapq.heappop(heap) for _ in range(min(beams, len(heap)))]
        running = []
        for rank, (total, _, token, tokens) in enumerate(selected):
            if token == eos or step == most - 1:
                late = token != eos
                heapq.heappush(pool, (total / _wu(len(tokens), alpha), step, late, rank, tokens))
            else:
                running.append((total, rank, tokens))
    best = [heapq.heappop(pool) for _ in range(min(beams, len(pool)))]
    return [(list(hypothesis[-1]), -hypothesis[0]) for hypothesis in best]


MISTAKES = [
    Mistake(
        "finished hypotheses are lost",
        "Only the hypotheses of the last step are returned, so a text that ended earlier is lost, however good it is. "
        "Set finished hypotheses aside when they end, and rank them all at the end.",
        {"beam_search": _finished_dropped},
    ),
    Mistake(
        "texts continue after their end",
        "A hypothesis that ends in eos was extended like any other. Remove it from the active hypotheses.",
        {"beam_search": _goes_on_after_the_end},
    ),
    Mistake(
        "no length penalty",
        "The sum of log-probabilities decreases with every token, so short texts win. Divide by ((5 + n) / 6) ** alpha "
        "before ranking.",
        {"beam_search": _no_penalty},
    ),
    Mistake(
        "divided by the length",
        "n ** alpha is another penalty. The task asks for ((5 + n) / 6) ** alpha, which is also 1 for a single token "
        "but grows more slowly.",
        {"beam_search": _by_length},
    ),
    Mistake(
        "ranked before the penalty",
        "The scores are right, but the hypotheses were sorted and selected by log-probability. Compute the scores "
        "first, then sort by them.",
        {"beam_search": _ranked_without_penalty},
    ),
    Mistake(
        "each hypothesis keeps only its best extension",
        "This is greedy search from several starts. All extensions of all active hypotheses compete for the beams: one "
        "hypothesis may have several extensions, another none.",
        {"beam_search": _greedy_each},
    ),
    Mistake(
        "active hypotheses are dropped",
        "After the last step, the active hypotheses are results too, truncated by the limit. Add them to the finished "
        "ones.",
        {"beam_search": _unfinished_dropped},
    ),
    Mistake(
        "stops at the first finished hypothesis",
        "The first hypothesis to end is seldom the best. Continue while any hypothesis is active.",
        {"beam_search": _stops_at_the_first},
    ),
]
ALSO_RIGHT = [{"beam_search": _with_arrays}, {"beam_search": _with_a_heap}]
