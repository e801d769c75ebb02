"""`glass train --task chat` and `glass chat`: from conversations in a file to answers, evaluation and export."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

import glassformer
from glassformer.app.cli.main import main
from glassformer.runs.folder import CHAT_TEMPLATE_FILE
from glassformer.runs.opening import OpenedRun
from tests.journey.commands import glass as process
from tests.journey.commands import here as glass
from tests.journey.task_runs import TINY, refused
from tests.trained import copy_runs

QUESTION = "the old dog sleeps . what does the dog do ?"
NAMED = (
    "{% for m in messages %}{{ m.role }} : {{ m.content }}{{ eos_token }} {% endfor %}"
    "{% if add_generation_prompt %}assistant : {% endif %}"
)


def test_a_conversation_continues_line_by_line(task_home: Path) -> None:
    lines = f"{QUESTION}\n\nwho is it ?\n/new\nwho is it ?\n/quit\nnobody reads this\n"
    done = process("chat", "runs/chat", "--temperature", "0", folder=task_home, text=lines)
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    model = OpenedRun.load(task_home / "runs/chat", device="cpu").chat_model
    settings = model.config.sample.replace(temperature=0)
    asked = [{"role": "user", "content": QUESTION}]
    assert first == "".join(model.reply(asked, settings))
    asked += [{"role": "assistant", "content": first}, {"role": "user", "content": "who is it ?"}]
    assert second == "".join(model.reply(asked, settings))
    assert third == "".join(model.reply(asked[-1:], settings))  # after /new nothing is remembered


def test_questions_that_are_not_utf_8_are_refused(
    task_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(task_home)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xffhi\n"), encoding="utf-8"))
    assert main(["chat", "runs/chat"]) == 2
    assert "standard input is not utf-8" in capsys.readouterr().err.splitlines()[-2]


def test_messages_that_do_not_fit_are_dropped_and_reported(task_home: Path) -> None:
    lines = f"{QUESTION}\n" * 6
    done = process("chat", "runs/chat", "--temperature", "0", folder=task_home, text=lines)
    assert done.returncode == 0, done.stderr
    assert "the context is full: the oldest" in done.stderr
    assert len(done.stdout.splitlines()) == 6
    long = " ".join(["dog"] * 60)
    problem, remedy = refused("chat", "runs/chat", long, folder=task_home)
    assert "the model reads at most 40" in problem
    assert remedy == "Ask a shorter question."
    problem, remedy = refused("chat", "runs/chat", "--system", long, QUESTION, folder=task_home)
    assert "the question and the system message have" in problem
    assert remedy == "Shorten the question or the system message."


def test_one_question_is_answered_as_text_and_as_json(task_home: Path) -> None:
    plain = glass("chat", "runs/chat", QUESTION, "--temperature", "0", folder=task_home)
    assert plain.returncode == 0, plain.stderr
    found = json.loads(glass("chat", "runs/chat", QUESTION, "--temperature", "0", "--json", folder=task_home).stdout)
    assert (found["text"], found["backend"]) == (plain.stdout.strip(), "torch")
    written = glass("generate", "runs/chat", QUESTION, "--temperature", "0", folder=task_home)
    assert written.stdout == plain.stdout
    told = glass("chat", "runs/chat", QUESTION, "--system", "the dog sings .", "--json", folder=task_home)
    assert told.returncode == 0, told.stderr
    model = glassformer.load(task_home / "runs/chat")
    for message in (
        {"role": "user", "content": QUESTION},
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
        {"from": "human", "value": QUESTION},
    ):
        assert model.chat([message]) == model.chat(QUESTION)
    with pytest.raises(glassformer.GlassError, match="the conversation: a message is not"):
        model.chat([{"role": "user", "text": QUESTION}])
    with pytest.raises(glassformer.GlassError, match=r"must be a list of messages, got int\n\w"):
        model.chat(5)  # type: ignore[arg-type]


def test_a_question_has_no_loss(task_home: Path) -> None:
    model = glassformer.load(task_home / "runs/chat")
    with pytest.raises(glassformer.GlassError, match="was trained on answers only") as refusal:
        model.loss(QUESTION)
    assert "glass evaluate" in refusal.value.remedy


def test_evaluation_compares_answers_with_baselines(task_home: Path) -> None:
    done = glass("evaluate", "runs/chat", "test-talks.jsonl", "--json", folder=task_home)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["examples"] == 20
    assert 0 <= found["exact_match"] <= 1
    assert {each["name"] for each in found["baselines"]} == {
        "the last words of the question",
        "the most frequent answer",
    }
    assert found["bits_per_byte"] is None
    text = glass("evaluate", "runs/chat", folder=task_home).stdout
    assert "conversations" in text
    assert "exact match" in text
    assert glass("evaluate", "runs/chat", "--against", "runs/chat", folder=task_home).returncode == 0
    problem, _ = refused("evaluate", "runs/chat", "--against", "runs/lm", folder=task_home)
    assert "was trained with train.task = lm" in problem


def test_data_look_marks_the_text_that_counts_in_the_loss(task_home: Path, tmp_path: Path) -> None:
    done = glass("data", "look", "talks.jsonl", "--task", "chat", folder=task_home)
    assert done.returncode == 0, done.stderr
    assert "user|" in done.stdout
    assert "do ?|assistant|[[it " in done.stdout
    assert "text that counts in the loss is in [[ ]]" in done.stdout
    found = json.loads(glass("data", "look", "talks.jsonl", "--task", "chat", "--json", folder=task_home).stdout)
    pieces = found["first"][0]["pieces"]
    assert [piece["counts"] for piece in pieces][:2] == [False, True]
    (tmp_path / "named.jinja").write_text(NAMED, encoding="utf-8")
    template = ["--chat-template", str(tmp_path / "named.jinja")]
    done = glass("data", "look", "talks.jsonl", "--task", "chat", *template, folder=task_home)
    assert "do ?| assistant : [[it " in done.stdout
    assert "takes no --chat-template" in refused("data", "show", "talk", *template, folder=task_home)[0]


def test_a_run_of_lm_learns_conversations_and_keeps_its_tokenizer(task_home: Path, tmp_path: Path) -> None:
    copy_runs(task_home, tmp_path)
    few = ["--steps", "4", "--train.threads", "1", "--train.evaluate_every", "2", "--train.batch", "4"]
    data = ["talks.jsonl", "--task", "chat", "--from", "runs/lm", "--mix", "0.3"]
    done = glass("train", *data, *few, "--out", "runs/taught", "--json", folder=tmp_path)
    assert (done.returncode, "are unknown to the" in done.stderr) == (2, True)  # the words of another text
    base = ["book.txt", "--tokenizer.kind=bpe", "--tokenizer.vocab_size=300", *few]
    shape = [word for word in TINY if "tokenizer" not in word and "threads" not in word and "batch" not in word]
    done = glass("train", base[0], *shape[:4], *base[1:], "--out", "runs/base", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    data[4] = "runs/base"
    done = glass("train", *data, *few, "--out", "runs/taught", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["parent_losses"][0] > 0  # forgetting is measured on the text of lm
    assert (tmp_path / "runs/taught/tokenizer.json").read_bytes() == (
        tmp_path / "runs/base/tokenizer.json"
    ).read_bytes()
    assert glass("chat", "runs/taught", "who is it ?", folder=tmp_path).returncode == 0
    again = glass("train", "talks.jsonl", "--from", "runs/taught", *few, "--out", "runs/more", folder=tmp_path)
    assert again.returncode == 0, again.stderr


def test_a_custom_template_is_stored_in_the_run(task_home: Path, tmp_path: Path) -> None:
    copy_runs(task_home, tmp_path)
    (tmp_path / "named.jinja").write_text(NAMED, encoding="utf-8")
    words = ["train", "talks.jsonl", *TINY, "--task", "chat", "--steps", "20", "--chat-template", "named.jinja"]
    done = glass(*words, "--out", "runs/named", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/named" / CHAT_TEMPLATE_FILE).read_text(encoding="utf-8") == NAMED
    opened = OpenedRun.load(tmp_path / "runs/named", device="cpu")
    ids = opened.chat_model.prompt_ids("who is it ?")
    assert opened.tokenizer.decode(ids).replace(" ", "") == "user:whoisit?assistant:"
    assert glass("chat", "runs/named", QUESTION, folder=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["chat", "runs/lm", "Hi"], "was trained with train.task = lm and cannot chat"),
        (["chat", "runs/classify", "Hi"], "was trained with train.task = classify and cannot chat"),
        (["chat", "runs/chat", "--json"], "--json was given without QUESTION"),
        (["train", "book.txt", "--task", "chat", "--out", "new"], "is plain text and has no conversations"),
        (
            ["train", "talks.jsonl", "talks.jsonl", "--task", "chat", "--out", "new"],
            "data.target cannot be combined with",
        ),
        (
            ["train", "talks.jsonl", "--task", "chat", "--chat-template", "none.jinja", "--out", "new"],
            "none.jinja does not exist",
        ),
        (
            ["train", "talks.jsonl", "--task", "chat", "--data.chat_template", "{% if", "--out", "new"],
            "the chat template is not valid",
        ),
        (
            ["train", "talks.jsonl", "--task", "chat", "--data.chat_template", "{{ 1 / 0 }}", "--out", "new"],
            "line 1 of talks.jsonl: the chat template fails: ZeroDivisionError",
        ),
        (["train", "talks.jsonl", "--task", "translate", "--from", "runs/chat", "--out", "new"], "cannot start from"),
    ],
)
def test_invalid_chat_options_are_refused_and_nothing_is_written(
    task_home: Path, words: list[str], problem: str
) -> None:
    said, remedy = refused(*words, folder=task_home)
    assert problem in said, said
    assert remedy
    assert not (task_home / "new").exists()


@pytest.mark.thorough
def test_transformers_reads_the_same_conversation(task_home: Path, tmp_path: Path) -> None:
    """The chat template of the exported folder gives the ids that our chat model reads."""
    transformers = pytest.importorskip("transformers")
    for name in ("chat",):
        done = glass("export", f"runs/{name}", "--to", "hf", "--out", tmp_path / name, folder=task_home)
        assert done.returncode == 0, done.stderr
        opened = OpenedRun.load(task_home / "runs" / name, device="cpu")
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        own = (task_home / "runs" / name / CHAT_TEMPLATE_FILE).read_text(encoding="utf-8")
        assert theirs.chat_template == "{{ bos_token }}" + own
        answered = [{"role": "assistant", "content": "it sleeps ."}, {"role": "user", "content": "who is it ?"}]
        for messages in ([{"role": "user", "content": QUESTION}], [{"role": "user", "content": QUESTION}, *answered]):
            found = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            assert found == opened.chat_model.conversation_ids(messages)
