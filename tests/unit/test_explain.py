"""`glass explain`: every displayed number follows from other displayed numbers, and every step is explained at five
levels."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.base.errors import GlassError
from glassformer.inspection.explain import LEVELS, Subject, example, make_walk
from glassformer.inspection.explain.example import DOWN, EMBEDDING, HEAD, KEY, OUTPUT, POSITIONS, QUERY, UP, VALUE
from glassformer.inspection.explain.page import make_page, write_page
from glassformer.inspection.explain.text import display_width, text_lines
from glassformer.inspection.explain.walk_json import walk_facts
from glassformer.inspection.explain.wording import wordings
from tests.property.models import some_heads
from tests.unit.explained_models import CHOICES, FAMILIES, subject
from tests.unit.recomputing import recompute


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_every_shown_number_follows_from_other_shown_numbers(family: str, choice: dict[str, Any]) -> None:
    made = subject(family, **choice)
    walk = make_walk(made)
    bench = recompute(walk, made.positions, choice.get("window"))
    assert bench.done >= {"Q", "K", "V", "S", "S'", "A", "Z", "O0", "O5", "O", "X1", "X2", "h", "F", "logits"}
    assert ("X3" in bench.done) == (family == "encoder-decoder")
    shares = {row[2]: row[4] for row in walk.predictions[-1].rows}
    logits = next(m for s in walk.sections for m in s.matrices if m.name == "logits").values[-1]
    again = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    for id, share in shares.items():
        assert abs(share - again[id]) < 1e-12  # type: ignore[index,operator]
    assert len(shares) == min(10, len(again))


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder-decoder"])
@pytest.mark.parametrize("norm", ["layernorm", "none"])
def test_a_transform_before_the_output_layer_is_shown(family: str, norm: str) -> None:
    made = subject(family, head_transform=True, norm=norm)
    bench = recompute(make_walk(made), made.positions)
    assert bench.done >= {"T", "Y", "logits"}
    assert ("R" in bench.done) == (norm != "none")


@pytest.mark.parametrize("kv_heads", [2, 6])
def test_heads_that_were_removed_are_not_shown(kv_heads: int) -> None:
    """Remaining heads keep their numbers; an attention layer without heads outputs zeros."""
    removed = [name for name in some_heads("decoder") if ".2." not in name]
    made = subject("decoder", removed_heads=removed, kv_heads=kv_heads)
    walk = make_walk(made)
    assert recompute(walk, made.positions).done >= {"Q", "A", "O1", "O2", "O3", "O", "logits"}
    shown = [section for section in walk.iter_sections() if section.key == "head"]
    assert [(section.layer, section.head) for section in shown] == [(0, 1), (0, 2), (0, 3)]
    shared = ["shares its keys and values with head 2.", "shares its keys and values with head 1."]
    assert [note.split("The head ")[1] for section in shown for note in section.notes if "shares" in note] == (
        shared if kv_heads == 2 else []
    )


def test_a_removed_head_cannot_be_chosen() -> None:
    made = subject("decoder", removed_heads=[name for name in some_heads("decoder") if ".2." not in name])
    with pytest.raises(GlassError, match=r"(?s)head 0 was removed.*Give one of 1, 2, 3\."):
        make_walk(made, (0,), (0,))
    with pytest.raises(GlassError, match=r"(?s)head 4 was removed.*Give one of 1, 2, 3\."):
        make_walk(made, None, (4,))
    with pytest.raises(GlassError, match=r"(?s)head 2 was removed.*all heads of these layers were removed"):
        make_walk(made, (1,), (2,))


def test_one_root_mean_square_of_all_heads_is_shown() -> None:
    made = subject("decoder", qk_norm="whole", kv_heads=2)
    sections = [
        section for section in make_walk(made, (0,)).iter_sections() if section.key in ("projections", "qk_norm")
    ]
    every = np.concatenate([next(m for m in s.matrices if m.name == "Q").values for s in sections[::2]], axis=1)
    assert every.shape == (7, 60)
    for section in sections[1::2]:
        size = next(m for m in section.matrices if m.name == "r_Q").values  # (T, 1)
        np.testing.assert_allclose(size, np.sqrt((every**2).mean(axis=1, keepdims=True) + 1e-6), rtol=1e-5)


def test_the_recomputation_detects_a_wrong_number() -> None:
    made = subject("decoder")
    walk = make_walk(made)
    for name in ("Q", "S", "A", "O", "X1", "F", "logits"):
        matrix = next(m for s in walk.iter_sections() for m in s.matrices if m.name == name)
        matrix.values[-1, 0] += 0.01
        with pytest.raises(AssertionError):
            recompute(walk, made.positions)
        matrix.values[-1, 0] -= 0.01


def test_the_example_agrees_with_numpy() -> None:
    """Check the matrices of the three-token example against NumPy, and some printed numbers against known values."""
    x = np.array(EMBEDDING[:3]) + np.array(POSITIONS)
    q, k, v = (x @ np.array(matrix, dtype=float) for matrix in (QUERY, KEY, VALUE))
    scores = np.where(np.tri(3) > 0, q @ k.T / 2, -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    x = x + weights @ v @ np.array(OUTPUT)
    x = x + np.maximum(x @ np.array(UP), 0) @ np.array(DOWN)
    logits = np.array(HEAD) @ x[-1]
    shown = {m.name: m.values for s in make_walk(example()).iter_sections() for m in s.matrices}
    for name, values in {
        "Q": q,
        "K": k,
        "V": v,
        "S": q @ k.T,
        "M": scores,
        "A": weights,
        "X2": x,
        "logits": [logits],
    }.items():
        np.testing.assert_allclose(shown[name], values, atol=1e-6)
    printed = "\n".join(text_lines(make_walk(example()), "student", 80, lambda _: True))
    assert np.exp(2.25) / (np.exp(2.25) + 2) == pytest.approx(0.8259, abs=5e-5)  # the cat's score is 1.5 · 3 / 2
    assert re.search(r"A = softmax\(M\).*?sat  0.0870  0.8259  0.0870", printed, flags=re.DOTALL)
    assert re.search(r"1     on   3   4.5101       0.7782", printed)


def test_every_step_has_different_explanations_at_five_levels() -> None:
    choices: list[dict[str, Any]] = [{"positions": "alibi"}, {"positions": "rotary", "qk_norm": "head"}]
    walks = [make_walk(subject(family, **choice), heads=(0,)) for family in FAMILIES for choice in choices]
    walks.append(make_walk(subject("encoder", head_transform=True), heads=(0,)))
    texts = wordings()
    assert {section.key for walk in walks for section in walk.iter_sections()} == texts.keys()
    every = [text for levels in texts.values() for text in levels.values()]
    assert len(set(every)) == len(every) == 5 * len(texts)
    for key, levels in texts.items():
        assert tuple(levels) == LEVELS
        for one, other in combinations(levels.values(), 2):
            words = [set(re.findall(r"\w{4,}", text.lower())) for text in (one, other)]
            assert len(words[0] & words[1]) < 0.5 * min(map(len, words)), (key, one, other)
        assert all(60 <= len(text) <= 330 for text in levels.values()), key
        assert not re.search(r"softmax|matrix|vector|gradient|logit|[A-Z]{2,}", levels["school"]), key
        assert "http" not in " ".join(levels.values())


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    made = subject("encoder-decoder", length=23)
    wide = Subject(**{**vars(made), "labels": tuple(["深度学习模型非常大", "ক্ষমতা", "a" * 30, "é"] * 6)[:23]})
    for walk, levels in ((make_walk(wide, heads=(0,)), LEVELS[:1]), (make_walk(example()), LEVELS)):
        lines = [line for level in levels for line in text_lines(walk, level, width, lambda _: True)]
        assert max(map(display_width, lines)) <= width
        assert not any("\x1b" in line for line in lines)
    assert display_width("ক্ষ深") == 4


def test_large_matrices_show_their_corners_and_true_statistics() -> None:
    walk = make_walk(subject("decoder", length=29))
    matrix = next(m for s in walk.iter_sections() for m in s.matrices if m.name == "A")
    printed = "\n".join(text_lines(walk, "student", 80, lambda _: True))
    row = rf"t\d+ +{matrix.values[28, 0]:.4f}.*…  +{matrix.values[28, 27]:.4f}  +{matrix.values[28, 28]:.4f}"
    assert re.search(row, printed)
    assert f"29 × 29; mean {1 / 29:.4g}, sd {matrix.values.std():.4g}, min 0, max 1" in printed
    told = walk_facts(make_walk(subject("decoder", length=29, width=220)), "student")
    found = [m for s in told["sections"] for m in s["matrices"]]
    large = next(m for m in found if m["name"] == "E")
    assert (large["whole"], large["shape"], large["columns"][-3:]) == (False, [29, 220], [12, 218, 219])
    assert np.array(large["values"]).shape == (15, 15)


def test_the_numbers_are_json_and_hidden_scores_are_null() -> None:
    told = walk_facts(make_walk(example()), "engineer")
    again = json.loads(json.dumps(told, allow_nan=False))
    layer = next(s for s in again["sections"] if s["step"] == "layer")
    masked = next(s for s in layer["sections"][0]["sections"] if s["step"] == "mask")["matrices"][0]
    assert masked["values"][0] == [0.5, None, None]
    assert (masked["min"], masked["max"], masked["whole"]) == (0.0, 2.25, True)
    assert layer["words"] == wordings()["layer"]["engineer"]


@pytest.mark.parametrize(
    ("layers", "heads", "words"),
    [
        ((2,), None, "no layer 2: the model has 2"),
        ((-1,), None, "no layer -1"),
        (None, (6,), "no head 6: the model has 6"),
    ],
)
def test_nonexistent_layers_and_heads_are_refused(layers: Any, heads: Any, words: str) -> None:
    with pytest.raises(GlassError, match=words):
        make_walk(subject("decoder"), layers, heads)


def test_only_the_chosen_layers_and_heads_are_shown() -> None:
    walk = make_walk(subject("encoder-decoder"), (1,), (4,), 3)
    found = [(section.layer, section.head) for section in walk.iter_sections() if section.key == "head"]
    assert found == [(1, 4)] * 3  # encoder, decoder, cross
    assert len(walk.predictions[-1].rows) == 3


class Tags(HTMLParser):
    """A parser that checks that all tags of a page are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_is_well_formed_and_self_contained() -> None:
    nasty = Subject(**{**vars(subject("decoder")), "title": "<b>$t</b>", "text": "<script>alert(1)</script> & \"'"})
    page = make_page(make_walk(nasty), "engineer")
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert [tag for tag, _ in tags.found].count("script") == 1
    assert {tag for tag, _ in tags.found}.isdisjoint({"link", "img", "iframe", "b "})
    assert not any({"src", "srcset", "onclick"} & given.keys() for _, given in tags.found)
    assert all(str(given["href"]).startswith("#about-") for _, given in tags.found if "href" in given)
    assert not re.search(r"https?:|url\(|@import|fetch\(", page)
    assert "default-src 'none'" in page
    checked = [given["id"] for tag, given in tags.found if tag == "input" and "checked" in given]
    assert checked == ["to-engineer"]
    ids = [given["id"] for _, given in tags.found if "id" in given]
    assert len(ids) == len(set(ids))
    assert {str(given["href"])[1:] for _, given in tags.found if "href" in given} <= set(ids)
    text = "".join(tags.text)
    assert all(wordings()["softmax"][level] in text for level in LEVELS)
    assert "<script>alert(1)</script>" in text


def test_page_and_terminal_show_the_same_numbers() -> None:
    walk = make_walk(example())
    number = r"-?\d+\.\d{4}|-inf"
    printed = "\n".join(line for line in text_lines(walk, "student", 120, lambda _: True) if "→" not in line)
    tags = Tags()
    main = make_page(walk, "student").split("<main>")[1].split("</main>")[0]
    tags.feed(re.sub(r'<p class="words".*?</p>', "", main))
    page = " ".join(text for text in tags.text if "attends most" not in text and "divided" not in text)
    assert re.findall(number, page) == re.findall(number, printed)


def test_a_page_never_overwrites_another_file(tmp_path: Path) -> None:
    walk = make_walk(example())
    book = tmp_path / "book.txt"
    book.write_text("precious", encoding="utf-8")
    for path, words in (
        (book, "not a page of glass explain"),
        (tmp_path, "is a folder"),
        (tmp_path / "a" / "b", "no folder"),
    ):
        with pytest.raises(GlassError, match=words):
            write_page(walk, "student", path)
    assert [path.name for path in tmp_path.iterdir()] == ["book.txt"]
    assert book.read_text(encoding="utf-8") == "precious"
    for level in ("school", "engineer"):
        write_page(walk, level, tmp_path / "page.html")  # type: ignore[arg-type]
    assert 'id="to-engineer" checked' in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_note_on_a_norm_names_the_position_of_its_last_row() -> None:
    made = subject("encoder", head_transform=True)  # the shown positions are 1 and 3
    (section,) = [section for section in make_walk(made).iter_sections() if section.key == "transform"]
    (norm,) = section.children
    assert norm.notes[0].startswith(f"{made.labels[3]} (position 3) had mean ")
