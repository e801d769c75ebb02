"""A shared file, opened from file:// without a network, computes the same results as the library."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Binary
from glassformer.app.server.views import VIEWS
from glassformer.app.share.loading import load_shared
from glassformer.app.share.package import Package
from glassformer.app.share.share import ShareRequest, share_run
from glassformer.app.share.tokenizing import page_tokenizer
from glassformer.base.config import SampleConfig, TokenizerConfig
from glassformer.base.report import finite
from glassformer.runs.opening import OpenedRun
from glassformer.text.tokenizers import train_tokenizer
from tests.browser.shared_models import Case, cases
from tests.parity.written_runs import make_run

pytestmark = pytest.mark.thorough

PASSES = """(models) => models.map(({settings, tensors, data, ids, source}) => {
  const model = glass.model(settings, tensors, data);
  const {encoder, stack, logits} = model.pass(ids, source);
  const weights = {};
  for (const each of [encoder, stack]) for (const part of each?.blocks.flat() ?? []) {
    if (part.attention) weights[part.attention.parameters.site] = part.attention.weights.map((head) => [...head.data]);
  }
  return {logits: [...logits.data], weights};
})"""
BATCH = 72
CUT = """({json, texts}) => {
  const tokenizer = glass.tokenizer(json);
  const names = Array.from({length: tokenizer.size}, (_, id) => tokenizer.text(id));
  return {names, texts: texts.map((text) => [tokenizer.encode(text), tokenizer.decode(tokenizer.encode(text))])};
}"""
LEARNT_FROM = ["the old dog sleeps near the river; it's 7 o'clock.\n\nআমি বাংলায় গান গাই, and Größe too. "] * 20
DIFFICULT = [
    "",
    " ",
    "the old dog",
    "  two  spaces   and three ",
    "tab\tand\r\nline\n\n  ends\n",
    "it's DON'T we'LL I\u017fS you'Re",
    "\u200cZ\u200dW\u200bJ\ufeff mark \x85 nel \u2028 ls \xa0 nbsp \u3000 wide",
    "12345 ½ ٣٤٥ ४५",
    "<0x0A> <|end|> <|mask|> <s>",
    "আমি বাংলায় গান গাই। ক্ষ্ম র‍্য কিছু ক্ত্র স্ত্রী",
    "हिन्दी क्षत्रिय श्री र्‍",
    "தமிழ் ക്ഷ ශ්‍රී မြန်မာ ไทย",
    "العَرَبِيَّة لا ﷺ שלום",
    "漢字かな交じり文 한국어 각 𠀀𪜀",
    "👩‍👩‍👧‍👦🏳️‍🌈🇧🇩🇩🇪👍🏽 e\u0301 ﬁ Å ϓ̈ ẛ̣",
    "ΟΔΟΣ İstanbul ǅ ẞ Σ",
    "a\x00b\x07c\x1f\x7f",
    "x" * 130,
    "-" * 70,
    "snake_case + a=b <c> `d` ~ ^ | $ «q» „r“ ।॥",
    "\U0001f468\u200d\U0001f9b0 \u0f0b\u17d4 \u0600\u06dd1",
]
KINDS = ("characters", "graphemes", "bytes", "words", "bpe", "wordpiece", "unigram")
TOKENIZERS = [
    *({"kind": kind, "vocab_size": 700} for kind in KINDS),
    *(
        {"kind": kind, "vocab_size": 700, "normalization": form, "lowercase": True}
        for kind, form in zip(KINDS, ("nfc", "nfd", "nfkc", "nfkd", "nfc", "nfkd", "nfkc"), strict=True)
    ),
]
ASKED = """async ({header, data, view, question}) => {
  window.kept ??= {};
  const key = header.run.task;
  const shared = (window.kept[key] ??= glass.open(header, data));
  const answer = await glass.answers[view](shared, question);
  const plain = JSON.parse(JSON.stringify(answer.data ? answer.header : answer));
  return {header: plain, data: answer.data ? [...answer.data] : null};
}"""
TEXTS = {
    "lm": "the old dog sleeps, আমি বাংলায়",
    "masked": "the [MASK] dog sleeps near [MASK] river",
    "classify": "the old dog sleeps near it",
    "translate": "the old dog sleeps; it's 7",
    "chat": "the old dog sleeps, আমি বাংলায়",
}
BANGLA = "আমি বাংলায়"
SCHEMES = {
    "lm": {"kind": "bpe"},
    "masked": {"kind": "words"},
    "classify": {"kind": "unigram", "vocab_size": 320},
    "translate": {"kind": "wordpiece", "joint": False},
    "chat": {"kind": "words"},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "lm": {"positions": "alibi", "kv_heads": 1, "window": 5, "activation": "swiglu", "norm_order": "output"},
    "masked": {"positions": "relative", "norm": "rmsnorm", "head_bias": True, "embedding_norm": True},
    "classify": {"positions": "learned", "activation": "gelu_tanh", "norm_bias": True, "pooling": "mean"},
    "chat": {"positions": "rotary", "kv_heads": 1, "norm": "rmsnorm"},
    "translate": {"positions": "rotary", "shared_embedding": False, "tied": False, "attention_bias": True},
}
WRITE = ("lm", "translate", "chat")
NOT_THE_SAME = {
    "python",
    "copied",
    "count",
    "log_frequency",
    "counts",
    "why",
    "counted",
    "special",
    "unread",
    "unknown",
    "draw",
    "number",
    "arrival",
}
"""Fields of answers that are not compared: the shared file lacks their data, or generates different random numbers."""


def questions(task: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield view names and request parameters that a shared file of the task supports."""
    head = "dec.1.self.2" if task in WRITE else "enc.1.self.2"
    yield "tokens", {}
    yield "attention", {"head": head, "form": "float32"}
    yield "attention", {"head": head, "px": 3, "form": "float32", "queries": [1, 6], "keys": [0, 5]}
    yield "score", {"head": head, "query": 4, "key": 3}
    yield "heads", {}
    yield "focus", {"place": 4, "top": 3}
    yield "lens", {}
    yield "receipt", {"part": 2}
    yield "receipt", {"token": "1", "against": "0"}
    if task == "translate":
        yield "alignment", {"beams": 3}
        yield "attention", {"head": "dec.0.cross.1", "target": "the old dog", "form": "float32"}
        yield "receipt", {"target": "the old dog", "place": 1, "part": 5}
        yield "lens", {"target": "the old dog"}
    if task in WRITE:
        yield "sampling", {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.3}
        yield "sampling", {"temperature": 1.2, "top_p": 0.95, "min_p": 0.2}
        yield "sampling", {"temperature": 0, "top_k": 5, "min_p": 0.2, "repetition_penalty": 1.3}
        yield "beams", {"beams": 3, "tokens": 5}
        yield "write", {"temperature": 0.0, "tokens": 60}
        yield "write", {"temperature": 0.0, "tokens": 40, "repetition_penalty": 1.5, "stop": ["e"]}
        yield "write", {"beams": 3, "tokens": 12}
    else:
        yield "write", {}


def unlike(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Yield the differences between an expected and an actual answer, except in the fields in `NOT_THE_SAME`.

    A float may differ by 1e-4, or by 1e-4 of its size if that is larger.
    """
    if isinstance(one, dict):
        for name in one.keys() - NOT_THE_SAME:
            yield from unlike(one[name], (other or {}).get(name, "absent"), f"{where}.{name}")
    elif isinstance(one, list | tuple):
        if not isinstance(other, list) or len(one) != len(other):
            yield f"{where}: {one} != {other}"
            return
        for at, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from unlike(a, b, f"{where}[{at}]")
    elif isinstance(one, float) and isinstance(other, int | float):
        if not abs(one - other) <= 1e-4 * max(1.0, abs(one)):
            yield f"{where}: {one} != {other}"
    elif one != other:
        yield f"{where}: {one!r} != {other!r}"


@pytest.fixture(scope="module")
def opened(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Open a shared file of a tiny run in the browser."""
    home = tmp_path_factory.mktemp("share")
    path = home / "book.html"
    share_run(ShareRequest(make_run(home / "book"), path))
    context = browser.new_context(offline=True)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.goto(path.as_uri())
    page.wait_for_selector("section.view")
    yield page
    assert faults == []
    context.close()


def computed(page: Page, tried: list[Case]) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Yield each model with the results that the page computes for it."""
    for start in range(0, len(tried), BATCH):
        batch = tried[start : start + BATCH]
        yield from zip(batch, page.evaluate(PASSES, [case.page for case in batch]), strict=True)


def test_every_kind_of_model_gives_the_librarys_numbers(opened: Page) -> None:
    for case, found in computed(opened, cases(every=5)):
        logits = np.array(found["logits"]).reshape(case.logits.shape)
        assert np.abs(logits - case.logits).max() < 1e-9, case.name
        assert np.abs(logits - case.torch).max() < 1e-4, case.name
        own = {site.removeprefix("enc.").removeprefix("dec."): value for site, value in found["weights"].items()}
        for site, weights in case.weights.items():
            ours = found["weights"][site] if site in found["weights"] else own[site.removeprefix(".")]
            assert np.abs(np.array(ours).reshape(weights.shape) - weights).max(initial=0) < 1e-9, (case.name, site)


def test_every_tokenizer_gives_the_ids_of_encode(opened: Page, tmp_path: Path) -> None:
    for settings in TOKENIZERS:
        tokenizer = train_tokenizer(TokenizerConfig(**settings), [*LEARNT_FROM, *DIFFICULT], mask=True)
        tokenizer.save(tmp_path / "tokenizer.json")
        json = page_tokenizer(tokenizer, tmp_path / "tokenizer.json")
        found = opened.evaluate(CUT, {"json": json, "texts": DIFFICULT})
        for text, (ids, decoded) in zip(DIFFICULT, found["texts"], strict=True):
            assert ids == tokenizer.encode(text), (settings, text)
            assert decoded == tokenizer.decode(ids), (settings, text)
        assert found["names"] == [tokenizer.token_text(id) for id in range(tokenizer.vocab_size)], settings


def printed(script: str) -> str:
    """Return the output of a Python script."""
    with redirect_stdout(StringIO()) as said:
        exec(script, {})
    return said.getvalue()


def largest_difference(expected: Binary, found: list[float | None]) -> float:
    """Return the largest difference between two equal cells, in units of the allowed error: 1e-5, or 1 for bytes."""
    in_bytes = expected.header.get("form") == "uint8"
    theirs = np.frombuffer(expected.data, "u1" if in_bytes else "<f4").astype(float)
    ours = np.array(found, dtype=float)
    assert np.array_equal(np.isnan(theirs), np.isnan(ours))
    return float(np.abs(np.nan_to_num(theirs) - np.nan_to_num(ours)).max() / (1 if in_bytes else 1e-5))


@pytest.mark.parametrize("task", ["lm", "masked", "classify", "translate", "chat"])
def test_the_views_give_the_servers_answers(
    task: str, opened: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_run(tmp_path / "run", task, SCHEMES[task], {"size": 4}, **SETTINGS[task])
    report = share_run(ShareRequest(made, tmp_path / "book.html", examples=[TEXTS[task]]))
    package = Package.read(report.out)
    model = load_shared(report.out)
    model.config = model.config.with_changes({"data.size": "4"})  # a setting that the shared file lacks
    served = ServedModel("run", replace(OpenedRun.load(made), config=model.config, model=model.model))
    header = package.header
    data = base64.b64encode(package.data).decode()
    monkeypatch.chdir(tmp_path)  # the scripts name the page's file, book.html
    for view, question in questions(task):
        asked = VIEWS[view].question.model_validate({"text": TEXTS[task], **question})
        expected = VIEWS[view].answer(served, asked)
        whole = {"header": header, "data": data, "view": view, "question": asked.model_dump(mode="json")}
        found = opened.evaluate(ASKED, whole)
        if isinstance(expected, Binary):
            assert largest_difference(expected, found["data"]) <= 1, view
            expected = expected.header
        if "pass" in expected:
            assert expected.pop("pass") == ("plain" if view == "lens" else "observed")
            assert found["header"].pop("pass") == "browser"
        assert list(unlike(finite(expected), found["header"])) == [], view
        assert printed(found["header"]["python"]), view


def test_a_shared_file_opens_and_generates_text(opened: Page, tmp_path: Path) -> None:
    report = share_run(ShareRequest(make_run(tmp_path / "run"), tmp_path / "b.html", 8, [BANGLA, "the old dog"]))
    page = opened.context.new_page()
    page.goto(report.out.as_uri() + "#write?.t=0&.tokens=40")
    assert float(page.get_attribute(".about .good [data-value]", "data-value") or 1) < 1e-4
    page.click(f"button:has-text('{BANGLA}')")
    page.click("button.main")
    page.wait_for_function("document.querySelector('.told')?.innerText.includes('tokens;')")
    settings = SampleConfig(temperature=0, tokens=40)
    (sample,) = load_shared(report.out).generate([BANGLA], settings)
    assert (page.text_content(".out [aria-live]") or "").strip() == (BANGLA + sample.text).strip()
    page.close()


def test_a_shared_file_answers_a_question(opened: Page, tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", "chat", SCHEMES["chat"])
    report = share_run(ShareRequest(made, tmp_path / "chat.html", 8, ["the old dog"]))
    page = opened.context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(report.out.as_uri() + "#write?text=the+old+dog&.t=0&.tokens=20")
    page.click("button.main:text-is('Ask')")
    page.wait_for_function("document.querySelector('.told')?.innerText.includes('tokens;')")
    (sample,) = load_shared(report.out).generate(["the old dog"], SampleConfig(temperature=0, tokens=20))
    assert (page.text_content(".out [aria-live]") or "").strip() == sample.text.strip()
    assert faults == []
    page.close()


def test_a_shared_receipt_of_a_text_without_a_mask_is_refused(opened: Page, tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", "masked", SCHEMES["masked"], **SETTINGS["masked"])
    report = share_run(ShareRequest(made, tmp_path / "masked.html", examples=[TEXTS["masked"]]))
    page = opened.context.new_page()
    page.goto(report.out.as_uri() + "#receipt?text=the+old+dog")
    expect(page.locator(".problem")).to_contain_text("There is no [MASK] in the text.")
    page.close()
