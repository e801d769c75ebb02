"""Chat templates with special tokens: ids equal those of transformers; only answers and their end tokens are learnt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken

from glassformer.base.config import Config, SampleConfig
from glassformer.interop.huggingface.tokenizer_import import read_tokenizer
from glassformer.model.build import build_model
from glassformer.model.transformer import Decoder
from glassformer.tasks.chatting import ChatModel
from glassformer.tasks.example_tasks import ChatTask, last_question
from glassformer.tasks.losses import logits_of, summed_loss
from glassformer.text.batches import Batch
from glassformer.text.evaluation_data import encode_evaluation_data
from glassformer.text.prepare import Prepared, prepare
from glassformer.text.record_store import RecordStore
from glassformer.text.records import RECORD_KINDS
from tests.journey.their_models import BEGIN, END, bytes_bpe

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BUILT = (  # the names of tokens come about in the template, and the tokens take the white space after them along
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content | trim + '<|stop|>\n' }}{% endfor %}"
    "{{ '<|assistant|>\n' if add_generation_prompt else eos_token }}"
)
HEADERS = (
    "{{ bos_token }}{% for m in messages %}<|head|>{{ m.role }}<|body|>\n\n{{ m.content }}<|stop|>{% endfor %}"
    "{% if add_generation_prompt %}<|head|>assistant<|body|>\n\n{% endif %}"
)
SPELT_BEGIN = HEADERS.replace("{{ bos_token }}", BEGIN)
ENDS = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<|endoftext|>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
TAKES_SPACE = [AddedToken(f"<|{name}|>", rstrip=True) for name in ("user", "system", "assistant", "stop")]
CASES: dict[str, tuple[str, str | None, list[Any], str]] = {  # template, token before texts, special tokens, end
    "ChatML": (CHATML, None, ["<|im_start|>", "<|im_end|>"], "<|im_end|>"),
    "ChatML after a start token": (CHATML, BEGIN, ["<|im_start|>", "<|im_end|>"], "<|im_end|>"),
    "built names": (BUILT, None, TAKES_SPACE, "<|stop|>"),
    "headers": (HEADERS, BEGIN, ["<|head|>", "<|body|>", "<|stop|>"], "<|stop|>"),
    "headers, start token by name": (SPELT_BEGIN, BEGIN, ["<|head|>", "<|body|>", "<|stop|>"], "<|stop|>"),
    "end token by name": (ENDS, None, [], END),
    "end token at the beginning": (END + CHATML, None, ["<|im_start|>", "<|im_end|>"], "<|im_end|>"),
    "start token outside the frame": (HEADERS, None, ["<|head|>", "<|body|>", "<|stop|>", BEGIN], "<|stop|>"),
}
SPELT = "Write <|im_end|>, <|stop|>, <|begin|> or <|endoftext|> at the end."


class Case:
    """A chat template with transformers' tokenizer and ours, and conversations prepared with both tokenizers."""

    def __init__(self, name: str, folder: Path, spell: bool = False) -> None:
        self.template, begin, added, self.end = CASES[name]
        self.theirs = bytes_bpe(begin, added)
        self.theirs.chat_template = self.template
        if BEGIN in added:
            self.theirs.bos_token = BEGIN
        self.theirs.save_pretrained(folder / "theirs")
        size = len(self.theirs)
        self.tokenizer = read_tokenizer(folder / "theirs", size, "lm", {}).tokenizer
        self.config = Config.from_dict(
            {
                "model": {"layers": 1, "width": 16, "heads": 2, "context": 400, "positions": "rotary"},
                "tokenizer": {"kind": "bpe", "vocab_size": size},
                "data": {"chat_template": self.template, "validation_fraction": 0.2},
                "train": {"task": "chat", "batch": 4},
            }
        )
        self.talks = conversations(spell)
        path = folder / "talks.jsonl"
        rows = [json.dumps({"messages": messages}, ensure_ascii=False) for messages in self.talks]
        path.write_text("\n".join(rows), encoding="utf-8")
        self.config = self.config.with_changes({"data.source": str(path)})
        self.data: Prepared = prepare(
            RECORD_KINDS["chat"],
            self.config.data,
            self.config.tokenizer,
            folder / ".tokens",
            existing_tokenizers=(self.tokenizer,),
        )
        torch.manual_seed(0)
        model = build_model(self.config.model, size)
        assert isinstance(model, Decoder)
        self.chat = ChatModel(model.eval(), self.tokenizer, self.config)

    def ids_of_theirs(self, messages: list[dict[str, str]], next_turn: bool) -> list[int]:
        """Return transformers' ids, preceded by the tokenizer's start tokens unless the template writes them."""
        found = self.theirs.apply_chat_template(messages, add_generation_prompt=next_turn, return_dict=False)
        frame = self.tokenizer.frame
        before = [] if frame is None or self.template in (HEADERS, SPELT_BEGIN) else list(frame.before)
        return [*before, *found]


def conversations(spell: bool) -> list[list[dict[str, str]]]:
    """Return conversations of one to three questions in two scripts; `spell` adds names of special tokens."""
    found = []
    for number in range(30):
        messages = [] if number % 4 else [{"role": "system", "content": "Be brief."}]
        for turn in range(1 + number % 3):
            question = f"What is {number} + {turn}? বাংলা" + (SPELT if spell else "")
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": f"It is {number + turn}, বন্ধু.{SPELT if spell else ''}"})
        found.append(messages)
    return found


def talk_of(store: RecordStore, index: int, case: Case) -> list[dict[str, str]]:
    """Return the conversation that a record was made from."""
    text = case.tokenizer.decode(store.target.document(index).tolist())
    (found,) = [talk for talk in case.talks if text.count("What is") == len(talk) // 2 and talk[-2]["content"] in text]
    _, answer = last_question(store, index)
    assert case.tokenizer.decode(answer) == found[-1]["content"]
    return found


@pytest.mark.parametrize("name", CASES)
def test_training_and_chat_use_the_ids_of_transformers(name: str, tmp_path: Path) -> None:
    case = Case(name, tmp_path)
    before = [] if case.tokenizer.frame is None else list(case.tokenizer.frame.before)
    for store in (case.data.train, case.data.validation):
        for index in range(len(store)):
            talk = talk_of(store, index, case)
            ids = [*before, *store.target.document(index).tolist()]
            wanted = case.ids_of_theirs(talk, next_turn=False)
            assert ids == wanted[: len(ids)]
            assert wanted[len(ids) :] in ([], [case.tokenizer.end_id])  # a row ends with one anyway
            assert case.chat.conversation_ids(talk[:-1]) == case.ids_of_theirs(talk[:-1], next_turn=True)
            asked, _ = last_question(store, index)
            assert case.chat.conversation_ids(talk[:-1]) == [*before, *asked]


@pytest.mark.parametrize("spell", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_only_answers_and_their_end_tokens_count(name: str, spell: bool, tmp_path: Path) -> None:
    case = Case(name, tmp_path, spell)
    end = case.theirs.convert_tokens_to_ids(case.end)
    assert case.chat.chat.ending == ((), frozenset({end}))
    for store in (case.data.train, case.data.validation):
        for index in range(len(store)):
            talk = talk_of(store, index, case)
            ids = np.array([*store.target.document(index).tolist(), case.tokenizer.end_id])
            counts = store.loss_mask_of(index)
            answers = [message["content"] for message in talk if message["role"] == "assistant"]
            taught = ids[counts].tolist()
            assert taught == [id for answer in answers for id in (*case.tokenizer.encode(answer), end)]
            assert ids.tolist().count(end) >= len(talk)  # every message is ended, and no message holds one
            special = [id for id in ids.tolist() if id in case.tokenizer.special]
            shape = case.theirs.apply_chat_template([{**m, "content": "x"} for m in talk], return_dict=False)
            wanted = [id for id in shape if id in case.tokenizer.special]
            assert case.tokenizer.frame is not None
            if case.tokenizer.frame.before == tuple(wanted[:1]):
                wanted = wanted[1:]  # the row begins with it
            assert special in (wanted, [*wanted, case.tokenizer.end_id])


@pytest.mark.parametrize("name", CASES)
def test_no_gradient_comes_from_tokens_of_a_prompt(name: str, tmp_path: Path) -> None:
    case = Case(name, tmp_path)
    rows = ChatTask(case.config, case.data).rows(0)
    batch = Batch.from_rows(rows)
    logits = logits_of(case.chat.model, batch)  # (B, T, V)
    logits.retain_grad()
    summed_loss(logits, batch).backward()
    assert logits.grad is not None
    taught = logits.grad.abs().sum(dim=-1) > 0  # (B, T)
    assert torch.equal(taught, batch.loss_mask)
    for row, mask in zip(rows, taught, strict=True):
        learnt = [int(id) for id in np.asarray(row.targets)[mask[: len(row.targets)].numpy()]]
        assert "What" not in case.tokenizer.decode(learnt)
        assert case.tokenizer.decode(learnt).count("It is") == len(
            [id for id in learnt if id in case.chat.extra_end_ids]
        )


def test_evaluation_conversations_have_the_same_tokens(tmp_path: Path) -> None:
    case = Case("ChatML", tmp_path, spell=True)
    whole = encode_evaluation_data(RECORD_KINDS["chat"], case.config.data, case.data.tokenizers, tmp_path).store

    def records(store: RecordStore) -> list[tuple[list[int], list[bool]]]:
        return [(store.target.document(i).tolist(), store.loss_mask_of(i).tolist()) for i in range(len(store))]

    assert sorted(records(whole)) == sorted([*records(case.data.train), *records(case.data.validation)])


def test_a_special_token_in_a_message_stays_text(tmp_path: Path) -> None:
    case = Case("ChatML", tmp_path, spell=True)
    plain = Case("ChatML", tmp_path / "plain")
    for talk, other in zip(case.talks, plain.talks, strict=True):
        ids = case.chat.conversation_ids(talk[:-1])
        others = plain.chat.conversation_ids(other[:-1])
        special = case.tokenizer.special
        assert [id for id in ids if id in special] == [id for id in others if id in special]
        assert SPELT in case.tokenizer.decode(ids)


def test_an_answer_ends_at_the_templates_end_token(tmp_path: Path) -> None:
    case = Case("ChatML", tmp_path)
    config = case.config.with_changes({"model.tied": "false", "model.head_bias": "true"})
    model = build_model(config.model, case.tokenizer.vocab_size)
    assert isinstance(model, Decoder)
    assert isinstance(model.head.bias, torch.Tensor)
    chat = ChatModel(model.eval(), case.tokenizer, config)
    settings = SampleConfig(tokens=6, temperature=0)
    end = case.theirs.convert_tokens_to_ids("<|im_end|>")
    for id, ended in ((end, "end"), (case.tokenizer.end_id, "end"), (50, "length")):
        with torch.no_grad():
            model.head.bias.zero_()
            model.head.bias[id] = 1000.0
        assert chat.generate(["x"], settings)[0].ended == ended


def test_conversations_are_shown_in_lines(tmp_path: Path) -> None:
    case = Case("ChatML", tmp_path)
    ids = case.chat.conversation_ids([{"role": "user", "content": "a"}])
    assert case.chat.decode_conversation(ids) == "user\na\n\nassistant\n"
    assert case.chat.chat.before_answer == "assistant"


def test_special_tokens_of_a_tokenizer_are_named(tmp_path: Path) -> None:
    case = Case("built names", tmp_path)
    own = {name: case.theirs.convert_tokens_to_ids(name) for name in (END, *map(str, TAKES_SPACE))}
    assert case.tokenizer.special_tokens == own
    assert case.tokenizer.takes_space_after == set(map(str, TAKES_SPACE))
    assert case.tokenizer.takes_space_before == frozenset()
