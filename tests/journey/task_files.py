"""Small files for each task: a book, parallel lines, mails with labels, articles, conversations, minimal pairs.

The pages of `docs/` use these files, and so do the tests of the tasks.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

NOUNS = {
    "dog": "der {} Hund",
    "cat": "die {} Katze",
    "girl": "das {} Mädchen",
    "bird": "der {} Vogel",
    "fish": "der {} Fisch",
    "child": "das {} Kind",
}
VERBS = {"sleeps": "schläft", "laughs": "lacht", "falls": "fällt", "sings": "singt", "waits": "wartet"}
ADJECTIVES = {"old": "alte", "young": "junge", "small": "kleine", "tall": "große"}
ENDINGS = [" .", " again .", " today ."]
MAILS = {
    "spam": ["win a {n} pound prize now", "cheap watches for {n} dollars only", "claim your {n} free gifts today"],
    "work": ["the meeting on day {n} is moved", "please send me report number {n}", "lunch at {n} with the team"],
    "family": ["grandma turns {n} on sunday", "we are home at {n} for dinner", "the {n} photos of the children"],
}
BOOK = 'It was a {adjective} day when the {noun} met the {other}. "Who {verb} here?" asked the {noun}.\n'


def sentence_pairs() -> Iterator[tuple[str, str]]:
    """Yield 360 different English sentences, each with a word-for-word translation into simplified German."""
    for ending, noun, verb, adjective in product(ENDINGS, NOUNS, VERBS, ADJECTIVES):
        german = ending.replace("again", "wieder").replace("today", "heute")
        yield (
            f"the {adjective} {noun} {verb}{ending}",
            f"der {ADJECTIVES[adjective]} {NOUNS[noun]} {VERBS[verb]}{german}",
        )


def mails() -> list[tuple[str, str]]:
    """Return (label, text) of 180 mails; the labels alternate."""
    return [
        (label, text.format(n=n))
        for n in range(2, 22)
        for texts in zip(*MAILS.values(), strict=True)
        for label, text in zip(MAILS, texts, strict=True)
    ]


def articles() -> Iterator[tuple[str, str]]:
    """Yield 90 articles of three sentences, each with a one-sentence summary."""
    for noun, verb, other in product(NOUNS, VERBS, ["rain", "wind", "snow"]):
        yield (
            f"The {other} came early. Then the old {noun} {verb}. Nobody spoke of it.",
            f"The {noun} {verb} in the {other}.",
        )


def mixed(items: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the items in a shuffled order, the same order each time."""
    found = list(items)
    random.Random(5).shuffle(found)
    return found


def write_book(folder: Path) -> None:
    """Write `book.txt` with 240 lines."""
    nouns = list(NOUNS)
    adjectives = list(ADJECTIVES)
    verbs = list(VERBS)
    lines = [
        BOOK.format(adjective=adjectives[n % 4], noun=nouns[n * n % 6], other=nouns[(n // 3) % 6], verb=verbs[n % 5])
        for n in range(240)
    ]
    (folder / "book.txt").write_text("".join(lines), encoding="utf-8")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write one text per line."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")


def write_pairs(folder: Path) -> None:
    """Write `train`, `val` and `test` as `.en` and `.de` files, and further files of sentence pairs.

    `pairs.tsv` has the pairs of `train` and `val`, `pairs.jsonl` has all 360 pairs, and `sentences.txt` has four
    English sentences of `test`.
    """
    pairs = mixed(sentence_pairs())
    for name, some in (("train", pairs[:280]), ("val", pairs[280:310]), ("test", pairs[310:340])):
        for number, language in enumerate(("en", "de")):
            write_lines(folder / f"{name}.{language}", [pair[number] for pair in some])
    write_lines(folder / "pairs.tsv", ["\t".join(pair) for pair in pairs[:310]])
    write_lines(folder / "pairs.jsonl", [json.dumps({"id": n, "en": en, "de": de}) for n, (en, de) in enumerate(pairs)])
    write_lines(folder / "sentences.txt", [english for english, _ in pairs[310:314]])


def write_mails(folder: Path) -> None:
    """Write `mails.csv` and `test.csv` with a header, and `new-mails.txt` with four texts."""
    rows = mails()
    for name, some in (("mails.csv", rows[:144]), ("test.csv", rows[144:])):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("label", "text"), *some])
    write_lines(folder / "new-mails.txt", [text for _, text in rows[150:154]])


def write_articles(folder: Path) -> None:
    """Write `articles.jsonl` and `test.jsonl`, and one article as `article.txt`."""
    rows = mixed(articles())
    for name, some in (("articles.jsonl", rows[:75]), ("test.jsonl", rows[75:])):
        write_lines(folder / name, [json.dumps({"article": source, "summary": gist}) for source, gist in some])
    (folder / "article.txt").write_text(rows[-1][0], encoding="utf-8")


def conversations() -> Iterator[list[dict[str, str]]]:
    """Yield 120 conversations with one or two questions each."""
    for number, (noun, verb, adjective) in enumerate(product(NOUNS, VERBS, ADJECTIVES)):
        told = [f"the {adjective} {noun} {verb} . what does the {noun} do ?", f"it {verb} ."]
        told += ["who is it ?", f"the {adjective} {noun} ."] if number % 2 else []
        yield [{"role": ("user", "assistant")[place % 2], "content": content} for place, content in enumerate(told)]


def write_conversations(folder: Path) -> None:
    """Write `talks.jsonl` and `test-talks.jsonl`, with a list of messages in each line."""
    talks = list(conversations())
    random.Random(5).shuffle(talks)
    for name, some in (("talks.jsonl", talks[:100]), ("test-talks.jsonl", talks[100:])):
        write_lines(folder / name, [json.dumps({"messages": messages}) for messages in some])


def write_minimal_pairs(folder: Path) -> None:
    """Write `minimal-pairs.jsonl`: correct and incorrect English sentences, with two kinds of errors."""
    rows = [
        {
            "sentence_good": f"It was a {adjective} day when the {noun} met the bird.",
            "sentence_bad": f"It was {wrong} day when the {noun} met the bird.",
            "UID": kind,
        }
        for noun, adjective in product(NOUNS, ADJECTIVES)
        for kind, wrong in (("order", f"{adjective} a"), ("noun", f"a {noun}"))
    ]
    write_lines(folder / "minimal-pairs.jsonl", [json.dumps(row) for row in rows])


def write_all(folder: Path) -> None:
    """Write all files of this module."""
    for write in (write_book, write_pairs, write_mails, write_articles, write_conversations, write_minimal_pairs):
        write(folder)
