"""Prepared text is made once, found again, made again when anything changes, and never incomplete."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from glassformer.base.config import DataConfig, TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.text import encode
from glassformer.text.prepare import Prepared, open_prepared, prepare
from glassformer.text.records import RECORD_KINDS
from glassformer.text.store import DamagedStoreError, StoreWriter, TokenStore

LM = RECORD_KINDS["lm"]
MASKED = RECORD_KINDS["masked"]
TEXT = "".join(f"Line {number}: the quick brown fox, ক্ষুদ্র {number * number} নদী.\r\n" for number in range(300))
CHARACTERS = TokenizerConfig(kind="characters")
BPE = TokenizerConfig(kind="bpe", vocab_size=400)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode("utf-8"))
    return path


def whole_text(prepared: Prepared) -> str:
    return "".join(
        text
        for store in (prepared.train.source, prepared.validation.source)
        for text in store.iter_text(prepared.tokenizer)
    )


@pytest.mark.parametrize("kind", ["characters", "graphemes", "bytes", "bpe", "unigram", "words"])
def test_stores_contain_the_text(kind: Any, source: Path, tmp_path: Path) -> None:
    data = DataConfig(source=str(source), validation_fraction=0.2)
    made = prepare(LM, data, TokenizerConfig(kind=kind, vocab_size=400), tmp_path / "cache")
    held = TEXT[int(len(TEXT) * 0.8) :]
    train = "".join(made.train.source.iter_text(made.tokenizer))
    validation = "".join(made.validation.source.iter_text(made.tokenizer, chunk_tokens=97))
    if kind in ("bytes", "bpe", "unigram"):
        assert (train, validation) == (TEXT[: -len(held)], held)
    elif kind != "words":  # the validation split may hold symbols that training never saw
        assert train == TEXT[: -len(held)]
    assert made.tokenizer.encode(held) == made.validation.source.tokens[:-1].tolist()
    for store, text in ((made.train.source, TEXT[: -len(held)]), (made.validation.source, held)):
        assert store.characters == len(text)
        assert store.bytes == len(text.encode("utf-8"))
        assert store.tokens[-1] == made.tokenizer.end_id
        assert store.document_ends.tolist() == [len(store)]
        assert store.tokenizer_digest == made.tokenizer.digest
        store.verify()


def test_layout_on_disk_is_raw_ids_and_ends(source: Path, tmp_path: Path) -> None:
    made = prepare(LM, DataConfig(source=str(source), document="line"), BPE, tmp_path / "cache")
    ids = np.fromfile(made.folder / "train.ds", dtype="<u2")
    ends = np.fromfile(made.folder / "train.ds.index", dtype="<u8")
    documents = TEXT.split("\r\n")[: len(ends)]
    expected = [[*made.tokenizer.encode(line), made.tokenizer.end_id] for line in documents]
    assert ids.tolist() == [id for document in expected for id in document]
    assert np.diff(ends, prepend=0).tolist() == [len(document) for document in expected]
    assert isinstance(made.train.source.tokens, np.memmap)
    assert json.loads((made.folder / "train.json").read_text("utf-8"))["dtype"] == "uint16"
    assert "\n".join(documents) == "".join(made.train.source.iter_text(made.tokenizer))


def test_large_vocabularies_use_four_bytes_per_token(tmp_path: Path) -> None:
    class Large:
        vocab_size = 70_000
        end_id = 69_999
        unknown_id = None
        digest = "d"

    writer = StoreWriter(tmp_path / "x", Large())  # type: ignore[arg-type]
    writer.add(["ab", "c"], [[65_537, 3], [1]], [True, True])
    writer.close()
    store = TokenStore.open(tmp_path / "x")
    assert store.tokens.tolist() == [65_537, 3, 69_999, 1, 69_999]
    assert store.tokens.dtype == np.dtype("<u4")
    assert store.document_ends.tolist() == [3, 5]


def test_the_tokenizer_is_trained_only_on_the_training_part(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(("abc " * 100 + "xyz!" * 10).encode())
    made = prepare(LM, DataConfig(source=str(tmp_path / "t.txt"), validation_limit=40), CHARACTERS, tmp_path / "cache")
    assert made.tokenizer.vocab_size == len("abc ") + 2
    assert made.validation.source.unknown == 40
    assert any("100.000% unknown" in note for note in made.notes)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["bpe", "characters", "graphemes", "words", "wordpiece", "unigram"])
def test_long_documents_are_encoded_as_if_whole(
    kind: Any, real_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "PIECE", 3001)
    monkeypatch.setattr(encode, "AHEAD", 500)
    for name in ("shakespeare/input.txt", "bangla/tagore.txt"):
        text = (real_text / name).read_text(encoding="utf-8")[:60_000]
        (tmp_path / "t.txt").write_bytes(text.encode())
        config = TokenizerConfig(kind=kind, vocab_size=800)
        made = prepare(LM, DataConfig(source=str(tmp_path / "t.txt"), validation_limit=100), config, tmp_path / "cache")
        assert made.train.source.tokens[:-1].tolist() == made.tokenizer.encode(text[: made.train.source.characters])


@pytest.mark.thorough
def test_real_shakespeare_in_pieces_equals_whole(real_text: Path, tmp_path: Path) -> None:
    path = real_text / "shakespeare" / "input.txt"
    made = prepare(LM, DataConfig(source=str(path)), BPE, tmp_path)
    text = path.read_text(encoding="utf-8")
    assert made.train.source.tokens[:-1].tolist() == made.tokenizer.encode(text[:1_003_854])
    assert whole_text(made) == text


def test_a_text_without_safe_splits_is_split_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "PIECE", 50)
    monkeypatch.setattr(encode, "AHEAD", 10)
    monkeypatch.setattr(encode, "UNCUT", 200)
    (tmp_path / "t.txt").write_bytes(b"ab" * 1000)
    monkeypatch.setattr("glassformer.text.reading.BLOCK", 64)
    made = prepare(LM, DataConfig(source=str(tmp_path / "t.txt")), BPE, tmp_path / "cache")
    assert whole_text(made) == "ab" * 1000
    assert "cuts in very long words" in made.notes[-1]


def test_a_mask_token_makes_another_folder_with_the_same_ids(source: Path, tmp_path: Path) -> None:
    data = DataConfig(source=str(source))
    plain = prepare(LM, data, CHARACTERS, tmp_path / "cache")
    masked = prepare(MASKED, data, CHARACTERS, tmp_path / "cache")
    assert plain.folder != masked.folder
    assert masked.tokenizer.mask_id == plain.tokenizer.vocab_size
    assert open_prepared(MASKED, masked.folder).tokenizer.mask_id == masked.tokenizer.mask_id
    assert masked.train.source.tokens.tolist() == plain.train.source.tokens.tolist()
    assert prepare(LM, data, CHARACTERS, tmp_path / "cache").tokenizer.mask_id is None
    assert prepare(MASKED, data, CHARACTERS, tmp_path / "cache").reused


def test_prepared_data_is_reused_until_something_changes(source: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    base = DataConfig(source=str(source), document="line")

    def made(data: DataConfig = base, tokenizer: TokenizerConfig = CHARACTERS) -> bool:
        return not prepare(LM, data, tokenizer, cache).reused

    first = prepare(LM, base, CHARACTERS, cache)
    assert not first.reused
    again = prepare(LM, base, CHARACTERS, cache)
    assert again.reused
    assert again.folder == first.folder
    assert again.notes == first.notes
    assert not made(base.replace(windows="documents"))  # rows are cut later
    assert not made(base.replace(seed=5))  # draws no random numbers here
    source.rename(tmp_path / "moved.txt")
    assert not made(base.replace(source=str(tmp_path / "moved.txt")))  # the same content
    (tmp_path / "moved.txt").rename(source)
    for changes in (
        {"document": "paragraph"},
        {"min_words": 8},
        {"max_words": 9},
        {"split": "random"},
        {"validation_fraction": 0.2},
        {"validation_limit": 500},
        {"encoding": "utf-8"},
    ):
        assert made(base.replace(**changes)), changes
    random = base.replace(split="random")
    assert made(random.replace(seed=5))
    assert made(base, TokenizerConfig(kind="characters", min_count=2))
    assert made(base, BPE)
    source.write_bytes(TEXT.replace("fox", "fax", 1).encode())
    assert made()
    assert made(DataConfig(source="copy", size=20))
    assert made(DataConfig(source="copy", size=21))
    assert not made(DataConfig(source="copy", size=21))


def test_prepared_data_opens_without_the_source(source: Path, tmp_path: Path) -> None:
    made = prepare(LM, DataConfig(source=str(source)), CHARACTERS, tmp_path / "cache")
    source.unlink()
    opened = open_prepared(LM, made.folder)
    assert opened.reused
    assert opened.text_hash == made.text_hash
    assert opened.tokenizer.digest == made.tokenizer.digest
    assert whole_text(opened) == TEXT


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


DAMAGES: dict[str, Callable[[Path], object]] = {"unlink": Path.unlink, "cut": cut_short, "flip": flip}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "name", ["train.ds", "train.ds.index", "validation.ds", "train.json", "tokenizer.json", "prepared.json"]
)
def test_damage_is_found_and_repaired(name: str, damage: str, source: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    made = prepare(LM, DataConfig(source=str(source)), CHARACTERS, cache)
    good = {path.name: path.read_bytes() for path in made.folder.iterdir()}
    DAMAGES[damage](made.folder / name)
    if damage != "flip":
        with pytest.raises(DamagedStoreError, match="Prepare the text again"):
            open_prepared(LM, made.folder)
    repaired = prepare(LM, DataConfig(source=str(source)), CHARACTERS, cache)
    if name != "prepared.json" or damage != "flip":  # a changed letter in a note does no harm
        assert not repaired.reused
        assert {path.name: path.read_bytes() for path in made.folder.iterdir()} == good
    assert [path.name for path in cache.iterdir()] == [made.folder.name]


@pytest.mark.parametrize("at", ["train.ds", "validation.ds.index", "train.json", "prepared.json", "tokenizer.json"])
def test_a_full_disk_leaves_nothing_incomplete(
    at: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    before = prepare(LM, DataConfig(source=str(source)), BPE, cache)
    original = Path.open

    def opened(path: Path, *args: Any, **options: Any) -> IO[Any]:
        file = original(path, *args, **options)
        if path.name == at and "w" in (args or (options.get("mode", "r"),))[0]:

            def refuse(_: object) -> int:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))

            class Full:
                write = staticmethod(refuse)

                def __enter__(self) -> Full:
                    return self

                def __exit__(self, *_: object) -> None:
                    file.close()

                close = staticmethod(file.close)

            return Full()  # type: ignore[return-value]
        return file

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(GlassError, match="disk is full") as caught:
        prepare(LM, DataConfig(source=str(source)), CHARACTERS, cache)
    assert "Free some space" in caught.value.remedy
    assert [path.name for path in cache.iterdir()] == [before.folder.name]


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no POSIX permissions")
def test_missing_permissions_are_reported(source: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        (tmp_path / "cache").write_text("a file where the folder should be", encoding="utf-8")
        with pytest.raises(GlassError, match=r"cannot (use|write)"):
            prepare(LM, DataConfig(source=str(source)), CHARACTERS, tmp_path / "cache")
        return
    (tmp_path / "cache").mkdir(mode=0o500)
    with pytest.raises(GlassError, match="no permission"):
        prepare(LM, DataConfig(source=str(source)), CHARACTERS, tmp_path / "cache")


def test_a_forbidden_folder_is_explained(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "cache"))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(GlassError, match="no permission to use"):
        prepare(LM, DataConfig(source=str(source)), CHARACTERS, tmp_path / "cache")


def _prepare_in_process(source: str, cache: str, results: Any) -> None:
    made = prepare(LM, DataConfig(source=source), TokenizerConfig(kind="bpe", vocab_size=400), Path(cache))
    made.train.source.verify()
    results.put((whole_text(made) == TEXT, str(made.folder)))


@pytest.mark.thorough
def test_several_processes_can_prepare_at_once(source: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [
        context.Process(target=_prepare_in_process, args=(str(source), str(tmp_path / "cache"), results))
        for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    found = {results.get(timeout=60) for _ in workers}
    for worker in workers:
        worker.join()
    assert {ok for ok, _ in found} == {True}
    assert len({folder for _, folder in found}) == 1
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_the_result_of_a_faster_process_is_kept(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process finishes between our check and our rename: its folder is kept, ours is deleted."""
    from glassformer.text import prepare as module

    first = prepare(LM, DataConfig(source=str(source)), CHARACTERS, tmp_path / "cache")
    stamp = (first.folder / "prepared.json").stat().st_mtime_ns
    monkeypatch.setattr(module, "reusable", lambda folder, checked: None)  # not found at the first check
    prepare(LM, DataConfig(source=str(source)), CHARACTERS, tmp_path / "cache")
    assert (first.folder / "prepared.json").stat().st_mtime_ns == stamp
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [first.folder.name]


def test_leftovers_of_killed_processes_are_removed(source: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for name, age in (("old", 2 * 24 * 3600), ("young", 60)):
        folder = cache / f".building-{name}"
        folder.mkdir(parents=True)
        (folder / "train.ds").write_bytes(b"half")
        for path in (folder / "train.ds", folder):
            os.utime(path, (time.time() - age,) * 2)
    made = prepare(LM, DataConfig(source=str(source)), CHARACTERS, cache)
    assert {path.name for path in cache.iterdir()} == {made.folder.name, ".building-young"}


def test_notes_and_progress_are_reported(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(("twice the same\n" * 2 + "a b\n" + "other words, more\n" * 3).encode("utf-16"))
    said: list[str] = []
    data = DataConfig(source=str(tmp_path / "t.txt"), document="line", min_words=3, validation_fraction=0.3)
    made = prepare(LM, data, CHARACTERS, tmp_path / "cache", said.append)
    notes = "; ".join(made.notes)
    for words in (
        "UTF-16 LE with a byte order mark",
        "5 documents, 79 characters",
        "left out 1 document with fewer than 3 words",
        "3 documents are duplicates",
        "1 validation document also occurs in the training split",
        "per character",
        "0.000% unknown",
        "characters, ",
    ):
        assert words in notes, (words, notes)
    assert said == ["counting documents", "training the tokenizer (characters)"]


def test_random_splits_share_no_document(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes("".join(f"{n % 40} is a number\n" for n in range(200)).encode())
    data = DataConfig(source=str(tmp_path / "t.txt"), document="line", split="random", seed=3)
    made = prepare(LM, data, BPE, tmp_path / "cache")
    train = set("".join(made.train.source.iter_text(made.tokenizer)).split("\n"))
    held = set("".join(made.validation.source.iter_text(made.tokenizer)).split("\n"))
    assert not train & held
    assert len(train | held) == 40
    assert "160 documents are duplicates" in made.notes
    assert not any("also stand" in note for note in made.notes)


@pytest.mark.parametrize("content", [TEXT.replace("fox", "fax", 1).encode(), b"\xff", b"shorter"])
def test_a_source_that_changes_meanwhile_is_refused(content: bytes, source: Path, tmp_path: Path) -> None:
    def meddle(message: str) -> None:
        if message.startswith("training the tokenizer"):
            source.write_bytes(content)

    with pytest.raises(GlassError, match="changed while it was read"):
        prepare(LM, DataConfig(source=str(source)), CHARACTERS, tmp_path / "cache", meddle)
    assert not (tmp_path / "cache").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize("mask", [0o002, 0o022, 0o077])
def test_the_permissions_of_the_cache_follow_the_umask(mask: int, source: Path, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        made = prepare(LM, DataConfig(source=str(source)), CHARACTERS, tmp_path / "cache").folder
        pairs = tmp_path / "pairs.jsonl"
        rows = [json.dumps({"text": f"a text {number}", "label": "xy"[number % 2]}) for number in range(40)]
        pairs.write_text("\n".join(rows), encoding="utf-8")
        data = DataConfig(source=str(pairs), split="random")
        examples = prepare(RECORD_KINDS["classify"], data, CHARACTERS, tmp_path / "examples").folder
    finally:
        os.umask(before)
    for folder in (made, examples):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o777 & ~mask
        for file in folder.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~mask, file
