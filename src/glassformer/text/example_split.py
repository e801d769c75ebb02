"""Choose the examples that are held out, before anything is trained.

`end` (and `tail`, its older name) holds out the last ones. `random` draws by a hash of the source text, so that equal
sources are on one side, whatever their targets; labelled texts are drawn in the same share from each label.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.text.documents import mark_of
from glassformer.text.example_source import ExampleSource
from glassformer.text.tally import Tally

MOST_LABELS = 65_536
Numbers = npt.NDArray[np.integer[Any]]
Side = npt.NDArray[np.bool_]


@dataclass
class ExampleSurvey:
    """Results of one pass over all examples. Takes some 24 bytes of memory an example, and a random split 70 more.

    Attributes:
        sources, pairs: a hash of each source, and of each source with its answer.
        characters: of each source.
        names: the labels in the order in which they come, each with its number.
        numbers: of each example's label; none for pairs.
        answer_characters: of all targets.
    """

    tally: Tally = field(default_factory=Tally)
    sources: array[int] = field(default_factory=lambda: array("Q"))
    pairs: array[int] = field(default_factory=lambda: array("Q"))
    characters: array[int] = field(default_factory=lambda: array("I"))
    names: dict[str, int] = field(default_factory=dict)
    numbers: array[int] = field(default_factory=lambda: array("i"))
    answer_characters: int = 0

    def __len__(self) -> int:
        return len(self.sources)

    def marks(self, which: str) -> npt.NDArray[np.uint64]:
        """The hashes called "sources" or "pairs"."""
        return np.frombuffer(getattr(self, which), dtype=np.uint64)


def survey_examples(source: ExampleSource, data: DataConfig, labelled: bool) -> ExampleSurvey:
    """Read everything once and count.

    Raises:
        GlassError: no example is left, or there are too many labels to be labels.
    """
    found = ExampleSurvey()
    for text, answer in source.examples(found.tally):
        found.sources.append(mark_of(text, data.seed))
        found.pairs.append(mark_of(f"{text}\0{answer}", data.seed))
        found.characters.append(len(text))
        if labelled:
            found.numbers.append(found.names.setdefault(answer, len(found.names)))
            if len(found.names) > MOST_LABELS:
                raise GlassError(
                    f"{source.name} has more than {MOST_LABELS:,} distinct labels in its first {len(found):,} rows",
                    "Set data.label_column to a column whose values repeat.",
                )
        else:
            found.answer_characters += len(answer)
    if not len(found):
        raise found.tally.nothing(source.name)
    return found


def refuse_useless_labels(found: ExampleSurvey, name: str) -> None:
    """Raise a `GlassError` where the labels teach nothing: one only, or another one in each row."""
    if len(found.names) == 1:
        only = next(iter(found.names))
        examples = (
            f"all {len(found):,} examples of {name} have" if len(found) > 1 else f"the only example of {name} has"
        )
        raise GlassError(
            f"{examples} the label {only!r}: there is nothing to tell apart",
            "Give examples of at least two labels.",
        )
    if len(found.names) == len(found):
        raise GlassError(
            f"{name} has {len(found):,} distinct labels in {len(found):,} rows: no label is seen twice",
            "Set data.label_column to a column whose values repeat.",
        )


def hold_out(found: ExampleSurvey, data: DataConfig) -> Side:
    """(examples,) True where an example belongs to the validation part: at least one, never all.

    Raises:
        GlassError: the examples cannot be split.
    """
    if len(found) < 2:
        raise GlassError("1 example is too few to be split", "Give more examples, or a data.validation of their own.")
    return _random(found, data) if data.split == "random" else _end(found, data)


def _end(found: ExampleSurvey, data: DataConfig) -> Side:
    characters = np.cumsum(np.frombuffer(found.characters, dtype=np.uint32)[::-1], dtype=np.int64)
    fits = int(np.searchsorted(characters, data.validation_limit, side="right"))
    wanted = min(round(data.validation_fraction * len(found)), fits, len(found) - 1)
    held = np.zeros(len(found), dtype=np.bool_)
    held[len(found) - max(1, wanted) :] = True
    return held


def _random(found: ExampleSurvey, data: DataConfig) -> Side:
    """Examples with the same source are one group; groups with the lowest hashes are held out, label by label."""
    marks, group, counts = np.unique(found.marks("sources"), return_inverse=True, return_counts=True)
    if len(marks) < 2:
        raise GlassError(
            f"all {len(found):,} examples have the same source: a random split cannot keep them apart",
            "Give different ones, or set data.split to end.",
        )
    characters = np.zeros(len(marks), dtype=np.int64)
    np.add.at(characters, group, np.frombuffer(found.characters, dtype=np.uint32))
    label = _label_of_groups(found, group, len(marks))
    held = np.zeros(len(marks), dtype=np.bool_)
    total = int(characters.sum())
    before = 0
    asked = 0
    for number in range(int(label.max()) + 1):
        members = np.flatnonzero(label == number)  # in the order of their hashes
        before += int(counts[members].sum())
        # Rounded so that all labels together have the share that is asked for.
        asked_so_far = round(data.validation_fraction * before)
        wanted = asked_so_far - asked
        asked = asked_so_far
        room = max(1, data.validation_limit * int(characters[members].sum()) // max(1, total))
        held[members[_lowest(counts[members], characters[members], wanted, room)]] = True
    _keep_every_label(found, group, held)
    if not held.any():
        held[_one_to_spare(label, counts)] = True
    side: Side = held[group]
    return side


def _label_of_groups(found: ExampleSurvey, group: Numbers, groups: int) -> Numbers:
    """(groups,) the rarest label of each group's examples, as a number from 0 on; pairs are all of one kind."""
    if not found.numbers:
        return np.zeros(groups, dtype=np.int64)
    numbers = np.frombuffer(found.numbers, dtype=np.int32)
    rank = np.empty(len(found.names), dtype=np.int64)
    rank[np.argsort(np.bincount(numbers), kind="stable")] = np.arange(len(found.names))
    label = np.full(groups, len(found.names), dtype=np.int64)
    np.minimum.at(label, group, rank[numbers])
    return label


def _lowest(counts: Numbers, characters: Numbers, wanted: int, room: int) -> Numbers:
    """The first groups, as many as have `wanted` examples and `room` characters; never all of them.

    Where the next group has more examples than are wanted still, later groups of one example are taken instead.
    """
    whole = min(
        int(np.searchsorted(np.cumsum(counts), wanted, side="right")),
        int(np.searchsorted(np.cumsum(characters), room, side="right")),
        len(counts) - 1,
    )
    missing = wanted - int(counts[:whole].sum())
    left = room - int(characters[:whole].sum())
    single = whole + np.flatnonzero(counts[whole:-1] == 1)[: max(0, missing)]
    more = int(np.searchsorted(np.cumsum(characters[single]), left, side="right"))
    return np.concatenate([np.arange(whole), single[:more]])


def _keep_every_label(found: ExampleSurvey, group: Numbers, held: Side) -> None:
    """A label whose texts were all held out, because they have other labels too, gets its last one back."""
    numbers = np.frombuffer(found.numbers, dtype=np.int32)
    seen = np.bincount(numbers[~held[group]], minlength=len(found.names)) if found.numbers else np.ones(1)
    for number in np.flatnonzero(seen == 0):
        held[group[numbers == number].max()] = False


def _one_to_spare(label: Numbers, counts: Numbers) -> int:
    """The smallest group (the first of them) of a label that has others."""
    spare = np.flatnonzero(np.bincount(label)[label] > 1)
    if not len(spare):
        raise GlassError(
            "each label has one distinct text: there is none to hold out",
            "Give more texts of each label, or a data.validation of their own.",
        )
    return int(spare[np.argmin(counts[spare])])
