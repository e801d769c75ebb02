"""Each tokenizer: its effect on text, deterministic training, its single file, and its errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from unicodedata import normalize

import pytest
import tokenizers

from glassformer.base.config import TOKENIZER_KINDS, TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.base.packages import install_command
from glassformer.base.recipes import load_recipe
from glassformer.tasks import other_forms, symbol_notes
from glassformer.text.tokenizers import Tokenizer, train_tokenizer
from glassformer.text.tokenizers.sample import BLOCK, OVERHEAD, draw
from tests.unit.trained_tokenizers import ENGLISH, SIZES, TEXT, trained

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.fixture(scope="module")
def of_kind() -> Callable[[str], Tokenizer]:
    made = {kind: trained(kind) for kind in TOKENIZER_KINDS}
    return made.__getitem__


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_special_tokens_are_never_encoded_from_text(kind: str, of_kind: Callable[[str], Tokenizer]) -> None:
    text = "a <|end|> b <|unknown|><|end|>"
    tokenizer = trained(kind, [text * 50 + TEXT])
    ids = tokenizer.encode(text)
    assert tokenizer.end_id not in ids
    assert tokenizer.unknown_id is None or tokenizer.unknown_id not in ids
    if kind != "wordpiece":
        assert tokenizer.decode(ids) == text
    assert tokenizer.decode([tokenizer.end_id, *ids, tokenizer.end_id]) == tokenizer.decode(ids)
    assert tokenizer.token_text(tokenizer.end_id) == "<|end|>"
    assert tokenizer.token_bytes(tokenizer.end_id) == b""
    assert tokenizer.end_id == tokenizer.vocab_size - 1
    assert max(of_kind(kind).encode("zebra 漢字 \U0001f9ec")) < of_kind(kind).end_id


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_text_of_known_symbols_is_restored(kind: str, of_kind: Callable[[str], Tokenizer]) -> None:
    tokenizer = of_kind(kind)
    back = tokenizer.decode(tokenizer.encode(TEXT))
    if kind == "wordpiece":
        assert "".join(back.split()) == "".join(TEXT.split())
        assert "র‍্যাব" in back
        assert "ক্ষুদ্র" in back
    else:
        assert back == TEXT
    assert tokenizer.exact == (kind in ("bytes", "bpe", "unigram"))
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.encode_many([TEXT, "", "cat"]) == [tokenizer.encode(t) for t in (TEXT, "", "cat")]


def test_each_kind_has_its_tokens(of_kind: Callable[[str], Tokenizer]) -> None:
    def texts(kind: str, text: str) -> list[str]:
        return [of_kind(kind).token_text(id) for id in of_kind(kind).encode(text)]

    assert texts("characters", "mat\n") == ["m", "a", "t", "\\n"]
    assert texts("graphemes", "ক্ষুদ্র র‍্যাব") == ["ক্ষু", "দ্র", " ", "র‍্যা", "ব"]
    assert texts("bytes", "tক") == ["t", "\\xe0", "\\xa6", "\\x95"]
    assert of_kind("bytes").encode("tক") == list("tক".encode())
    assert texts("words", "The dog didn't sit.\n\n") == ["The", " dog", " didn't", " sit", ".", "\\n", "\\n"]
    assert texts("words", " বিশ্ববিদ্যালয়ের র‍্যাব।") == [" বিশ্ববিদ্যালয়ের", " র‍্যাব", "।"]
    assert texts("bpe", "The cat") == ["The", " cat"]
    assert texts("wordpiece", "The cat, flat") == [" The", " cat", " ,", " flat"]
    assert "".join(texts("unigram", "The cat 漢")) == "The cat \\xe6\\xbc\\xa2"


def test_marks_stay_with_their_letters() -> None:
    """One Bangla word is one piece before BPE, so a large enough vocabulary contains it as one token."""
    text = "বিশ্ববিদ্যালয়ের ক্ষুদ্র "
    tokenizer = trained("bpe", [text * 50])
    assert len(tokenizer.encode("বিশ্ববিদ্যালয়ের ক্ষুদ্র")) == 2


def test_unknown_symbols_are_shown() -> None:
    for kind, shown in (("characters", "a\ufffdb"), ("graphemes", "a\ufffdb"), ("words", "\ufffd")):
        tokenizer = trained(kind, ["a b"])
        assert tokenizer.unknown_id in tokenizer.encode("axb")
        assert tokenizer.decode(tokenizer.encode("axb")) == shown
        assert tokenizer.token_text(tokenizer.unknown_id or 0) == "<|unknown|>"
    tokenizer = trained("wordpiece", ["a b"])
    assert tokenizer.decode(tokenizer.encode("b  xyz")) == "b \ufffd"
    assert [trained(kind).unknown_id for kind in ("bytes", "bpe", "unigram")] == [None] * 3


def test_unknown_spaces_are_shown_visibly() -> None:
    (note,) = symbol_notes(trained("characters", ["a b"]), ["a\u2003b\tx"])
    assert note.endswith("reads each as unknown: U+0009 x U+2003")


def test_vocabulary_limits_are_respected() -> None:
    for kind in TOKENIZER_KINDS:
        if kind != "bytes":
            size = SIZES.get(kind, 20)
            assert trained(kind, vocab_size=size).vocab_size <= size
    assert trained("bpe", vocab_size=257).vocab_size == 257
    often = trained("characters", ["aaabbc"], vocab_size=4)
    assert [often.token_text(id) for id in range(4)] == ["a", "b", "<|unknown|>", "<|end|>"]
    for kind, text, first in (("words", "d c b a", [" a", " b"]), ("characters", "dcba", ["a", "b"])):
        tied = trained(kind, [text], vocab_size=4)
        assert [tied.token_text(id) for id in range(2)] == first
    for kind in ("characters", "graphemes", "words"):
        seen_often = trained(kind, ["a" + "\nb" * 2 + "\na" * 2], min_count=3)
        assert seen_often.encode("b\na")[0] == seen_often.unknown_id
        assert seen_often.decode(seen_often.encode("a\na")) == "a\na"


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_settings_that_change_text_are_applied_and_not_called_exact(kind: str) -> None:
    composed = "Caf\u00e9 "
    decomposed = "Cafe\u0301 "
    texts = [(composed + decomposed) * 20 + " " + ENGLISH]
    nfc = trained(kind, texts, normalization="nfc")
    assert nfc.encode(decomposed) == nfc.encode(composed)
    assert not nfc.exact
    assert nfc.decode(nfc.encode(decomposed)).strip() == "Caf\u00e9"
    lower = trained(kind, texts, lowercase=True)
    assert not lower.exact
    assert lower.decode(lower.encode("THE Cat")) == "the cat"
    assert "NFC" in nfc.description()
    assert "lower-cased" in lower.description()


DIGESTS = """
import sys
sys.path.insert(0, {folder!r})
from glassformer.base.config import TOKENIZER_KINDS
from trained_tokenizers import TEXT, trained
print(*[trained(kind, [TEXT, TEXT[40:900]]).digest for kind in TOKENIZER_KINDS])
"""


@pytest.mark.thorough
def test_training_repeats_to_the_byte_in_other_processes() -> None:
    code = DIGESTS.format(folder=str(Path(__file__).parent))
    seen = set()
    for hash_seed, threads in (("1", "1"), ("2", "4"), ("3", "2")):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "RAYON_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        seen.add(done.stdout)
    assert len(seen) == 1, seen
    assert len(set(done.stdout.split())) == len(TOKENIZER_KINDS)


# Changing one of these breaks every stored token folder; if necessary, raise `layout.FORMAT`.
PINNED = {
    "characters": "2a15dfe01c876a35",
    "graphemes": "a23dbe6dee674d39",
    "bytes": "270d4ca8ed7e7a53",
    "words": "4584b1a2a39d9610",
    "bpe": "a5f9db9b987fe5e5",
    "wordpiece": "7fcca7632018efb1",
}


@pytest.mark.parametrize("kind", PINNED)
def test_the_same_text_gives_the_same_file_in_every_version(kind: str, of_kind: Callable[[str], Tokenizer]) -> None:
    assert of_kind(kind).digest[:16] == PINNED[kind]


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_hugging_face_reads_the_tokenizer_file(kind: str, of_kind: Callable[[str], Tokenizer], tmp_path: Path) -> None:
    tokenizer = of_kind(kind)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    again = Tokenizer.load(path)
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    strange = TEXT + "naïve 漢字\r\n\t  x\u200d\U0001f469\u200d\U0001f680 <0x41> ##a ▁ é \0"
    assert again.encode(strange) == tokenizer.encode(strange)
    assert (again.digest, again.kind, again.exact) == (tokenizer.digest, kind, tokenizer.exact)
    theirs = tokenizers.Tokenizer.from_file(str(path))
    assert theirs.get_vocab_size() == tokenizer.vocab_size
    assert theirs.token_to_id("<|end|>") == tokenizer.end_id
    if kind == "graphemes":
        return
    assert theirs.encode(strange).ids == tokenizer.encode(strange)
    ours = tokenizer.decode(tokenizer.encode(TEXT))
    assert theirs.decode(theirs.encode(TEXT).ids) == ours


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_a_mask_token_comes_last_and_changes_no_other(
    kind: str, of_kind: Callable[[str], Tokenizer], tmp_path: Path
) -> None:
    plain = of_kind(kind)
    text = TEXT + "a <|mask|> b<|end|>"
    config = TokenizerConfig(kind=kind, vocab_size=SIZES.get(kind, 500))
    masked = train_tokenizer(config, [TEXT], mask=True)
    masked.save(tmp_path / "tokenizer.json")
    for tokenizer in (masked, Tokenizer.load(tmp_path / "tokenizer.json")):
        mask = tokenizer.mask_id
        assert mask == plain.vocab_size == tokenizer.vocab_size - 1
        assert (tokenizer.end_id, tokenizer.unknown_id) == (plain.end_id, plain.unknown_id)
        ids = tokenizer.encode(text)
        assert ids == plain.encode(text)
        assert mask not in ids
        assert tokenizer.decode([mask, *ids[:9], mask, *ids[9:]]) == plain.decode(ids)
        assert (tokenizer.token_text(mask), tokenizer.token_bytes(mask)) == ("<|mask|>", b"")
    assert plain.mask_id is None
    assert masked.digest != plain.digest
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert (theirs.token_to_id("<|mask|>"), theirs.get_vocab_size()) == (masked.mask_id, masked.vocab_size)
    assert theirs.decode([masked.mask_id]) == ""
    with pytest.raises(GlassError, match="outside the vocabulary"):
        masked.decode([masked.vocab_size])


def test_damaged_and_foreign_files_are_refused(of_kind: Callable[[str], Tokenizer], tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    of_kind("bpe").save(path)
    good = path.read_text(encoding="utf-8")
    document = json.loads(good)
    foreign = {**document, "model": {k: v for k, v in document["model"].items() if k != "glassformer"}}
    altered = good.replace('"the"', '"hte"', 1)
    assert altered != good or "Ġ" in good
    newer = json.loads(good)
    newer["model"]["glassformer"]["format"] = 99
    bad = {
        "damaged": [good[: len(good) // 2], "", "{" * 100_000 + "}", "[" * 100_000],
        "not written by glassformer": [json.dumps(foreign), "[]", "{}", "3", '{"model": 3}'],
        "altered": [good.replace("false", "true", 1)],
        "format 99": [json.dumps(newer)],
    }
    for problem, contents in bad.items():
        for content in contents:
            path.write_text(content, encoding="utf-8")
            with pytest.raises(GlassError, match=problem):
                Tokenizer.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GlassError, match="damaged"):
        Tokenizer.load(path)
    with pytest.raises(GlassError, match="cannot be read"):
        Tokenizer.load(tmp_path / "nothing.json")


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_no_text_is_refused(kind: str) -> None:
    for texts in ([], ["", ""]):
        with pytest.raises(GlassError, match="no text"):
            trained(kind, texts)


@pytest.mark.parametrize(
    ("kind", "size", "least"),
    [
        ("characters", 2, 3),
        ("graphemes", 2, 3),
        ("words", 1, 3),
        ("bpe", 256, 257),
        ("wordpiece", 9, 0),
        ("unigram", 280, 0),
    ],
)
def test_too_small_a_vocabulary_is_refused_with_the_minimum(kind: str, size: int, least: int) -> None:
    with pytest.raises(GlassError, match="too small") as caught:
        trained(kind, vocab_size=size)
    named = int(caught.value.remedy.split(" to ")[1].split()[0])
    assert named == (least or named) > size
    assert trained(kind, vocab_size=named).vocab_size <= named


def test_wordpiece_needs_a_word() -> None:
    with pytest.raises(GlassError, match="no words"):
        trained("wordpiece", [" \n\t "])
    for kind in ("characters", "graphemes", "bytes", "words", "bpe"):
        trained(kind, [" \n\t "])


def test_min_count_above_every_count_is_refused() -> None:
    for kind in ("characters", "graphemes", "words"):
        with pytest.raises(GlassError, match="min_count"):
            trained(kind, ["abc"], min_count=9)


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_lone_surrogates_are_refused(kind: str, of_kind: Callable[[str], Tokenizer]) -> None:
    with pytest.raises(GlassError, match=r"U\+D800, at character 4"):
        of_kind(kind).encode("The \ud800 cat")
    with pytest.raises(GlassError, match="surrogate"):
        of_kind(kind).encode_many(["fine", "\udfff"])
    if kind != "bytes":
        with pytest.raises(GlassError, match="surrogate"):
            trained(kind, ["The \ud800 cat"])


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_ids_outside_the_vocabulary_are_refused(kind: str, of_kind: Callable[[str], Tokenizer]) -> None:
    tokenizer = of_kind(kind)
    for id in (-1, tokenizer.vocab_size):
        for use in (lambda i: tokenizer.decode([0, i]), tokenizer.token_bytes, tokenizer.token_text):
            with pytest.raises(GlassError, match="outside the vocabulary"):
                use(id)


def test_without_sentencepiece_the_remedy_is_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(GlassError) as caught:
        trained("unigram")
    assert caught.value.remedy == install_command("tok")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_texts_longer_than_a_batch_and_without_spaces(kind: str, of_kind: Callable[[str], Tokenizer]) -> None:
    tokenizer = of_kind(kind)
    for text in (TEXT * 150, "ab" * 60_000, " " * 50_000, "\n" * 50_000, "-" * 50_000):
        ids = tokenizer.encode(text)
        if tokenizer.exact:
            assert tokenizer.decode(ids) == text
        if kind in ("words", "bpe", "wordpiece", "unigram"):
            whole = tokenizer._hf.encode(text, add_special_tokens=False).ids
            assert ids == whole


def test_the_text_sample_is_bounded_even_and_repeatable() -> None:
    texts = [f"{number:06d} ".ljust(500, "x") + "\n" for number in range(2000)]
    limit = 200_000
    drawn = draw(texts, limit, seed=0)
    numbers = [int(text[:6]) for text in drawn]
    assert numbers == sorted(numbers)
    assert limit - 2 * 700 < sum(len(text) + OVERHEAD for text in drawn) <= limit
    tenths = [sum(1 for number in numbers if number // 200 == tenth) for tenth in range(10)]
    assert min(tenths) > 0.5 * len(numbers) / 10
    assert max(tenths) < 1.6 * len(numbers) / 10
    assert draw(iter(texts), limit, seed=0) == drawn
    assert draw(texts, limit, seed=1) != drawn
    assert set(draw(texts, limit // 3, seed=0)) < set(drawn)
    assert "".join(draw(texts, 10**7, seed=5)) == "".join(texts)


def test_the_text_sample_reads_long_texts_as_a_stream() -> None:
    drawn = draw(["word " * 10_000, "y" * 200_000], 10**7, seed=0)
    assert "".join(drawn) == "word " * 10_000 + "y" * 200_000
    assert max(map(len, drawn)) <= 16 * BLOCK
    assert all(block.startswith((" ", "w")) for block in drawn[:10])


@pytest.mark.thorough
def test_the_text_sample_respects_its_memory_limit() -> None:
    texts = ("x" * 100 + f" {number}\n" for number in range(200_000))
    tracemalloc.start()
    try:
        drawn = draw(texts, 100_000, seed=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(drawn) > 300
    assert peak < 400_000


@pytest.mark.thorough
@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@pytest.mark.parametrize("name", ["bangla/tagore.txt", "shakespeare/input.txt"])
def test_real_text(kind: str, name: str) -> None:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"real text is not at {path}")
    text = path.read_bytes()[:400_000].decode("utf-8", "ignore")
    tokenizer = trained(kind, [text], vocab_size=30_000 if kind == "words" else 1500)
    ids = tokenizer.encode(text)
    back = tokenizer.decode(ids)
    if kind == "wordpiece":
        assert "".join(back.split()) == "".join(text.split())
    else:
        assert back == text
    expected = {"characters": (1, 1), "graphemes": (0.5, 1), "bytes": (1, 3), "words": (0.15, 0.3)}
    low, high = expected.get(kind, (0.2, 0.5))
    assert low <= len(ids) / len(text) <= high


COMPOSED = "সম\u09df যা\u09df, হ\u09dfতো। "  # NFC writes U+09DF as U+09AF U+09BC
DECOMPOSED = normalize("NFC", COMPOSED)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "characters", "words", "graphemes", "wordpiece"])
def test_texts_in_another_unicode_form_are_said(kind: str) -> None:
    assert DECOMPOSED != COMPOSED
    config = TokenizerConfig(kind=kind, vocab_size=400)  # type: ignore[arg-type]
    for known, written, pair in (
        (COMPOSED, DECOMPOSED, ("\u09af\u09bc", "\u09df")),
        (DECOMPOSED, COMPOSED, ("\u09df", "\u09af\u09bc")),
        ("un café noir, ", normalize("NFD", "un café noir"), ("e\u0301", "\u00e9")),
        (normalize("NFD", "un café noir, "), "un café noir", ("\u00e9", "e\u0301")),
    ):
        tokenizer = train_tokenizer(config, [known * 30])
        assert list(other_forms(tokenizer, written).values()) == [pair]
        assert other_forms(tokenizer, known) == {}
        notes = symbol_notes(tokenizer, ["plain", written])
        assert "the text has another Unicode form than the tokenizer's text" in notes[0]
        normalizing = train_tokenizer(config.replace(normalization="nfc"), [known * 30])
        assert other_forms(normalizing, written) == other_forms(normalizing, known) == {}
    notes = symbol_notes(train_tokenizer(config, [COMPOSED + DECOMPOSED]), [COMPOSED, DECOMPOSED])
    assert all("Unicode form" not in note for note in notes)


def test_the_recipe_for_bangla_reads_typed_bangla(bangla: str) -> None:
    """The text has U+09DF, which keyboards write as U+09AF U+09BC; both have the same tokens, and none is unknown."""
    settings = load_recipe("bangla-slm").settings["tokenizer"]
    assert "\u09df" in bangla
    typed = normalize("NFC", bangla[:5000])
    assert "\u09df" not in typed
    for kind in ("unigram", "bpe"):
        tokenizer = train_tokenizer(TokenizerConfig(**{**settings, "kind": kind, "vocab_size": 500}), [bangla])
        ids = tokenizer.encode(typed)
        assert ids == tokenizer.encode(bangla[:5000])
        assert tokenizer.unknown_id is None or tokenizer.unknown_id not in ids
        assert tokenizer.decode(ids).strip() == typed.strip()


@pytest.fixture
def bangla() -> str:
    """Return the beginning of a Bangla text, if it is on this machine."""
    path = DATA / "bangla" / "tagore.txt"
    if not path.exists():
        pytest.skip(f"{path} is missing")
    with path.open(encoding="utf-8") as file:
        return file.read(60_000)
