"""Input files: each is read exactly, or refused with a two-line error that gives the reason and the remedy."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from glassformer.base.config import DataConfig
from glassformer.base.errors import GlassError
from glassformer.text.documents import MAX_PENDING_CHARACTERS
from glassformer.text.encodings import Encoding, UndecodableError, decode
from glassformer.text.left_out import Tally
from glassformer.text.records import RECORD_KINDS
from glassformer.text.source import open_source
from glassformer.text.survey import kept_pieces, survey

LM = RECORD_KINDS["lm"]
FRENCH = "Là-bas, l’été dernier, un garçon naïf a mangé une crêpe à l’œuf — “délicieux”, dit-il.\r\nÇa alors !\n"
GERMAN = "Über den Wölken\r\nmuß die „Freiheit“ wohl grenzenlos sein. Süße Grüße!\r\n" * 3
RUSSIAN = "Мой дядя самых честных правил, когда не в шутку занемог.\n"
POLISH = "Zażółć gęślą jaźń, a potem mów o świcie, że łąka jest piękna.\n" * 3
TURKISH = "Işık hızı yaklaşık üç yüz bin kilometre; şimdi ağaç gölgesi ısındı.\n" * 3
BANGLA = "ক্ষুদ্র নদী\nবিশ্ববিদ্যালয়ের পথে\n"
ROWS = [{"id": 1, "text": "a first row of words"}, {"id": 2, "text": "and then\r\na second one"}]
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)
CSV = 'id,text\r\n1,a first row of words\r\n2,"and then\r\na second one"\r\n'


def read(source: str, cache: Path, **settings: object) -> tuple[list[str], list[str]]:
    """Return the kept documents, each joined from its pieces, and the notes."""
    data = DataConfig(source=source, **settings)  # type: ignore[arg-type]
    with open_source(LM, data, cache) as opened:
        found = survey(opened)
        documents: list[str] = []
        for piece in kept_pieces(opened, found, marks=False):
            documents = (
                [*documents, piece.texts[0]] if piece.first else [*documents[:-1], documents[-1] + piece.texts[0]]
            )
        notes = [*opened.notes, *(f"{count} {why}" for why, count in found.left_out.items())]
    assert found.records == len(documents)
    assert found.characters == sum(map(len, documents))
    return documents, notes


READABLE: dict[str, tuple[bytes, dict[str, object], list[str], str]] = {
    # file name: (bytes, settings, documents, words of a note)
    "plain.txt": (b"one line\nand two\n", {}, ["one line\nand two\n"], "UTF-8"),
    "mark.txt": (b"\xef\xbb\xbf" + BANGLA.encode(), {}, [BANGLA], "UTF-8 with a byte order mark"),
    "no-suffix": ("emoji 👩‍👩‍👧 é".encode(), {}, ["emoji 👩‍👩‍👧 é"], "UTF-8"),
    "little.txt": (("\ufeff" + BANGLA).encode("utf-16-le"), {}, [BANGLA], "UTF-16 LE with a byte order mark"),
    "big.txt": (("\ufeff" + FRENCH).encode("utf-16-be"), {}, [FRENCH], "UTF-16 BE with a byte order mark"),
    "little-unmarked.txt": (BANGLA.encode("utf-16-le"), {}, [BANGLA], "UTF-16 LE"),
    "big-unmarked.txt": ((FRENCH + "👍").encode("utf-16-be"), {}, [FRENCH + "👍"], "UTF-16 BE"),
    "french.txt": (FRENCH.encode("cp1252"), {}, [FRENCH], "Windows-1252"),
    "german.txt": (GERMAN.encode("cp1252"), {}, [GERMAN], "Windows-1252"),
    "latin1.txt": (
        "El niño comió piñones. ¿Qué tal? ¡Olé!".encode("latin-1"),
        {},
        ["El niño comió piñones. ¿Qué tal? ¡Olé!"],
        "1252",
    ),
    "packed.txt.gz": (gzip.compress(BANGLA.encode(), mtime=0), {}, [BANGLA], "UTF-8"),
    "packed-without-suffix": (gzip.compress(b"surprise", mtime=0), {}, ["surprise"], "UTF-8"),
    "old-mac.txt": (b"one\rtwo\r", {"document": "line"}, ["one", "two"], "UTF-8"),
    "lines.txt": (b"a b\r\n\r\n  c\n \nd", {"document": "line"}, ["a b", "  c", "d"], "UTF-8"),
    "odd-lines.txt": ("a\u2028b\x0bc\x85\nd".encode(), {"document": "line"}, ["a\u2028b\x0bc\x85", "d"], "UTF-8"),
    "paragraphs.txt": (b"\n\n  a\r\nb\r\n \t\r\n\r\nc\n\n", {"document": "paragraph"}, ["  a\r\nb", "c"], "UTF-8"),
    "short.txt": (
        b"a\nb c\nd e f\ng h i j\n",
        {"document": "line", "min_words": 2, "max_words": 3},
        ["b c", "d e f"],
        "1 documents with fewer than 2 words",
    ),
    "t.csv": (CSV.encode(), {"column": "text"}, [str(row["text"]) for row in ROWS], "column 'text'"),
    "auto.csv.gz": (
        gzip.compress(CSV.encode(), mtime=0),
        {},
        [str(row["text"]) for row in ROWS],
        "the only one that reads like text",
    ),
    "semicolon.csv": (b"id;text\n1;so much, so far and more\n", {}, ["so much, so far and more"], "'text'"),
    "t.jsonl": (JSONL.encode(), {"column": "text"}, [str(row["text"]) for row in ROWS], "column 'text'"),
    "auto.jsonl.gz": (gzip.compress(JSONL.encode(), mtime=0), {}, [str(row["text"]) for row in ROWS], "the only one"),
    "gaps.jsonl": (
        b'{"text": "x y z"}\n\n{"text": null}\n{"other": 1}\n',
        {"column": "text"},
        ["x y z"],
        "2 rows without text",
    ),
    "head.tsv": (b'en\tbn\nshe said "go on\tX\n', {"column": "en"}, ['she said "go on'], "'en'"),
    "headless.tsv": ("Go.\tযাও।\nRun!\tপালাও!\n".encode(), {"column": "2"}, ["যাও।", "পালাও!"], "'2'"),
    "headless.csv": (
        b'"3","A title, longer","Some text of the news."\n"4","B","More of it."\n',
        {"column": "3"},
        ["Some text of the news.", "More of it."],
        "'3'",
    ),
    "utf16.csv": (CSV.encode("utf-16"), {"column": "text"}, [str(row["text"]) for row in ROWS], "UTF-16"),
}


@pytest.mark.parametrize("name", READABLE)
def test_every_file_is_read_exactly(name: str, tmp_path: Path) -> None:
    content, settings, expected, said = READABLE[name]
    path = tmp_path / name
    path.write_bytes(content)
    documents, notes = read(str(path), tmp_path, **settings)
    assert documents == expected
    assert said in "; ".join(notes)


REFUSED: dict[str, tuple[bytes, dict[str, object], str, str]] = {
    # file name: (bytes, settings, words of the problem, words of the remedy)
    "empty.txt": (b"", {}, "contains no text (0 bytes)", "Give a source with some text"),
    "empty.txt.gz": (gzip.compress(b"", mtime=0), {}, "contains no text (0 bytes)", "some text"),
    "only-mark.txt": (b"\xef\xbb\xbf", {}, "contains no text", "some text"),
    "white.txt": (b" \n\t\n", {}, "left out 1 empty document", "some text"),
    "strict.txt": (
        b"\n\na b\n",
        {"document": "line", "min_words": 9},
        "left out 1 document with fewer than 9",
        "lower",
    ),
    "image.png": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01", {}, "image/png", "UTF-8 .txt"),
    "paper.pdf": (b"%PDF-1.7 ...", {}, "application/pdf", "UTF-8 .txt"),
    "book.docx": (b"PK\x03\x04aaaa", {}, "application/zip", "UTF-8 .txt"),
    "numbers.bin": (bytes(range(1, 100)) + b"\0" + bytes(range(256)), {}, "NUL byte at offset 99", "text file"),
    "ids.ds": (bytes(n % 251 for n in range(4000)), {}, "NUL byte at offset 0", "text file"),
    "late-nul.txt": (b"x" * 3_000_000 + b"\0yz", {}, "NUL byte at offset 3000000", "text file"),
    "utf32.txt": ("text".encode("utf-32"), {}, "UTF-32", "UTF-8"),
    "russian.txt": (("ab " + RUSSIAN).encode("cp1251"), {}, "not valid UTF-8: byte 0xCC at offset 3", "data.encoding"),
    "polish.txt": (POLISH.encode("cp1250"), {}, "byte 0xBF at offset 2", "data.encoding"),
    "turkish.txt": (TURKISH.encode("cp1254"), {}, "byte 0xFE at offset 1", "data.encoding"),
    "dos.txt": ("Le café de la côte est très bon, déjà.".encode("cp437"), {}, "byte 0x82 at offset 6", "data.encoding"),
    "mac.txt": ("Le café de la côte est très bon, déjà.".encode("mac-roman"), {}, "byte 0x8E at offset 6", "encoding"),
    "japanese.txt": ("これは日本語の文章です。".encode("shift-jis"), {}, "byte 0x82 at offset 0", "data.encoding"),
    "damaged.txt": (
        FRENCH.encode()[:60] + b"\xe9" + FRENCH.encode()[60:],
        {},
        "byte 0xE9 at offset 60",
        "data.encoding",
    ),
    "mixed.txt": (
        "cafe 語\n".encode() + FRENCH.encode("cp1252") * 20,
        {},
        "not valid UTF-8: byte 0xE0 at offset 10",
        "data.encoding",
    ),
    "mixed-late.txt": (
        FRENCH.encode("cp1252") * 20 + "un café\n".encode(),
        {},
        "not valid UTF-8: byte 0xE0 at offset 1",
        "data.encoding",
    ),
    "cut.txt": ("naïve é".encode()[:-1], {}, "byte 0xC3 at offset 7", "data.encoding"),
    "insisted.txt": (FRENCH.encode("cp1252"), {"encoding": "utf-8"}, "byte 0xE0 at offset 1", "Correct that byte"),
    "undefined.txt": (b"abc\x81", {"encoding": "windows-1252"}, "byte 0x81 at offset 3", "Correct that byte"),
    "odd.txt": (b"\xff\xfea\0b", {}, "is not UTF-16 LE: byte 0x62 at offset 4", "Correct that byte"),
    "lone.txt": (b"\xff\xfea\0\0\xd8b\0", {}, "byte 0x00 at offset 4", "Correct that byte"),
    "not-gzip.gz": (b"plain text", {}, "is not a gzip file", "rename"),
    "cut.txt.gz": (gzip.compress(BANGLA.encode() * 9, mtime=0)[:-12], {}, "damaged gzip", "again"),
    "missing.csv": (CSV.encode(), {"column": "txet"}, "no column 'txet'; it has id, text", "Did you mean text?"),
    "missing.jsonl": (JSONL.encode(), {"column": "body"}, "no column 'body'; it has id, text", "Choose one of"),
    "headless.csv": (
        b"Go on.,Ga door.\nRun!,Ren!\n",
        {"column": "en"},
        "1: 'Go on.', 2: 'Ga door.'",
        "column number: 1 to 2",
    ),
    "two.csv": (b"a,b\nx y z t,u v w q\n", {}, "columns a, b all contain text", "data.column"),
    "none.csv": (b"id,size\n1,2\n3,4\n", {}, "no column reads like text", "data.column"),
    "broken.jsonl": (b'{"text": "a"}\n{"text": \n', {"column": "text"}, "line 2 of broken.jsonl is not JSON", "line"),
    "list.jsonl": (b'["a"]\n', {}, "contains a value of type list", '"text"'),
    "half.jsonl": (b'{"text": "\\ud83d x"}\n', {"column": "text"}, "a lone surrogate (\\ud83d)", "both"),
    "plain.txt": (b"some text", {"column": "text"}, "plain.txt is plain text", "Leave data.column out"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unreadable_files_are_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    content, settings, problem, remedy = REFUSED[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(GlassError) as caught:
        read(str(path), tmp_path, **settings)
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("source", "problem", "remedy"),
    [
        ("storys", "storys does not exist", "Did you mean stories?"),
        ("{}/imput.txt", "imput.txt does not exist", "input.txt?"),
        ("{}/nowhere/input.txt", "does not exist", "There is no folder"),
        ("{}/zzzzzz", "does not exist", "a generated corpus (addition"),
        ("", "is not a path", "Give a file"),
        ("{}/hollow", "contains no files", "Put text files"),
    ],
)
def test_a_missing_source_is_reported(source: str, problem: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "input.txt").write_text("x", encoding="utf-8")
    (tmp_path / "hollow").mkdir()
    with pytest.raises(GlassError) as caught:
        read(source.format(tmp_path), tmp_path)
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy


def test_a_folder_is_read_in_order_and_skipped_files_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    for name, content in {
        "b.txt": b"second",
        "a/z.md": FRENCH.encode("cp1252"),
        "a/b/c.txt.gz": gzip.compress(b"first", mtime=0),
        "a.txt": b"after folder a",
        "photo.jpg": b"\xff\xd8\xff\xe0....",
        "weights.bin": b"ab\0cd",
        "table.csv": CSV.encode(),
        ".hidden/x.txt": b"hidden",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    documents, notes = read(str(folder), tmp_path)
    assert documents == ["first", FRENCH, "after folder a", "second"]
    said = "; ".join(notes)
    for word in (
        "UTF-8 (3)",
        "Windows-1252 (1)",
        "left out 3 of 7 files",
        "photo.jpg (image/jpeg)",
        "weights.bin (binary",
        "table.csv (a table",
        "1 hidden",
    ):
        assert word in said
    documents, notes = read(str(folder), tmp_path, column="text")
    assert documents == [row["text"] for row in ROWS]


def test_folder_of_tables_needs_no_column(tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.jsonl").write_text(json.dumps({"text": f"words of shard {number}"}), encoding="utf-8")
    assert read(str(folder), tmp_path)[0] == [f"words of shard {number}" for number in range(3)]


def test_folder_with_undecodable_text_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"fine")
    (folder / "b.txt").write_bytes(RUSSIAN.encode("koi8-r"))
    with pytest.raises(GlassError, match=r"b\.txt is not valid UTF-8: byte 0x"):
        read(str(folder), tmp_path)


OTHER_ENCODINGS = {
    # name of a Python codec: (text, words of the remedy if the encoding is not given)
    "cp1251": (RUSSIAN, "Windows-1251"),
    "koi8-r": (RUSSIAN, "KOI8-R"),
    "cp1250": (POLISH, "Windows-1250"),
    "iso8859-2": (POLISH, "ISO-8859-2"),
    "cp1254": (TURKISH, "Windows-1254"),
    "cp850": ("He went to the café yesterday, and ordered a drink.\n", "cp85"),
    "mac-roman": ("Le café de la côte est très bon, déjà.", "MacRoman"),
    "shift-jis": ("これは日本語の文章です。", "CP932"),
    "gb18030": ("我们今天去看电影吧，天气很好。\n", "GB18030"),
    "big5": ("我們今天去看電影吧，天氣很好。\n", "Big5"),
    "euc-kr": ("한국어 문장입니다. 오늘은 날씨가 좋습니다.", "CP949"),
    "iso-2022-jp": ("これは日本語の文章です。\n", "iso-2022-jp"),
    "hz": ("我们今天去看电影吧，天气很好。\n", "hz"),
    "utf-7": ("これは日本語の文章です。\n", "utf-7"),
    "utf-32": ("four bytes each", "utf-32"),
}


@pytest.mark.parametrize("codec", OTHER_ENCODINGS)
def test_another_encoding_is_refused_with_its_name_and_read_on_request(codec: str, tmp_path: Path) -> None:
    text, named = OTHER_ENCODINGS[codec]
    path = tmp_path / "old.txt"
    path.write_bytes(text.encode(codec))
    with pytest.raises(GlassError) as caught:
        read(str(path), tmp_path)
    assert named in caught.value.remedy
    documents, notes = read(str(path), tmp_path, encoding=codec)
    assert documents == [text]
    assert "bytes, " in notes[0]


@pytest.mark.parametrize("name", ["latin-9000", "base64", "", "\0"])
def test_an_encoding_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="is not the name of an encoding"):
        DataConfig(encoding=name)


def test_a_byte_that_windows_1252_does_not_have_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_bytes((FRENCH * 9).replace("’", "'").encode("latin-1", "ignore") + b"na\xefve \x81 d\xe9j\xe0\n")
    with pytest.raises(GlassError, match="is not valid UTF-8: byte 0xE0 at offset 1"):
        read(str(path), tmp_path)


class FakeInput(io.TextIOWrapper):
    """Standard input piped from `content`."""

    def __init__(self, content: bytes, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(content))
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("content", "settings", "documents"),
    [
        (FRENCH.encode("cp1252"), {}, [FRENCH]),
        (JSONL.encode(), {"column": "text"}, [str(row["text"]) for row in ROWS]),
        (CSV.encode(), {"column": "text"}, [str(row["text"]) for row in ROWS]),
        (b"en\tde\ngo\tgeh\n", {"column": "de"}, ["geh"]),
        (gzip.compress(b"packed", mtime=0), {}, ["packed"]),
    ],
)
def test_standard_input(
    content: bytes, settings: dict[str, object], documents: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", FakeInput(content))
    assert read("-", tmp_path / "cache", **settings)[0] == documents
    assert list((tmp_path / "cache").iterdir()) == []  # the copy is deleted


def test_standard_input_from_a_keyboard_or_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", FakeInput(b"", terminal=True))
    with pytest.raises(GlassError, match="keyboard"):
        read("-", tmp_path)
    monkeypatch.setattr(sys, "stdin", FakeInput(b""))
    with pytest.raises(GlassError, match=r"no text \(0 bytes\)"):
        read("-", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no named pipes")
def test_pipe_is_copied_first(tmp_path: Path) -> None:
    import os
    import threading

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=lambda: pipe.write_bytes(b"through a pipe"), daemon=True).start()
    assert read(str(pipe), tmp_path / "cache")[0] == ["through a pipe"]


def test_a_file_named_like_a_corpus_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stories").write_text("my own stories", encoding="utf-8")
    _, notes = read("stories", tmp_path, size=3)
    assert "stories is taken as the generated corpus" in notes[0]
    assert read("./stories", tmp_path)[0] == ["my own stories"]


def test_generated_corpus_is_repeatable_and_has_its_size(tmp_path: Path) -> None:
    documents, notes = read("copy", tmp_path, size=7, seed=3)
    assert len(documents) == 7
    assert documents == read("copy", tmp_path, size=7, seed=3)[0] != read("copy", tmp_path, size=7, seed=4)[0]
    assert "generated corpus, 7 documents, seed 3" in notes[0]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be", "cp1252"])
def test_decoding_does_not_depend_on_blocks(size: int, codec: str) -> None:
    text = FRENCH if codec == "cp1252" else FRENCH + BANGLA + "👩‍👩‍👧"
    coded = text.encode(codec)
    blocks = [coded[start : start + size] for start in range(0, len(coded), size)]
    assert "".join(decode(iter(blocks), Encoding(codec))) == text
    bad = b"\xff" if codec == "utf-8" else b"\x81" if codec == "cp1252" else b""
    if bad:
        at = len(text[:50].encode(codec))
        broken = coded[:at] + bad + coded[at:]
        with pytest.raises(UndecodableError) as caught:
            list(decode((broken[start : start + size] for start in range(0, len(broken), size)), Encoding(codec)))
        assert caught.value.offset == at


@pytest.mark.parametrize("document", ["file", "paragraph", "line"])
@pytest.mark.parametrize("size", [1, 3, 10, 10_000])
def test_documents_do_not_depend_on_chunks(
    document: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents are the same for any chunks of the text and any limit on the memory of a document."""
    text = "\n\na long line\r\nof two\n \n\n \r\nmore  \n\n\nand a very long last one " + "word " * 50 + "\r\n\r\n"
    path = tmp_path / "t.txt"
    path.write_bytes(text.encode())
    whole, _ = read(str(path), tmp_path, document=document)
    monkeypatch.setattr("glassformer.text.reading.BLOCK", size)
    monkeypatch.setattr("glassformer.text.documents.MAX_PENDING_CHARACTERS", max(10, size // 2))
    assert read(str(path), tmp_path, document=document)[0] == whole
    assert len(whole) == {"file": 1, "paragraph": 3, "line": 4}[document]


@pytest.mark.parametrize("least", range(1, 62))
def test_words_are_counted_across_pieces(least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.txt").write_bytes(b"  one two\n" + b"word " * 57 + b"end ")
    monkeypatch.setattr("glassformer.text.reading.BLOCK", 1 + least % 7)
    if least <= 60:
        assert len(read(str(tmp_path / "t.txt"), tmp_path, min_words=least)[0]) == 1
    else:
        with pytest.raises(GlassError, match="fewer than 61 words"):
            read(str(tmp_path / "t.txt"), tmp_path, min_words=least)


def test_long_line_comes_in_bounded_pieces(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"x" * (3 * MAX_PENDING_CHARACTERS + 11) + b"\nshort")
    data = DataConfig(source=str(tmp_path / "t.txt"), document="line")
    with open_source(LM, data, tmp_path) as source:
        found = list(source.records(Tally()))
    assert max(len(piece.texts[0]) for piece in found) <= MAX_PENDING_CHARACTERS + 2 * (1 << 20)
    assert [piece.number for piece in found if piece.last] == [0, 1]
    assert sum(len(piece.texts[0]) for piece in found) == 3 * MAX_PENDING_CHARACTERS + 11 + 5


def test_a_vanished_or_unreadable_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.txt"
    path.write_text("text", encoding="utf-8")

    def refuse(error: OSError) -> Callable[..., object]:
        def opened(*_: object, **__: object) -> object:
            raise error

        return opened

    for error, said in [
        (PermissionError(13, "Permission denied", str(path)), "no permission"),
        (FileNotFoundError(2, "No such file", str(path)), "cannot use"),
        (OSError(5, "Input/output error", str(path)), "Input/output error"),
    ]:
        monkeypatch.setattr(Path, "open", refuse(error))
        with pytest.raises(GlassError, match=said):
            read(str(path), tmp_path)
