"""Probe `senses`: do the vectors of one word show its sense?

The sentences are those of the corpus `senses`, in which "bank" belongs to a river or to money. For each layer, a
classifier computes the mean vector of "bank" in each sense, from sentences with one half of the cue words, and assigns
the sense with the nearer mean (Euclidean distance) to "bank" in sentences with the other half; then the halves change
places. (Coenen et al. 2019 classify the senses of words in the same way, by the nearest mean vector.) The two halves
have no cue word and no verb in common, and all other words are the same for both senses.

Sentences with the same cue word are not independent. So a cue word counts as one question, and the proportion of its
sentences with the right sense is its result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from glassformer.base.errors import GlassError
from glassformer.corpora.senses import SENSES, WORD, Senses, SenseSentence
from glassformer.evaluation.minimal_pairs import Proportion
from glassformer.evaluation.probes.result import Group, ProbeResult
from glassformer.evaluation.probes.row_probabilities import ScorableModel, as_written, checked_row, token_ends
from glassformer.inspection.recording import record
from glassformer.tasks import MaskFiller

Vectors = npt.NDArray[np.float64]
ABOUT = (
    f'do the vectors of "{WORD}" show whether it belongs to a river or to money, if a classifier has seen only '
    "sentences with other cue words"
)
MOST_ROWS = 16
"""Maximum number of sentences in one forward pass."""


def probe_senses(model: ScorableModel, size: int, seed: int) -> ProbeResult:
    """Classify the vectors of "bank" in the residual stream after the embedding and after each layer.

    Args:
        model: the run.
        size: number of sentences, rounded down to a multiple of the number of cue words; at least one for each.
        seed: random seed of the sentences.

    Raises:
        GlassError: the word is not in the run's vocabulary, or a sentence has more tokens than the run can read.
    """
    cues = len({sentence.cue for sentence in Senses().sentences(1, seed)})
    sentences = list(Senses().sentences(max(1, size // cues), seed))
    if WORD not in as_written(model.tokenizer, sentences[0].text):
        raise GlassError(
            f"the word {WORD!r} is not in this run's vocabulary", "Probe a run whose vocabulary has this word."
        )
    rows = [checked_row(model, sentence.text) for sentence in sentences]
    streams = word_vectors(model, rows, [_position(model, sentence.text) for sentence in sentences])  # (L+1, N, D)
    embeddings = model.model.embedding.tokens.weight.detach().cpu().double().numpy()  # (V, D)
    rules = {
        "shared words": classified([_counts(row, len(embeddings)) for row in rows], sentences).value,
        "mean embedding": classified([embeddings[row].mean(axis=0) for row in rows], sentences).value,
    }
    groups = [
        Group("embedding" if layer == 0 else f"after layer {layer - 1}", classified(stream, sentences), 0.5, rules)
        for layer, stream in enumerate(streams)
    ]
    return ProbeResult("senses", f"{len(sentences):,} sentences: {ABOUT}", groups)


def classified(vectors: Sequence[Vectors] | Vectors, sentences: Sequence[SenseSentence]) -> Proportion:
    """Return the proportion of cue words whose sentences get the sense with the nearer mean vector.

    The means are those of the sentences in the other half. If both means are equally near (up to rounding), the
    sentence counts as half right.

    Args:
        vectors: a vector for each sentence, (N, D).
        sentences: the N sentences, with both senses in both halves.
    """
    x = np.asarray(vectors, dtype=np.float64)  # (N, D)
    sense = np.array([SENSES.index(sentence.sense) for sentence in sentences])  # (N)
    half = np.array([sentence.half for sentence in sentences])  # (N)
    results: dict[str, list[float]] = defaultdict(list)
    for tested in (0, 1):
        means = [x[(half != tested) & (sense == number)].mean(axis=0) for number in (0, 1)]  # two of (D)
        nearer = sum(sign * ((x - mean) ** 2).sum(axis=1) for sign, mean in zip((1, -1), means, strict=True))  # (N)
        nearer[np.abs(nearer) <= 1e-9 * (x**2).sum(axis=1)] = 0.0  # positive: nearer to the second sense
        right = 0.5 + 0.5 * np.sign(nearer) * np.where(sense == 1, 1, -1)  # (N)
        for index in np.flatnonzero(half == tested).tolist():
            results[sentences[index].cue].append(float(right[index]))
    return Proportion(sum(float(np.mean(each)) for each in results.values()), len(results))


def word_vectors(model: ScorableModel, rows: Sequence[Sequence[int]], positions: Sequence[int]) -> Vectors:
    """Return the residual stream at one position of each row, after the embedding and after each layer, (L+1, N, D).

    Args:
        model: the run.
        rows: N rows of token ids without special tokens.
        positions: a position in each row.
    """
    frame = model.frame if isinstance(model, MaskFiller) else None
    start = model.tokenizer.start_id
    inputs = [[start, *row] if frame is None else list(frame.around(list(row))) for row in rows]
    before = 1 if frame is None else len(frame.before)
    [(name, stack)] = model.model.stacks.items()
    keep = [f"{name}.{layer}.resid" for layer in range(len(stack.blocks) + 1)]
    by_length: dict[int, list[int]] = defaultdict(list)
    for number, row in enumerate(inputs):
        by_length[len(row)].append(number)
    vectors = np.zeros((len(keep), len(rows), model.config.model.width))
    for numbers in by_length.values():
        for first in range(0, len(numbers), MOST_ROWS):
            batch = numbers[first : first + MOST_ROWS]
            recording = record(model.model, torch.tensor([inputs[number] for number in batch]), keep=keep)
            for layer, stream_name in enumerate(keep):
                stream = recording[stream_name].double().numpy()  # (B, T, D)
                vectors[layer, batch] = stream[range(len(batch)), [before + positions[number] for number in batch]]
    return vectors


def _position(model: ScorableModel, text: str) -> int:
    """Return the position of the last token of the word in a text."""
    end = len(as_written(model.tokenizer, text[: text.index(WORD) + len(WORD)]))
    ends = token_ends(model.tokenizer, checked_row(model, text))
    return next((position for position, token_end in enumerate(ends) if token_end >= end), len(ends) - 1)


def _counts(row: Sequence[int], vocab_size: int) -> Vectors:
    """Return how often each token occurs in a row, (V)."""
    return np.bincount(row, minlength=vocab_size).astype(np.float64)
