"""`topics`: short texts about sport, weather, music or food, with a known Bayes error.

A text is three to five sentences from a fixed list of frames, which do not depend on the topic. Every gap of a frame is
filled independently: with a neutral word, with a word of the text's topic, or with a word of another topic. All topics
have equally many words of each kind, so the counts c of words of each topic are sufficient for classification. For one
gap, let r = (probability of the text's topic) / (probability of one particular other topic). Then

    p(label | text)  =  r^c(label) / (r^c(sport) + r^c(weather) + r^c(music) + r^c(food))

The best classifier predicts the topic with the most words. Its error is an exact sum over all counts.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from glassformer.base.errors import GlassError
from glassformer.corpora.corpus import below, generator

GAP = re.compile(r"NOUN|ADJECTIVE")
FRAMES = (
    "We talked about the NOUN and the NOUN for an hour.",
    "The ADJECTIVE NOUN was better than the NOUN of last year.",
    "Nobody there had ever seen such a ADJECTIVE NOUN before.",
    "My sister wrote a few lines about the NOUN.",
    "In the evening the NOUN came after the ADJECTIVE NOUN.",
    "It was the NOUN that people remembered, not the NOUN.",
    "He said that the NOUN seemed ADJECTIVE to him.",
    "Their letters are full of the NOUN and the NOUN.",
    "She showed us a ADJECTIVE NOUN and then a NOUN.",
    "On Sunday they will tell you all about the NOUN.",
)
NEUTRAL = {
    "NOUN": "neighbour street photograph journey meeting garden visit secret window birthday",
    "ADJECTIVE": "lovely famous little pleasant",
}
WORDS = {
    "sport": {"NOUN": "goal match team race coach stadium player medal", "ADJECTIVE": "muscular defensive winning"},
    "weather": {"NOUN": "storm rain cloud frost breeze thunder fog sunshine", "ADJECTIVE": "humid windy chilly"},
    "music": {"NOUN": "violin melody concert drum choir piano song rhythm", "ADJECTIVE": "loud melodic rehearsed"},
    "food": {"NOUN": "soup bread cheese pepper dessert salad butter kitchen", "ADJECTIVE": "salty sweet tasty"},
}
LABELS = tuple(WORDS)


@dataclass(frozen=True)
class Topics:
    """The corpus `topics`: labelled texts.

    Args:
        own: probability that a gap is filled with a word of the text's topic.
        other: probability that a gap is filled with a word of another topic; all other topics are equally likely. The
            remaining words are neutral.
        fewest: minimum number of sentences in a text.
        most: maximum number of sentences in a text; all numbers in between are equally likely.
    """

    own: float = 0.5
    other: float = 0.15
    fewest: int = 3
    most: int = 5
    name: str = "topics"
    summary: str = "texts about sport, weather, music or food; the error of the best possible classifier is known"
    tasks: tuple[str, ...] = ("classify",)

    def recommended(self, task: str) -> Mapping[str, str]:
        """Return settings with words as tokens, and a small model of two layers."""
        return {"tokenizer.kind": "words", "model.context": "80", "model.layers": "2", "model.width": "64"}

    def labelled(self, size: int, seed: int) -> Iterator[tuple[str, str]]:
        """Yield (text, label) pairs; texts have 27 to 55 words by default, and all labels are equally likely."""
        for index in range(size):
            numbers = generator(seed, index)
            label = LABELS[below(numbers, len(LABELS))]
            sentences = self.fewest + below(numbers, self.most - self.fewest + 1)
            yield " ".join(self._draw_sentence(label, numbers) for _ in range(sentences)), label

    def _draw_sentence(self, label: str, numbers: random.Random) -> str:
        frame = FRAMES[below(numbers, len(FRAMES))]
        return GAP.sub(lambda gap: self._draw_word(gap[0], label, numbers), frame)

    def _draw_word(self, kind: str, label: str, numbers: random.Random) -> str:
        point = numbers.random()
        if point < self.own:
            lists = WORDS[label]
        elif point < self.own + self.other:
            lists = WORDS[[other for other in LABELS if other != label][below(numbers, len(LABELS) - 1)]]
        else:
            lists = NEUTRAL
        words = lists[kind].split()
        return words[below(numbers, len(words))]

    def posterior(self, text: str) -> Mapping[str, float]:
        """Return p(label | text) for every label, from the counts of words of each topic.

        Raises:
            GlassError: the corpus cannot generate this text.
        """
        counts = Counter(_topic_words(text, self.fewest, self.most))
        log_ratio = math.log(self.own / (self.other / (len(LABELS) - 1)))
        largest = max(counts.values(), default=0)
        weights = {label: math.exp(log_ratio * (counts[label] - largest)) for label in LABELS}
        total = math.fsum(weights.values())
        return {label: weight / total for label, weight in weights.items()}

    def bayes_error(self) -> float:
        """Return the exact error of the best possible classifier, a sum over gaps, topic words and largest counts."""
        topical = self.own + self.other
        accuracy = 0.0
        for gaps, gaps_probability in _gap_counts(self.fewest, self.most).items():
            for topic_words in range(gaps + 1):
                words_probability = (
                    math.comb(gaps, topic_words) * topical**topic_words * (1 - topical) ** (gaps - topic_words)
                )
                accuracy += gaps_probability * words_probability * self._accuracy(topic_words)
        return 1 - accuracy

    def _accuracy(self, topic_words: int) -> float:
        """Return the accuracy of the best classifier if `topic_words` gaps contain a word of some topic.

        The accuracy is the sum of p(label) p(topics | label) over all sequences of `topic_words` topics, with the best
        label for each sequence. Each term depends only on the largest count of a topic.
        """
        own_probability = self.own / (self.own + self.other)
        other_probability = (1 - own_probability) / (len(LABELS) - 1)
        cumulative_counts = [_count_rows(topic_words, largest) for largest in range(topic_words + 1)]
        exact_counts = [
            count - previous for count, previous in zip(cumulative_counts, [0, *cumulative_counts], strict=False)
        ]
        return math.fsum(
            count * other_probability ** (topic_words - largest) * own_probability**largest
            for largest, count in enumerate(exact_counts)
        ) / len(LABELS)


@cache
def _count_rows(length: int, largest: int) -> int:
    """Return the number of sequences of `length` topics in which no topic occurs more than `largest` times."""
    ways = [1] + [0] * length
    for _ in LABELS:
        ways = [
            sum(ways[total - count] * math.comb(total, count) for count in range(min(largest, total) + 1))
            for total in range(length + 1)
        ]
    return ways[length]


def _gap_counts(fewest: int, most: int) -> dict[int, float]:
    """Return the probability of each number of gaps in a text."""
    probabilities: defaultdict[int, float] = defaultdict(float)
    distribution = {0: 1.0}
    for sentences in range(1, most + 1):
        next_distribution: defaultdict[int, float] = defaultdict(float)
        for gaps, probability in distribution.items():
            for frame in FRAMES:
                next_distribution[gaps + len(GAP.findall(frame))] += probability / len(FRAMES)
        distribution = dict(next_distribution)
        if sentences >= fewest:
            for gaps, probability in distribution.items():
                probabilities[gaps] += probability / (most - fewest + 1)
    return dict(probabilities)


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Return a pattern for each frame, which matches the frame with corpus words of the right kind in its gaps."""
    alternatives = {kind: "|".join(lists[kind] for lists in (NEUTRAL, *WORDS.values())) for kind in NEUTRAL}
    return tuple(
        re.compile(GAP.sub(lambda gap: f"({alternatives[gap[0]].replace(' ', '|')})", frame.replace(".", r"\.")))
        for frame in FRAMES
    )


def _topic_words(text: str, fewest: int, most: int) -> Iterator[str]:
    """Yield the topic of every word in a gap, except neutral words."""
    topics = {word: label for label, lists in WORDS.items() for words in lists.values() for word in words.split()}
    sentences = re.split(r"(?<=\.) ", text)
    for sentence in sentences:
        match = next((candidate for pattern in _patterns() if (candidate := pattern.fullmatch(sentence))), None)
        if match is None or not fewest <= len(sentences) <= most:
            raise GlassError(
                f"the corpus topics cannot generate the text {text[:60]!r}", "See examples: glass data show topics"
            )
        yield from (topics[word] for word in match.groups() if word in topics)
