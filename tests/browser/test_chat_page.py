"""The page with a chat model: the conversation itself, and all other views."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Request, expect

from glassformer.tasks import AnyTextModel, ChatModel
from tests.browser.conftest import Visit
from tests.browser.reading import audit, copied, measured, quiet, settled, turn, views_of
from tests.browser.tiny_runs import TEXTS

pytestmark = pytest.mark.thorough

Library = Callable[[str], AnyTextModel]
QUESTIONS = (TEXTS["talk"], "who is it ?")
BOX = "section.view textarea"
UNLISTED = {"alignment", "loss", "probes"}
"""Views that only explain why they have nothing to show for a chat model."""


def ask(page: Page, question: str, answers: int) -> None:
    """Type a question, press Enter, and wait until there are `answers` answers and the last one is complete."""
    page.locator(BOX).fill(question)
    page.locator(BOX).press("Enter")
    expect(page.locator("li.assistant")).to_have_count(answers)
    expect(page.locator(".told")).to_contain_text("tokens;")
    settled(page)


def answers_of(model: Library, tokens: int, temperature: float, seed: int) -> list[str]:
    """Return the library's answers to `QUESTIONS`, each computed with all earlier messages."""
    chat = model("talk")
    assert isinstance(chat, ChatModel)
    settings = chat.config.sample.replace(tokens=tokens, temperature=temperature, seed=seed, beams=1)
    messages: list[dict[str, str]] = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": chat.answer(messages, settings).text.strip()})
    return [message["content"] for message in messages[1::2]]


def test_the_second_question_is_sent_with_the_first(page: Visit, model: Library) -> None:
    shown = page("write", "talk", tokens=8, t=0.7, seed=3)
    expect(shown.locator(BOX)).to_have_value(TEXTS["talk"])
    for number, question in enumerate(QUESTIONS, start=1):
        ask(shown, question, number)
        expect(shown.locator(BOX)).to_have_value("")
        expect(shown.locator(BOX)).to_be_focused()
    first, second = answers_of(model, 8, 0.7, 3)
    assert shown.locator("li.user p").all_inner_texts() == list(QUESTIONS)
    assert shown.locator("li.assistant p").all_inner_texts() == [first, second]
    written = copied(shown, "Copy the Python code")
    assert all(repr(text) in written for text in (*QUESTIONS, first))
    turn(shown, "tokens", "talk", QUESTIONS[1])
    turn(shown, "write", "talk", QUESTIONS[1], tokens=8, t=0.7, seed=3)
    expect(shown.locator("li.assistant")).to_have_count(2)
    shown.get_by_role("button", name="New conversation").click()
    expect(shown.locator("[role=log]")).to_have_count(0)
    expect(shown.locator(BOX)).to_be_focused()
    ask(shown, QUESTIONS[1], 1)
    chat = model("talk")
    assert isinstance(chat, ChatModel)
    settings = chat.config.sample.replace(tokens=8, temperature=0.7, seed=3, beams=1)
    alone = chat.answer([{"role": "user", "content": QUESTIONS[1]}], settings).text.strip()
    expect(shown.locator("li.assistant p")).to_have_text(alone or "(nothing)")


BREAKS = """(breaks) => {
  const ask = window.fetch;
  window.fetch = (path, init) => {
    if (!String(path).endsWith("/write/stream")) return ask(path, init);
    let pulls = 0;
    const body = new ReadableStream({
      pull(controller) {
        pulls += 1;
        if (pulls === 1) controller.enqueue(new TextEncoder().encode('data: {"text": "it"}\\n\\n'));
        else if (breaks) controller.error(new TypeError("network error"));
        else controller.close();
      },
    });
    window.fetch = ask;
    return Promise.resolve(new Response(body));
  };
}"""
"""JavaScript that ends the next answer early: with a network error, or by closing the stream."""


@pytest.mark.parametrize("breaks", [True, False])
@pytest.mark.parametrize("run", ["talk", "book"])
def test_a_broken_connection_is_reported_and_the_question_is_restored(run: str, breaks: bool, page: Visit) -> None:
    shown = page("write", run, tokens=8, t=0)
    button = shown.locator(".button.main")
    if run == "talk":
        ask(shown, QUESTIONS[0], 1)
        shown.locator(BOX).fill(QUESTIONS[1])
    shown.evaluate(BREAKS, breaks)
    button.click()
    expect(shown.locator(".problem")).to_contain_text("The connection to the server was lost.")
    expect(shown.get_by_role("button", name="Stop")).to_be_disabled()
    expect(button).to_be_enabled()
    if run == "talk":
        expect(shown.locator(BOX)).to_have_value(QUESTIONS[1])
        expect(shown.locator("li.assistant")).to_have_count(1)
        ask(shown, QUESTIONS[1], 2)
    else:
        button.click()
        expect(shown.locator(".told")).to_contain_text("tokens;")
    expect(shown.locator(".problem")).to_have_count(0)


def test_forgotten_messages_are_not_sent_again(page: Visit, model: Library) -> None:
    shown = page("write", "talk", tokens=8, t=0)
    sent: list[list[dict[str, str]]] = []

    def note(request: Request) -> None:
        if request.url.endswith("/write/stream"):
            sent.append((request.post_data_json or {})["history"])

    shown.on("request", note)
    for number in (1, 2, 3):
        ask(shown, QUESTIONS[1], number)
    forgotten = shown.locator("li.user.soft, li.assistant.soft").count()
    assert forgotten > 0
    turn(shown, "tokens", "talk", QUESTIONS[1])
    turn(shown, "write", "talk", QUESTIONS[1], tokens=8, t=0)
    expect(shown.locator("li.gap")).to_contain_text("no longer reads")
    expect(shown.locator("li.user.soft, li.assistant.soft")).to_have_count(forgotten)
    ask(shown, QUESTIONS[1], 4)
    assert [len(history) for history in sent] == [0, 2, 4, 6 - forgotten]
    assert shown.locator("li.user.soft, li.assistant.soft").count() > forgotten
    chat = model("talk")
    assert isinstance(chat, ChatModel)
    texts = shown.locator("ol li:not(.gap) p").all_inner_texts()[:-1]
    messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
    settings = chat.config.sample.replace(tokens=8, temperature=0, beams=1)
    alone = chat.answer(chat.fit_to_context(messages, 8), settings).text.strip()
    expect(shown.locator("li.assistant p").last).to_have_text(alone or "(nothing)")


def test_a_full_context_is_reported_and_too_long_a_question_is_restored(page: Visit) -> None:
    shown = page("write", "talk", tokens=8, t=0, refused=True)
    for number in (1, 2, 3):
        ask(shown, QUESTIONS[0], number)
    expect(shown.locator("li.gap")).to_contain_text("no longer reads")
    long = " ".join(["dog"] * 60)
    shown.locator(BOX).fill(long)
    shown.get_by_role("button", name="Ask", exact=True).click()
    expect(shown.locator(".problem")).to_contain_text("the model reads at most 40")
    expect(shown.locator(BOX)).to_have_value(long)
    expect(shown.locator("li.assistant")).to_have_count(3)
    shown.get_by_role("button", name="New conversation").click()
    turn(shown, "write", "talk", long)
    expect(shown.locator(".problem")).to_contain_text("the model reads at most 40")
    ask(shown, QUESTIONS[0], 1)
    expect(shown.locator(".problem")).to_have_count(0)


def test_every_view_opens_or_explains_why_not(page: Visit) -> None:
    """The `page` fixture fails the test if the console shows an error."""
    shown = page("write", "talk")
    listed = set()
    for view in views_of(shown):
        turn(shown, view, "talk", TEXTS["talk"], until=quiet)
        if shown.locator("section.view").count() == 0:
            expect(shown.locator("main p.card")).to_contain_text("talk ")
            continue
        settled(shown)
        listed.add(view)
        assert shown.locator(".problem").all_inner_texts() == [], view
    assert set(views_of(shown)) - listed == UNLISTED


def test_a_conversation_is_accessible(page: Visit) -> None:
    shown = page("write", "talk", tokens=8, t=0)
    for number, question in enumerate(QUESTIONS, start=1):
        ask(shown, question, number)
    found = audit(shown)
    shown.emulate_media(color_scheme="dark")
    found += [f"dark: {each}" for each in audit(shown, runOnly=["color-contrast"])]
    for width in (390, 360):
        shown.set_viewport_size({"width": width, "height": 800})
        assert measured(shown)["beyond"] <= 0, width
    assert found == []
