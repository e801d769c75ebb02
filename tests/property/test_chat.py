"""Chat models: only answers are targets, a chat uses the tokens of training, truncated conversations keep their end."""

from __future__ import annotations

import json
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.base.config import CHAT_TEMPLATE, Config, SampleConfig
from glassformer.base.errors import GlassError
from glassformer.inspection.receipt import write_receipt
from glassformer.model.build import build_model
from glassformer.model.transformer import Decoder
from glassformer.tasks.chatting import ChatModel, TokenizedTemplate
from glassformer.tasks.example_tasks import ChatTask, conversation_rows, last_question
from glassformer.tasks.losses import TrainingLoss, logits_of, summed_loss
from glassformer.text.batches import Batch
from glassformer.text.chat_template import ChatTemplate
from glassformer.text.conversations import ROLES
from glassformer.text.prepare import Prepared, prepare
from glassformer.text.records import END_MARK, RECORD_KINDS
from glassformer.text.rows import Row
from glassformer.text.tokenizers import train_tokenizer
from glassformer.training.setup import _notes_on_rows

NAMED = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
LINES = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
STARTS = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token }}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'system' %}<<{{ m.content }}>>{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
TEXT_ENDS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
KINDS = ("bpe", "characters", "words", "unigram", "wordpiece", "bytes", "graphemes")


def conversations(count: int = 30) -> list[list[dict[str, str]]]:
    """Return conversations of one to three questions, in two scripts."""
    found = []
    for number in range(count):
        messages = [] if number % 4 else [{"role": "system", "content": "Be brief."}]
        for turn in range(1 + number % 3):
            messages.append({"role": "user", "content": f"What is {number} + {turn}? বাংলা"})
            messages.append({"role": "assistant", "content": f"It is {number + turn}, বন্ধু."})
        found.append(messages)
    return found


def config_of(kind: str = "bpe", template: str = CHAT_TEMPLATE, context: int = 400, **data: Any) -> Config:
    return Config.from_dict(
        {
            "model": {"layers": 1, "width": 16, "heads": 2, "context": context, "positions": "rotary"},
            "tokenizer": {"kind": kind, "vocab_size": 400},
            "data": {"chat_template": template, "validation_fraction": 0.2, **data},
            "train": {"task": "chat", "batch": 4},
        }
    )


def prepared(folder: Path, config: Config) -> Prepared:
    path = folder / "talks.jsonl"
    rows = [json.dumps({"messages": messages}, ensure_ascii=False) for messages in conversations()]
    path.write_text("\n".join(rows), encoding="utf-8")
    data = config.data.replace(source=str(path))
    return prepare(RECORD_KINDS["chat"], data, config.tokenizer, folder / ".tokens")


def model_of(config: Config, data: Prepared) -> Decoder:
    torch.manual_seed(0)
    model = build_model(config.model, data.tokenizer.vocab_size)
    assert isinstance(model, Decoder)
    return model.eval()


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, NAMED, LINES, STARTS, TEXT_ENDS])
@pytest.mark.parametrize("kind", KINDS)
def test_a_chat_reads_the_tokens_of_training(tmp_path: Path, kind: str, template: str) -> None:
    config = config_of(kind, template)
    data = prepared(tmp_path, config)
    chat = ChatModel(model_of(config, data), data.tokenizer, config)
    known = {}
    for messages in conversations():
        text, _ = chat.chat.template.training_text(messages)
        known[text] = messages
    for store in (data.train, data.validation):
        rows = conversation_rows(store, config)
        for index, (text,) in enumerate(store.texts()):
            messages = known[text]
            ids, answer = last_question(store, index)
            assert chat.conversation_ids(messages[:-1]) == [data.tokenizer.start_id, *ids]
            assert rows[index].ids.tolist()[: len(ids) + 1] == [data.tokenizer.start_id, *ids]
            if kind not in ("words", "wordpiece"):  # these tokenizers do not restore every text
                assert messages[-1]["content"] in data.tokenizer.decode(answer)


def test_the_last_question_is_always_kept(tmp_path: Path) -> None:
    """The last question is kept, even if the conversation begins with an answer."""
    config = config_of("characters", context=100)
    data = prepared(tmp_path, config)
    chat = ChatModel(model_of(config, data), data.tokenizer, config)
    system = {"role": "system", "content": "Be brief."}
    answer = {"role": "assistant", "content": 40 * "a"}
    question = {"role": "user", "content": "What is 3 + 0?"}
    assert chat.fit_to_context([answer, question], 30) == [question]
    assert chat.fit_to_context([system, answer, question], 30, n_kept=1) == [system, question]
    assert chat.fit_to_context([answer, question, answer, question], 30) == [question]
    assert chat.fit_to_context([answer, question], 1) == [answer, question]
    short = {"role": "assistant", "content": "3"}
    assert chat.fit_to_context([answer, question, short, question], 12) == [short, question]
    long = {"role": "user", "content": 100 * "b"}
    with pytest.raises(GlassError, match=r"the question has 117 tokens.*\nAsk a shorter question\."):
        chat.fit_to_context([answer, long], 30)
    with pytest.raises(GlassError, match=r"the system message have .*\nShorten the question or the system message\."):
        chat.fit_to_context([system, answer, long], 30, n_kept=1)


@pytest.mark.parametrize("pairs", [0, 1, 7, pytest.param(100, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kept", [0, 1])
def test_as_few_messages_as_possible_are_dropped(
    tmp_path: Path, pairs: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of("characters", context=120)
    data = prepared(tmp_path, config)
    chat = ChatModel(model_of(config, data), data.tokenizer, config)
    messages = [{"role": "system", "content": "Be brief."}][:kept]
    for number in range(pairs):
        messages.append({"role": "user", "content": f"What is {number}?"})
        messages.append({"role": "assistant", "content": "It is" + number % 5 * "."})
    messages.append({"role": "user", "content": "What is 3 + 0?"})
    left = list(messages)
    while len(chat.conversation_ids(left)) > 120 - 20:
        del left[kept : kept + 2]
    lengths = []
    read = chat.conversation_ids

    def counted(given: list[dict[str, str]]) -> list[int]:
        lengths.append(len(given))
        return read(given)

    monkeypatch.setattr(chat, "conversation_ids", counted)
    assert chat.fit_to_context(messages, 20, kept) == left
    assert len(lengths) <= 9  # rendering a long conversation is slow, so the template is not rendered for each message


TOKENS_ONLY = "{% for m in messages %}{{ bos_token }}{{ m.content }}{{ eos_token }}{{ eos_token }}{% endfor %}"
CHANGED = "{%% for m in messages %%}{{ %s }}{{ eos_token }}{%% endfor %%}"
CHANGES = (
    "m.content | trim",
    "m.content.replace('\\n', ' ')",
    "m.content | e",
    "m.content[:60]",
    "m.content.replace('  ', ' ')",
    "m.content | lower",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("template", "apart"),
    [
        (CHAT_TEMPLATE, True),
        (TOKENS_ONLY, True),
        (NAMED, False),
        (LINES, False),
        (TEXT_ENDS, False),
        *((CHANGED % change, False) for change in CHANGES),
    ],
)
def test_the_tokens_around_a_question_are_always_the_same(
    tmp_path: Path, kind: str, template: str, apart: bool
) -> None:
    config = config_of(kind, template)
    data = prepared(tmp_path, config)
    chat = ChatModel(model_of(config, data), data.tokenizer, config)
    found = chat.around_question()
    assert (found is not None) == apart
    if found is not None:
        before, after = found
        for question in ("What is 7 + 2? বাংলা", " spaces ", "a\nb", "<|end|> is no token"):
            assert chat.prompt_ids(question) == [*before, *data.tokenizer.encode(question), *after]


def test_only_answers_contribute_to_the_loss(tmp_path: Path) -> None:
    """The loss is that of the answers alone, and the logits of the prompt have no gradient."""
    config = config_of()
    data = prepared(tmp_path, config)
    model = model_of(config, data)
    rows = ChatTask(config, data).rows(0)
    batch = Batch.from_rows(rows)
    logits = logits_of(model, batch)  # (B, T, V)
    logits.retain_grad()
    loss = summed_loss(logits, batch)
    loss.backward()
    assert logits.grad is not None
    taught = logits.grad.abs().sum(dim=-1) > 0  # (B, T)
    assert torch.equal(taught, batch.loss_mask)
    assert 0 < batch.n_targets < batch.attention_mask.sum()
    for number, row in enumerate(rows):
        assert row.loss_mask is not None
        counted = row.targets[row.loss_mask]
        assert "What" not in data.tokenizer.decode([int(id) for id in counted])
        assert batch.loss_mask[number, : len(row.targets)].tolist() == row.loss_mask.tolist()
    found = TrainingLoss(model)(batch)
    assert found.item() == pytest.approx(loss.item(), rel=1e-5)


def test_the_words_of_a_question_do_not_change_the_targets(tmp_path: Path) -> None:
    config = config_of()
    data = prepared(tmp_path, config)
    model = model_of(config, data)
    row = ChatTask(config, data).rows(0)[0]
    assert row.loss_mask is not None
    other = row.targets.copy()
    prompt = np.flatnonzero(~row.loss_mask)
    other[prompt] = (other[prompt] + 1) % data.tokenizer.vocab_size
    changed = Row(row.inputs, other, shifted=True, loss_mask=row.loss_mask)
    losses = [TrainingLoss(model)(Batch.from_rows([each])).item() for each in (row, changed)]
    assert losses[0] == losses[1]


def test_text_and_conversation_rows_share_a_batch(tmp_path: Path) -> None:
    """As with `data.mix`, every target counts in a row without a loss mask."""
    config = config_of()
    data = prepared(tmp_path, config)
    row = ChatTask(config, data).rows(0)[0]
    plain = Row.of_text(np.arange(5))
    batch = Batch.from_rows([plain, row])
    assert batch.loss_mask[0].sum() == 4
    assert row.loss_mask is not None
    assert batch.n_targets == 4 + row.loss_mask.sum()


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_long_conversations_keep_their_last_tokens(tmp_path: Path, kind: str) -> None:
    long = config_of(kind)
    short = config_of(kind, context=12)
    data = prepared(tmp_path, long)
    for whole, cut in zip(conversation_rows(data.train, long), conversation_rows(data.train, short), strict=True):
        assert cut.ids.tolist() == whole.ids.tolist()[-13:]
        assert cut.loss_mask is not None
        assert whole.loss_mask is not None
        assert cut.loss_mask.tolist() == whole.loss_mask.tolist()[-12:]
        assert cut.loss_mask[-1]
    left = config_of(kind, context=40, too_long="leave_out")
    fitting = conversation_rows(data.train, left)
    assert all(len(row.inputs) <= 40 for row in fitting)


@pytest.mark.parametrize("beams", [1, 3])
def test_answers_end_at_the_templates_end_text(tmp_path: Path, beams: int) -> None:
    """The text with which a template ends an answer also ends a generated answer, and is left out."""
    config = config_of("characters", LINES)
    data = prepared(tmp_path, config)
    chat = ChatModel(model_of(config, data), data.tokenizer, config)
    assert chat.chat.ending == (("\nuser:",), frozenset())
    settings = SampleConfig(tokens=30, temperature=0, beams=beams)
    asked = conversations()[5][:-1]
    text = "".join(chat.reply(asked, settings))
    ids = chat.conversation_ids(asked)
    assert chat.answers([ids[1:]], settings)[0].text == text
    assert "\nuser:" not in text
    named = ChatModel(model_of(config, data), data.tokenizer, config_of("characters", NAMED))
    assert named.chat.ending == ((), frozenset({data.tokenizer.end_id}))
    marked = ChatModel(model_of(config, data), data.tokenizer, config_of("characters", TEXT_ENDS))
    assert marked.chat.ending == (("<|im_end|>",), frozenset())
    assert marked.chat.before_answer == "<|im_start|>assistant"


@pytest.mark.parametrize("beams", [1, 3])
def test_an_answer_ends_at_the_tokenizers_or_the_templates_end_token(tmp_path: Path, beams: int) -> None:
    """The tokenizer's end token may differ from that of the template; each of them ends an answer."""
    template = NAMED.replace("{{ eos_token }}", "<|unknown|>")
    config = config_of("words", NAMED).with_changes({"model.tied": "false", "model.head_bias": "true"})
    data = prepared(tmp_path, config)
    tokenizer = data.tokenizer
    assert tokenizer.unknown_id is not None
    model = model_of(config, data)
    assert isinstance(model.head.bias, torch.Tensor)
    chat = ChatModel(model, tokenizer, config, ChatTemplate(template))
    assert chat.chat.ending == ((), frozenset({tokenizer.unknown_id}))
    asked = conversations()[5][:-1]
    settings = SampleConfig(tokens=6, temperature=0, beams=beams)
    for id, count in ((tokenizer.end_id, 1), (tokenizer.unknown_id, 1), (0, 6)):
        with torch.no_grad():
            model.head.bias.zero_()
            model.head.bias[id] = 1000.0
        found = chat.answers([chat.conversation_ids(asked)[1:]], settings)[0]
        assert found.tokens == count
        assert found.ended == ("end" if count == 1 else "length")
        assert "".join(chat.reply(asked, settings)) == found.text
        assert write_receipt(chat, "What?", settings=settings, step=count).token == id
        if count == 1:
            with pytest.raises(GlassError, match=r"1 token \(ended by an end token\)"):
                write_receipt(chat, "What?", settings=settings, step=2)


def test_a_receipt_ends_at_the_templates_end_text(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.content }}ii{% endfor %}"
    config = config_of("characters", template).with_changes({"model.tied": "false", "model.head_bias": "true"})
    data = prepared(tmp_path, config)
    model = model_of(config, data)
    (letter,) = data.tokenizer.encode("i")
    assert isinstance(model.head.bias, torch.Tensor)
    with torch.no_grad():
        model.head.bias[letter] = 1000.0
    chat = ChatModel(model, data.tokenizer, config)
    assert chat.chat.ending == (("ii",), frozenset())
    settings = SampleConfig(tokens=6, temperature=0)
    assert chat.generate(["What?"], settings)[0].tokens == 2
    assert write_receipt(chat, "What?", settings=settings, step=2).token == letter
    with pytest.raises(GlassError, match=r"2 tokens \(ended by a stop string\)"):
        write_receipt(chat, "What?", settings=settings, step=3)


def test_a_chat_reads_messages_as_training_did(tmp_path: Path) -> None:
    """Check role names, consecutive messages of one role, and an empty first message."""
    config = config_of("characters")
    data = prepared(tmp_path, config)
    chat = ChatModel(model_of(config, data), data.tokenizer, config)
    end = data.tokenizer.end_id
    twice = [{"role": "human", "content": "a"}, {"role": "user", "content": "b"}]
    assert chat.conversation_ids(twice) == chat.conversation_ids([{"role": "user", "content": "a\nb"}])
    empty = [{"role": "developer", "content": ""}, {"role": "user", "content": "a"}]
    text, _ = chat.chat.template.training_text(
        [{**empty[0], "role": "system"}, empty[1], {"role": "assistant", "content": "b"}]
    )
    assert text.startswith(f"system{END_MARK}{END_MARK}user{END_MARK}a")
    system = data.tokenizer.encode("system")
    assert chat.conversation_ids(empty)[: 3 + len(system)] == [end, *system, end, end]
    for wrong in ([], [{"role": "user"}], [{"role": "cook", "content": "x"}], [{"role": "user", "content": "\ud83d"}]):
        with pytest.raises(GlassError):
            chat.conversation_ids(wrong)


def test_a_prompt_is_a_conversation_of_one_question(tmp_path: Path) -> None:
    config = config_of()
    data = prepared(tmp_path, config)
    chat = ChatModel(model_of(config, data), data.tokenizer, config)
    question = "What is 3 + 0?"
    settings = SampleConfig(tokens=12, seed=4)
    one = chat.generate([question], settings)[0].text
    assert one == "".join(chat.reply([{"role": "user", "content": question}], settings))
    assert one == "".join(chat.stream(question, settings))
    with_end = f"What is {data.tokenizer.token_text(data.tokenizer.end_id)}?"
    ids = chat.prompt_ids(with_end)
    assert ids.count(data.tokenizer.end_id) == 4  # the start, after both roles and the question: user input is text


def test_the_default_template_tells_all_conversations_apart(tmp_path: Path) -> None:
    """Conversations with other roles, contents or numbers of messages have other ids, even if contents are empty."""
    config = config_of("characters")
    data = prepared(tmp_path, config)
    chat = ChatModel(model_of(config, data), data.tokenizer, config)
    assert chat.chat.equal_roles == frozenset()
    found: dict[tuple[int, ...], object] = {}
    for roles in [each for count in (1, 2, 3) for each in product(ROLES, repeat=count)]:
        if roles[-1] == "assistant" or any(first == second for first, second in pairwise(roles)):
            continue
        for contents in product(("", "a", "user", "assistant"), repeat=len(roles)):
            messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]
            ids = tuple(chat.conversation_ids(messages))
            assert ids not in found
            found[ids] = messages
    assert len(found) > 400


BARE = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
QUESTION = {"role": "user", "content": "What is 3 + 0?"}
ANSWER = {"role": "assistant", "content": "It is 3."}
SYSTEM = {"role": "system", "content": "Be brief."}


def test_a_template_without_roles_distinguishes_only_questions_and_answers_in_turn(tmp_path: Path) -> None:
    config = config_of(template=BARE)
    data = prepared(tmp_path, config)
    chat = ChatModel(model_of(config, data), data.tokenizer, config)
    assert chat.chat.equal_roles == {"system", "user", "assistant"}
    assert chat.conversation_ids([QUESTION, ANSWER, QUESTION])
    for wrong in ([SYSTEM, QUESTION], [ANSWER, QUESTION], [QUESTION, SYSTEM], [QUESTION, SYSTEM, QUESTION]):
        with pytest.raises(GlassError, match=r"the chat template writes this message of the role .* like one of"):
            chat.conversation_ids(wrong)
    (note,) = [note for note in _notes_on_rows(data, config) if "alike" in note]
    assert note.startswith("the chat template and the tokenizer write the roles assistant and system and user alike")


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, NAMED, STARTS, BARE])
def test_a_conversation_that_ends_with_an_answer_is_refused(tmp_path: Path, template: str) -> None:
    config = config_of(template=template)
    data = prepared(tmp_path, config)
    chat = ChatModel(model_of(config, data), data.tokenizer, config)
    for ended in ([QUESTION, ANSWER], [ANSWER], [QUESTION, {"from": "gpt", "value": "It is 3."}]):
        with pytest.raises(
            GlassError, match=r"ends with a message of the assistant.*\nEnd it with a message of the user"
        ):
            chat.conversation_ids(ended)
        with pytest.raises(GlassError, match="ends with a message of the assistant"):
            chat.answer(ended, SampleConfig(tokens=2))


def test_messages_that_a_template_does_not_write_are_refused(tmp_path: Path) -> None:
    template = NAMED.replace("{{ m.role }}", "{% if m.role != 'system' %}{{ m.role }}").replace("\n", "\n{% endif %}")
    config = config_of(template=template)
    data = prepared(tmp_path, config)
    chat = ChatModel(model_of(config, data), data.tokenizer, config)
    assert chat.conversation_ids([QUESTION, ANSWER, QUESTION])
    for wrong in ([SYSTEM, QUESTION], [QUESTION, ANSWER, SYSTEM, QUESTION]):
        with pytest.raises(GlassError, match=r"does not write this message of the role system.*\nLeave this message"):
            chat.conversation_ids(wrong)


def test_roles_that_a_tokenizer_does_not_know_are_said(tmp_path: Path) -> None:
    """With --from, the tokenizer may not know the names of the roles."""
    config = config_of("words")
    data = prepared(tmp_path, config)
    tokenizer = train_tokenizer(config.tokenizer, ["What is 3 + 0 ?"])
    assert TokenizedTemplate(ChatTemplate(CHAT_TEMPLATE), tokenizer).equal_roles == {"system", "user", "assistant"}
    assert TokenizedTemplate(ChatTemplate(CHAT_TEMPLATE), data.tokenizer).equal_roles == frozenset()
