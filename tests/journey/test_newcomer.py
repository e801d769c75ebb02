"""Import a Hugging Face model, train it further, use it, evaluate it, and export it again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from glassformer.runs.folder import Run
from glassformer.runs.opening import OpenedRun
from tests.journey.command_output import facts
from tests.journey.commands import here
from tests.journey.task_files import BOOK, MAILS, write_book, write_conversations, write_mails
from tests.journey.their_models import BEGIN, bytes_bpe, saved, wordpiece
from tests.parity.hugging_face import transformers

TAUGHT = ["--train.threads=1", "--train.batch=8", "--train.evaluate_every=20", "--train.learning_rate=0.01"]
QUESTION = "the old dog sleeps . what does the dog do ?"
ANSWER = ("--temperature=0", "--repetition-penalty=1", "--tokens=12")
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MAIL = "win a 7 pound prize now"
AS_TRANSFORMERS = 1e-4
"""Largest allowed difference between logits here and in transformers: both use float32, but sum in different orders."""


def taught(*words: str, begin_from: str, out: str, folder: Path) -> dict[str, Any]:
    """Train a new run from an existing one, and check that the loss on the new text decreased."""
    said = facts("train", *words, "--from", begin_from, *TAUGHT, "--out", out, folder=folder)
    assert said["loss"] < 0.9 * said["first_loss"]
    return said


def remove(*folders: Path) -> None:
    for folder in folders:
        shutil.rmtree(folder)


def tensors_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(Run(run).checkpoint("best") / "model.safetensors")


def assert_equal_weights(run: Path, other: Path) -> None:
    own = tensors_of(run)
    others = tensors_of(other)
    assert own.keys() == others.keys()
    for name, tensor in own.items():
        assert torch.equal(tensor, others[name]), name


def test_an_imported_text_model_becomes_a_chat_model_and_is_exported(tmp_path: Path) -> None:
    write_book(tmp_path)
    write_conversations(tmp_path)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "bos_token_id": 0}
    saved(tmp_path / "theirs", "GPT2LMHeadModel", bytes_bpe(), **sizes)
    assert all(each["ok"] for each in facts("import", "theirs", "--out", "runs/base", folder=tmp_path)["measured"])

    book = taught("book.txt", "--steps=40", begin_from="runs/base", out="runs/book", folder=tmp_path)
    assert book["parent_losses"] is None  # the text of an imported model is not at hand
    words = ["talks.jsonl", "--task", "chat", "--steps=60"]
    talk = taught(*words, begin_from="runs/book", out="runs/talk", folder=tmp_path)
    assert talk["parent_losses"][0] == pytest.approx(book["loss"], rel=0.02)

    answer = facts("chat", "runs/talk", QUESTION, *ANSWER, folder=tmp_path)["text"]
    assert answer
    measured = facts("evaluate", "runs/talk", folder=tmp_path)
    assert measured["loss"] == pytest.approx(talk["loss"], abs=1e-5)

    exported = facts("export", "runs/talk", "--to", "hf", "--out", "out", folder=tmp_path)
    assert exported["architecture"] == "GPT2LMHeadModel"
    facts("import", "out", "--out", "runs/back", folder=tmp_path)
    assert_equal_weights(tmp_path / "runs/talk", tmp_path / "runs/back")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    asked = [{"role": "user", "content": QUESTION}]
    ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=False)
    opened = OpenedRun.load(tmp_path / "runs/talk", device="cpu")
    assert ids == opened.chat_model.conversation_ids(asked)
    prompt = torch.tensor([ids])  # (1, T)
    with torch.no_grad():
        difference = (model(prompt).logits - opened.model.eval()(prompt)).abs().max()
        limits = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": tokenizer.eos_token_id}
        written = model.generate(prompt, attention_mask=torch.ones_like(prompt), **limits)[0, len(ids) :]
    assert float(difference) < AS_TRANSFORMERS
    assert tokenizer.decode(written, skip_special_tokens=True).strip("\ufffd") == answer.strip("\ufffd")

    remove(tmp_path / "theirs", tmp_path / "runs/base", tmp_path / "runs/book")
    assert facts("chat", "runs/talk", QUESTION, *ANSWER, folder=tmp_path)["text"] == answer
    assert facts("evaluate", "runs/talk", folder=tmp_path) == measured
    assert here("export", "runs/talk", "--to", "hf", "--out", "again", folder=tmp_path).returncode == 0
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "again"))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("begin", [None, BEGIN])
def test_an_imported_chat_model_learns_with_the_special_tokens_of_its_template(
    begin: str | None, tmp_path: Path
) -> None:
    write_conversations(tmp_path)
    words = bytes_bpe(begin, ["<|im_start|>", "<|im_end|>"])
    words.chat_template = (begin or "") + CHATML
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "bos_token_id": 0}
    saved(tmp_path / "theirs", "GPT2LMHeadModel", words, **sizes)
    facts("import", "theirs", "--out", "runs/base", folder=tmp_path)
    taught("talks.jsonl", "--task", "chat", "--steps=60", begin_from="runs/base", out="runs/talk", folder=tmp_path)

    end = words.convert_tokens_to_ids("<|im_end|>")
    spelt = f"{QUESTION} <|im_end|>"
    answer = facts("chat", "runs/talk", spelt, *ANSWER, folder=tmp_path)["text"]
    chat = OpenedRun.load(tmp_path / "runs/talk", device="cpu").chat_model
    assert (chat.chat.template.source, chat.extra_end_ids) == (words.chat_template, {end})
    assert chat.prompt_ids(spelt).count(end) == 1
    settings = chat.config.sample.replace(temperature=0, repetition_penalty=1, tokens=12)
    assert "".join(chat.reply([{"role": "user", "content": spelt}], settings)) == answer
    assert facts("evaluate", "runs/talk", "test-talks.jsonl", folder=tmp_path)["examples"] == 20

    facts("export", "runs/talk", "--to", "hf", "--out", "out", folder=tmp_path)
    facts("import", "out", "--out", "runs/back", folder=tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    writing = json.loads((tmp_path / "out" / "generation_config.json").read_text(encoding="utf-8"))
    assert writing["eos_token_id"] == [words.eos_token_id, end]
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    prompt = torch.tensor([chat.prompt_ids(QUESTION)])  # (1, T)
    with torch.no_grad():
        written = model.generate(prompt, max_new_tokens=40, do_sample=False)[0, prompt.shape[1] :].tolist()
    settings = settings.replace(tokens=40)
    assert len(written) == chat.generate([QUESTION], settings)[0].tokens < 40
    assert written[-1] == end
    back = OpenedRun.load(tmp_path / "runs/back", device="cpu").chat_model
    asked = [{"role": "user", "content": QUESTION}]
    told = [*asked, {"role": "assistant", "content": "it sleeps ."}, {"role": "user", "content": "who is it ?"}]
    for messages in (asked, told):
        ids = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert ids == words.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert chat.conversation_ids(messages) == ids
        assert back.conversation_ids(messages) == ids


def test_an_imported_masked_model_becomes_a_classifier_and_is_exported(tmp_path: Path) -> None:
    write_mails(tmp_path)
    texts = [text.format(n=n) for mails in MAILS.values() for text in mails for n in range(22)]
    texts.append(BOOK)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"max_position_embeddings": 40, "pad_token_id": 0}
    saved(tmp_path / "theirs", "BertForMaskedLM", wordpiece(texts), **sizes)
    assert all(each["ok"] for each in facts("import", "theirs", "--out", "runs/base", folder=tmp_path)["measured"])

    words = ["mails.csv", "--task", "classify", "--steps=40", "--model.pooling=first"]
    said = taught(*words, begin_from="runs/base", out="runs/mails", folder=tmp_path)
    child = tmp_path / "runs/mails"
    assert (child / "tokenizer.json").read_bytes() == (tmp_path / "runs/base/tokenizer.json").read_bytes()
    measured = facts("evaluate", "runs/mails", "test.csv", folder=tmp_path)
    assert measured["accuracy"] > 0.7  # three labels
    found = facts("classify", "runs/mails", MAIL, folder=tmp_path)
    assert found["texts"][0]["label"] == "spam"

    facts("export", "runs/mails", "--to", "hf", "--out", "out", folder=tmp_path)
    facts("import", "out", "--out", "runs/back", folder=tmp_path)
    assert_equal_weights(child, tmp_path / "runs/back")
    classify = transformers.pipeline("text-classification", model=str(tmp_path / "out"), device="cpu")
    theirs = {each["label"]: each["score"] for each in classify(MAIL, top_k=None)}
    assert theirs == pytest.approx(found["texts"][0]["probabilities"], abs=1e-5)

    remove(tmp_path / "theirs", tmp_path / "runs/base")
    assert facts("classify", "runs/mails", MAIL, folder=tmp_path) == found
    assert facts("evaluate", "runs/mails", folder=tmp_path)["loss"] == pytest.approx(said["loss"], abs=1e-5)
