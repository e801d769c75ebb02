"""Conversations: the formats of data sets, errors and left-out records, and the boundaries of answers."""

from __future__ import annotations

import csv
import json
import re
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from glassformer.base.config import CHAT_TEMPLATE, Config, DataConfig, TokenizerConfig
from glassformer.base.errors import GlassError
from glassformer.interop.huggingface.tokenizer_files import template_tokens
from glassformer.text.chat_template import ChatTemplate
from glassformer.text.conversations import messages_of
from glassformer.text.data_notes import must_be_seen
from glassformer.text.left_out import Tally
from glassformer.text.prepare import Prepared, prepare
from glassformer.text.records import END_MARK, NAME_END_MARK, NAME_MARK, RECORD_KINDS, START_MARK
from glassformer.text.source import open_source
from glassformer.text.special_names import SpecialNames, marked_ids

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NAMED = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 1 + 1?"},
    {"role": "assistant", "content": "2."},
    {"role": "user", "content": "And 2 + 2?"},
    {"role": "assistant", "content": "4."},
]


def test_formats_of_other_data_sets_are_read() -> None:
    sharegpt = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]
    assert messages_of(sharegpt, "line 1") == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho"},
    ]
    parts = [{"role": "developer", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]}]
    assert messages_of(parts, "line 1") == [{"role": "system", "content": "AB"}]
    assert messages_of("text", "line 1") is None


def test_messages_of_one_role_in_a_row_are_joined() -> None:
    twice = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    assert messages_of(twice, "line 1") == [{"role": "user", "content": "one\ntwo"}]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"role": "narrator", "content": "x"}, "has the unknown role 'narrator'"),
        ({"role": "user"}, "with text in both"),
        ({"role": "user", "content": 5}, "with text in both"),
        ({"role": "user", "content": [{"type": "image", "image": "x"}]}, "with text in both"),
        ("Hi", "with text in both"),
        ({"role": "user", "content": "\ud83d"}, "has a lone surrogate"),
    ],
)
def test_messages_that_cannot_be_read_are_refused_with_their_position(message: Any, problem: str) -> None:
    with pytest.raises(GlassError, match=problem) as refused:
        messages_of([message], "line 7 of talks.jsonl")
    assert refused.value.problem.startswith("line 7 of talks.jsonl")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (CHAT_TEMPLATE, ["2." + END_MARK, "4."]),
        (CHATML, ["2.<|im_end|>\n", "4.<|im_end|>\n"]),
        (NAMED, ["2." + END_MARK, "4." + END_MARK]),
    ],
)
def test_answers_have_exact_boundaries(source: str, expected: list[str]) -> None:
    text, spans = ChatTemplate(source).training_text(TALK)
    assert [text[start:stop] for start, stop in spans] == expected
    borders = [0, *(border for span in spans for border in span), len(text)]
    assert borders == sorted(borders)
    assert "".join(text[start:stop] for start, stop in pairwise(borders)) == text


def test_a_text_with_the_end_mark_does_not_end_a_message() -> None:
    talk = [{"role": "user", "content": f"a{END_MARK}b"}, {"role": "assistant", "content": "c"}]
    text, spans = ChatTemplate(CHAT_TEMPLATE).training_text(talk)
    assert text == f"user{END_MARK}a\ufffdb{END_MARK}assistant{END_MARK}c"
    assert [text[start:stop] for start, stop in spans] == ["c"]


def test_templates_that_fail_are_refused() -> None:
    backwards = "{% for m in messages | reverse %}{{ m.content }}{% endfor %}"
    with pytest.raises(GlassError, match="answers cannot be located"):
        ChatTemplate(backwards).training_text(TALK)
    with pytest.raises(GlassError, match="the chat template fails: ZeroDivisionError"):
        ChatTemplate("{{ 1 / 0 }}").training_text(TALK)
    with pytest.raises(GlassError, match="the chat template refuses this conversation: no"):
        ChatTemplate("{{ raise_exception('no') }}").training_text(TALK)
    with pytest.raises(GlassError, match="the chat template fails: UnicodeEncodeError") as refused:
        ChatTemplate("{{ '\\ud800' }}").training_text(TALK)
    assert len(str(refused.value).splitlines()) == 2
    with pytest.raises(GlassError, match="is not valid"):
        ChatTemplate("{% if")


def prepared(folder: Path, rows: list[Any], kind: str = "bpe", **data: Any) -> Prepared:
    """Prepare rows of a .jsonl file as conversations."""
    path = folder / "talks.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    settings = DataConfig(source=str(path), split="random", validation_fraction=0.2, **data)
    tokenizer = TokenizerConfig(kind=kind, vocab_size=400)  # type: ignore[arg-type]
    return prepare(RECORD_KINDS["chat"], settings, tokenizer, folder / ".tokens")


def talks(count: int = 20) -> list[Any]:
    return [{"messages": [*TALK[:-1], {"role": "assistant", "content": f"It is {n}."}]} for n in range(count)]


@pytest.mark.parametrize("kind", ["bpe", "characters", "words", "bytes", "unigram", "wordpiece", "graphemes"])
def test_only_answers_and_their_ends_count(tmp_path: Path, kind: str) -> None:
    found = prepared(tmp_path, talks(), kind)
    store = found.train
    end = found.tokenizer.end_id
    for index in range(len(store)):
        ids = [*store.target.document(index).tolist(), end]
        counts = store.loss_mask_of(index).tolist()
        assert len(ids) == len(counts)
        assert counts[-1]  # the end of the last answer
        inside = [id for id, counted in zip(ids, counts, strict=True) if counted]
        assert found.tokenizer.decode(inside[: inside.index(end)]).replace(" ", "") == "2."
        assert inside.count(end) == 2
        outside = [id for id, counted in zip(ids, counts, strict=True) if not counted]
        assert outside.count(end) == 8  # after five roles, the system message and both questions
        assert "2." not in found.tokenizer.decode(outside)


def test_the_end_mark_is_not_in_the_vocabulary(tmp_path: Path) -> None:
    found = prepared(tmp_path, talks(), "characters")
    assert found.tokenizer.encode(END_MARK) == [found.tokenizer.unknown_id]
    assert found.train.unknown_fraction == 0


def test_questions_and_answers_in_columns_are_conversations(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} + 0?", "answer": f"{n}."} for n in range(20)]
    found = prepared(tmp_path, rows)
    assert len(found.train) + len(found.validation) == 20
    assert any("question" in note and "answer" in note for note in found.notes)
    named = [{"a": f"What is {n} + 0?", "b": f"{n}.", "c": f"comment number {n} of this row"} for n in range(20)]
    again = prepared(tmp_path, named, column="a", target_column="b")
    assert [text for text, *_ in again.train.texts()] == [text for text, *_ in found.train.texts()]


def test_conversations_without_answers_are_omitted_and_counted(tmp_path: Path) -> None:
    odd = [
        {"messages": [*TALK[:2]]},
        {"messages": [TALK[1], {"role": "assistant", "content": "  "}]},
        {"messages": []},
        {"messages": "no list"},
        {"other": 1},
        {"messages": [*TALK, {"role": "user", "content": "Thanks!"}]},
    ]
    found = prepared(tmp_path, [*talks(), *odd])
    notes = "\n".join(found.notes)
    assert "left out 2 conversations without an answer" in notes
    assert "left out 1 conversation with an empty answer" in notes
    assert "left out 2 rows without a conversation" in notes
    assert "that end without an answer (what follows the last answer is not read)" in notes
    assert len(found.train) + len(found.validation) == 21
    assert not any("Thanks" in text for part in (found.train, found.validation) for (text,) in part.texts())


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"messages": [{"role": "user", "content": "x"}]}] * 3, "contains no example that can be used"),
        (
            [{"messages": [{"role": "cook", "content": "x"}]}] * 3,
            "line 1 of talks.jsonl: a message has the unknown role 'cook'",
        ),
        ([{"a": 1, "b": 2, "c": 3}] * 3, "the question and answer are not clear"),
    ],
)
def test_tables_without_conversations_are_refused_and_leave_nothing(
    tmp_path: Path, rows: list[Any], problem: str
) -> None:
    with pytest.raises(GlassError, match=problem):
        prepared(tmp_path, rows)
    assert not (tmp_path / ".tokens").exists()


def test_a_template_that_spells_a_special_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GlassError, match=r"writes <\|end\|>, a special token"):
        prepared(tmp_path, talks(), chat_template="{% for m in messages %}{{ m.content }}<|end|>{% endfor %}")


def test_a_start_token_written_by_name_is_not_repeated(tmp_path: Path) -> None:
    tokenizer = prepared(tmp_path, talks()).tokenizer
    end = tokenizer.token_text(tokenizer.end_id)
    template = ChatTemplate(f"{end}{{% for m in messages %}}{{{{ m.content }}}}{end}{{% endfor %}}")
    names = SpecialNames.of(tokenizer)
    text, spans = template.training_text(TALK[1:3], names)
    assert text == f"What is 1 + 1?{END_MARK}2."  # rows begin with a start token and end with an end token
    assert [text[start:stop] for start, stop in spans] == ["2."]
    assert marked_ids(template.pieces(TALK[1:2], True, names)[0], tokenizer)[0] == tokenizer.start_id
    assert template.pieces(TALK[1:2], True, names)[0].startswith(START_MARK)


def test_another_template_gives_other_tokens(tmp_path: Path) -> None:
    plain = prepared(tmp_path, talks())
    named = prepared(tmp_path, talks(), chat_template=NAMED)
    assert plain.folder != named.folder
    assert "assistant: " in next(iter(named.train.texts()))[0]
    assert prepared(tmp_path, talks(), chat_template=NAMED).reused


def test_settings_of_other_tasks_are_refused() -> None:
    with pytest.raises(GlassError, match=r"data\.chat_template"):
        Config.from_dict({"data": {"chat_template": NAMED}})
    assert Config.from_dict({"train": {"task": "chat"}, "data": {"chat_template": NAMED}}).data.split == "random"


def chatml_names() -> SpecialNames:
    """Return the names of ChatML's tokens, with another end token."""
    marks = {name: f"{NAME_MARK}{name}{NAME_END_MARK}" for name in ("<|im_start|>", "<|im_end|>")}
    return SpecialNames({**marks, "<|endoftext|>": END_MARK})


@pytest.mark.parametrize("answer", ["yes", "d", "end", "im_end", "<|im_end|>"])
def test_an_answer_contained_in_a_token_name_has_exact_boundaries(answer: str) -> None:
    template = ChatTemplate(CHATML)
    messages = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": answer}]
    text, spans = template.training_text(messages, chatml_names())
    assert [text[start:stop] for start, stop in spans] == [f"{answer}{NAME_MARK}<|im_end|>{NAME_END_MARK}"]


def test_text_after_a_changed_answer_does_not_count() -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content|upper }}{{ eos_token }}\n{% endfor %}")
    messages = [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "yes"}]
    text, spans = template.training_text(messages)
    assert [text[start:stop] for start, stop in spans] == [f"YES{END_MARK}"]


def test_a_template_that_refuses_a_plain_conversation_has_no_end_token(tmp_path: Path) -> None:
    tokenizer = prepared(tmp_path, talks()).tokenizer
    assert template_tokens(None, tokenizer) == (frozenset(), False)
    assert template_tokens("{{ bos_token }}{{ raise_exception('needs tools') }}", tokenizer) == (frozenset(), True)
    ends, writes_start = template_tokens(NAMED, tokenizer)
    assert ends == {tokenizer.end_id}
    assert not writes_start


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, CHATML, NAMED])
@pytest.mark.parametrize("kind", ["bpe", "characters", "bytes"])
def test_answers_of_weight_0_do_not_count(tmp_path: Path, kind: str, template: str) -> None:
    """For any weights, exactly the answers of weight 1 and their ends are targets of the loss."""
    rows = []
    for number in range(30):
        bits = [number >> turn & 1 for turn in range(4)]
        messages: list[dict[str, Any]] = [{"role": "system", "content": f"talk {number}", "weight": 0}]
        for turn, bit in enumerate(bits):
            weight = {} if bit and turn % 2 else {"weight": bit}
            messages.append({"role": "user", "content": f"asked {number} {turn} ?"})
            messages.append({"role": "assistant", "content": f"told {turn} {'good' if bit else 'bad'} !", **weight})
        rows.append({"messages": messages})
    found = prepared(tmp_path, rows, kind, chat_template=template)
    assert sum("left out 2 conversations without an answer whose weight is not 0" in note for note in found.notes) == 1
    tokenizer = found.tokenizer
    for store in (found.train, found.validation):
        for index in range(len(store)):
            ids = [*store.target.document(index).tolist(), tokenizer.end_id]
            mask = store.loss_mask_of(index).tolist()
            assert len(ids) == len(mask)
            read = tokenizer.decode([id for id in ids if id != tokenizer.end_id])
            number = int(re.findall(r"talk\s*(\d+)", read)[0])
            runs = [
                [id for _, id in run] for counts, run in groupby(zip(mask, ids, strict=True), itemgetter(0)) if counts
            ]
            told = [tokenizer.decode([id for id in run if id != tokenizer.end_id]).strip() for run in runs]
            wanted = [turn for turn in range(4) if number >> turn & 1]
            assert [re.findall(r"told\s*(\d)\s*good\s*!", text) for text in told] == [[str(turn)] for turn in wanted]
            assert not any("bad" in text or "asked" in text for text in told)
            assert f"asked {number} {wanted[-1]}" in read.replace("  ", " ")  # answers of weight 0 are read
            assert read.count("bad") == wanted[-1] + 1 - len(wanted)
            assert mask[-1] == (template != NAMED)  # which writes a line end after the end token


@pytest.mark.parametrize("weight", [0.5, -1, 2, "0", [0]])
def test_other_weights_are_refused(weight: Any) -> None:
    with pytest.raises(GlassError, match=r"line 3: a message has the weight .*\nGive an answer the weight 0"):
        messages_of([{"role": "assistant", "content": "x", "weight": weight}], "line 3", Tally())


def test_answers_of_different_weights_are_not_joined() -> None:
    bad = {"role": "assistant", "content": "bad", "weight": 0}
    good = {"role": "assistant", "content": "good", "weight": 1.0}
    assert messages_of([bad, good], "line 1") == [bad, {"role": "assistant", "content": "good"}]
    assert messages_of([bad, bad], "line 1") == [{**bad, "content": "bad\nbad"}]
    assert messages_of([{"role": "user", "content": "x", "weight": 0}], "line 1") == [{"role": "user", "content": "x"}]


def test_fields_that_are_not_read_are_named(tmp_path: Path) -> None:
    odd = {"role": "user", "content": "Hi", "name": "Ada", "images": ["a.png"], "tool_calls": None, "audio": []}
    both = {"role": "assistant", "content": "Ho", "value": "Hu", "from": None}
    rows = [{"id": n, "messages": [odd, {**both, "content": f"Ho {n}"}], "tools": [{"type": "f"}]} for n in range(9)]
    notes = prepared(tmp_path, rows).notes
    assert "talks.jsonl: messages: column messages; columns that are not read: id, tools" in notes
    assert "9 messages with fields that are not read: images, name" in notes
    assert "9 messages with fields that are not read: value" in notes
    assert all(must_be_seen(note) for note in notes if "not read" in note)
    with pytest.raises(GlassError, match="the conversation: a message has the field 'name', which is not read"):
        messages_of([{"role": "user", "content": "Hi", "name": "Ada"}], "the conversation")


SYSTEM = "Be brief."
SYSTEMS: dict[str, tuple[dict[str, Any], list[str]]] = {  # a row, and the texts of its messages
    "ShareGPT": (
        {"system": SYSTEM, "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]},
        [f"system {SYSTEM}", "user Hi", "assistant Ho"],
    ),
    "the same message twice": (
        {"system": SYSTEM, "messages": [{"role": "system", "content": SYSTEM}, *TALK[1:3]]},
        [f"system {SYSTEM}", "user What is 1 + 1?", "assistant 2."],
    ),
    "two messages": (
        {"system": "Be kind.", "messages": TALK[:3]},
        [f"system Be kind.\n{SYSTEM}", "user What is 1 + 1?", "assistant 2."],
    ),
    "no system": ({"system": None, "messages": TALK[1:3]}, ["user What is 1 + 1?", "assistant 2."]),
    "empty system": ({"system": "", "messages": TALK[1:3]}, ["user What is 1 + 1?", "assistant 2."]),
    "Alpaca": (
        {"instruction": "Translate to French.", "input": "a cat", "output": "un chat"},
        ["user Translate to French.\na cat", "assistant un chat"],
    ),
    "Alpaca without input": (
        {"instruction": "Name a colour.", "input": "", "output": "Blue."},
        ["user Name a colour.", "assistant Blue."],
    ),
    "Alpaca with a system": (
        {
            "instruction": "Translate.",
            "input": "a cat",
            "output": "un chat",
            "system": SYSTEM,
            "text": "other words here",
        },
        [f"system {SYSTEM}", "user Translate.\na cat", "assistant un chat"],
    ),
    "Dolly": (
        {"instruction": "Who slept?", "context": "The cat slept.", "response": "The cat.", "category": "qa"},
        ["user Who slept?\nThe cat slept.", "assistant The cat."],
    ),
    "input and output": ({"input": "a cat", "output": "un chat"}, ["user a cat", "assistant un chat"]),
    "a prompt and a completion": (
        {"system_prompt": SYSTEM, "prompt": "a cat", "completion": "un chat"},
        [f"system {SYSTEM}", "user a cat", "assistant un chat"],
    ),
}


FLAT = [name for name, (row, _) in SYSTEMS.items() if not any(isinstance(value, list) for value in row.values())]


@pytest.mark.parametrize(
    ("name", "ending"), [*((name, "jsonl") for name in SYSTEMS), *((name, "csv") for name in FLAT)]
)
def test_systems_and_inputs_are_part_of_the_conversation(tmp_path: Path, name: str, ending: str) -> None:
    row, wanted = SYSTEMS[name]
    path = tmp_path / f"talks.{ending}"
    if ending == "jsonl":
        path.write_text(f"{json.dumps(row)}\n" * 3, encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, row.keys())
            writer.writeheader()
            writer.writerows([row] * 3)
    with open_source(RECORD_KINDS["chat"], DataConfig(source=str(path)), tmp_path) as source:
        (record, *_) = source.records(Tally())
    parts = record.texts[0].split(END_MARK)
    assert [f"{role} {text}" for role, text in zip(parts[::2], parts[1::2], strict=True)] == wanted
    assert [record.texts[0][slice(*span)] for span in record.loss_spans] == [parts[-1]]


def test_several_question_columns_can_be_named(tmp_path: Path) -> None:
    row = {"task": "Translate it", "words": "a small cat", "reply": "un petit chat", "note": "checked by two people"}
    path = tmp_path / "talks.jsonl"
    path.write_text(f"{json.dumps(row)}\n" * 3, encoding="utf-8")
    kind = RECORD_KINDS["chat"]
    with pytest.raises(GlassError, match=r"not clear.*\n.*\(or to several columns, separated by commas\)"):
        prepare(kind, DataConfig(source=str(path)), TokenizerConfig(), tmp_path / ".tokens")
    for column, question, unread in (
        ("task,words", "Translate it\na small cat", "note"),
        ("task", "Translate it", "words, note"),
    ):
        data = DataConfig(source=str(path), column=column, target_column="reply")
        with open_source(kind, data, tmp_path) as source:
            (record, *_) = source.records(Tally())
        assert record.texts[0] == f"user{END_MARK}{question}{END_MARK}assistant{END_MARK}un petit chat"
        assert any(note.endswith(f"; columns that are not read: {unread}") for note in source.notes)


NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'user' %}U: {{ m.content }}"
    "{% elif m.role == 'assistant' %}A: {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}A: {% endif %}"
)
FIRST_SYSTEM = "{% if messages[0].role == 'system' %}S: {{ messages[0].content|upper }}{% endif %}" + NO_SYSTEM


@pytest.mark.parametrize(
    ("template", "roles", "unwritten"),
    [
        (NO_SYSTEM, "system user assistant user", ("system",)),
        (NO_SYSTEM, "user assistant user", ()),
        (FIRST_SYSTEM, "system user assistant user", ()),
        (FIRST_SYSTEM, "system user system user", ("system",)),
        (CHAT_TEMPLATE, "system user system assistant user", ()),
        ("{% for m in messages %}{{ m.content|upper|trim }}{% endfor %}", "system user assistant", ()),
        ("hello", "system user", ("system", "user")),
        ("", "user", ("user",)),
        ("{{ raise_exception('no') }}", "user", ()),
    ],
)
def test_messages_that_a_template_does_not_write_are_found(
    template: str, roles: str, unwritten: tuple[str, ...]
) -> None:
    assert ChatTemplate(template).unwritten_roles(tuple(roles.split()), True) == unwritten


def test_messages_that_a_template_does_not_write_are_named_in_training(tmp_path: Path) -> None:
    rows = [*talks(8), *({"messages": [TALK[1], {"role": "assistant", "content": f"{n}."}]} for n in range(8))]
    said = "8 conversations with a message of the role system that the chat template does not write (it is not read)"
    notes = prepared(tmp_path, rows, chat_template=NO_SYSTEM).notes
    assert said in notes
    assert must_be_seen(said)
    assert not any("does not write" in note for note in prepared(tmp_path, rows, chat_template=FIRST_SYSTEM).notes)


@pytest.mark.parametrize("name", ["messages", "conversations"])
@pytest.mark.parametrize("ending", ["jsonl", "csv"])
@pytest.mark.parametrize("others", [{}, {"id": "0"}, {"id": "0", "system": SYSTEM}])
def test_messages_that_are_json_text_are_read(tmp_path: Path, name: str, ending: str, others: dict[str, str]) -> None:
    row = {**others, name: json.dumps(TALK[1:3])}
    path = tmp_path / f"talks.{ending}"
    if ending == "jsonl":
        path.write_text(f"{json.dumps(row)}\n" * 4, encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, row.keys())
            writer.writeheader()
            writer.writerows([row] * 4)
    with open_source(RECORD_KINDS["chat"], DataConfig(source=str(path)), tmp_path) as source:
        found = [record.texts[0] for record in source.records(Tally())]
    system = f"system{END_MARK}{SYSTEM}{END_MARK}" if "system" in others else ""
    assert found == [f"{system}user{END_MARK}What is 1 + 1?{END_MARK}assistant{END_MARK}2."] * 4


def test_messages_that_are_another_text_are_refused(tmp_path: Path) -> None:
    rows = [{"id": "0", "messages": str(TALK)}] * 4  # Python's notation, as some tables have it
    with pytest.raises(GlassError, match=r"line 1 of talks.jsonl: the messages are a text that is not JSON: .*\nWrite"):
        prepared(tmp_path, rows)


@pytest.mark.parametrize(
    ("row", "settings", "remedy"),
    [
        ({"prompt": TALK[1:2], "completion": TALK[2:3]}, {}, "write all messages as one list"),
        ({"messages": [TALK[1], {**TALK[2], "weight": 0}]}, {}, "Give at least one answer of each conversation"),
        ({"messages": TALK}, {"chat_template": "{{ '' }}"}, "Give a template that writes the messages."),
        ({"messages": TALK}, {"min_words": 99}, "Lower data.min_words."),
        ({"messages": TALK}, {"max_words": 1}, "Raise data.max_words."),
        ({"messages": TALK[:2]}, {}, "a conversation with answers"),
    ],
)
def test_the_remedy_for_data_without_examples_is_for_its_cause(
    tmp_path: Path, row: dict[str, Any], settings: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(GlassError, match="contains no example that can be used") as refused:
        prepared(tmp_path, [row] * 3, **settings)
    assert remedy in refused.value.remedy
    assert ("data." in refused.value.remedy) == ("data." in remedy)
