"""`glass import` of sound, unusual and damaged folders: inexact imports are refused, without a new run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from glassformer.app.server.engine.loaded import LoadedCheckpoint
from glassformer.app.server.registry import ModelRegistry
from glassformer.base.config import SampleConfig
from glassformer.generation.decoding import generate
from glassformer.runs.folder import Run
from glassformer.runs.opening import OpenedRun
from glassformer.tasks.written_text import Sample
from tests.journey.commands import here
from tests.journey.task_runs import refused
from tests.journey.their_models import BEGIN, END, GPT2, LLAMA, T5, bytes_bpe, saved, unigram
from tests.parity.hugging_face import change_config, transformers
from tests.parity.written_runs import make_run


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that contains `gpt2`, a model saved by transformers."""
    folder = tmp_path_factory.mktemp("import")
    saved(folder / "gpt2", "GPT2LMHeadModel", bytes_bpe(), **GPT2)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an exported classifier with three labels."""
    folder = tmp_path_factory.mktemp("bert")
    run = make_run(
        folder / "run", "classify", family="encoder", norm_order="post", embedding_norm=True, pooling="first"
    )
    done = here("export", str(run), "--to", "hf", "--out", "bert", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder / "bert"


@pytest.mark.parametrize(
    ("kind", "words", "values"),
    [
        ("GPT2LMHeadModel", bytes_bpe, GPT2),
        ("LlamaForCausalLM", lambda: bytes_bpe(BEGIN), LLAMA),
        ("T5ForConditionalGeneration", unigram, T5),
    ],
    ids=["bpe", "bpe with a token before each text", "unigram, and texts that begin with padding"],
)
def test_an_imported_model_generates_the_same_text(
    kind: str, words: Callable[[], Any], values: dict[str, Any], tmp_path: Path
) -> None:
    tokenizer = words()
    model = saved(tmp_path / "theirs", kind, tokenizer, **values)
    done = here("import", "theirs", "--out", "runs/one", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [(each["name"], each["ok"]) for each in json.loads(done.stdout)["measured"]] == [("logits", True)]
    prompt = "It was a small"
    settings = ("--tokens=12", "--temperature=0", "--beams=1", "--json")
    ours = json.loads(here("generate", "runs/one", prompt, *settings, folder=tmp_path).stdout)["text"]
    given = tokenizer(prompt, return_tensors="pt")["input_ids"]
    limits = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": tokenizer.eos_token_id}
    found = model.generate(given, attention_mask=torch.ones_like(given), **limits)[0]
    theirs = tokenizer.decode(found, skip_special_tokens=True)
    wanted = theirs if kind.startswith("T5") else theirs.removeprefix(prompt)
    assert ours.strip("\ufffd ").split("\ufffd") == wanted.strip("\ufffd ").split("\ufffd")
    assert here("evaluate", "runs/one", folder=tmp_path).returncode == 2  # its own text is not here


def test_a_text_ends_at_each_of_several_end_tokens(home: Path, tmp_path: Path) -> None:
    def written(run: str) -> Sample:
        writer = OpenedRun.load(tmp_path / "runs" / run, device="cpu").writer
        return writer.generate(["It was a small"], SampleConfig(tokens=12, temperature=0))[0]

    shutil.copytree(home / "gpt2", tmp_path / "gpt2")
    assert here("import", "gpt2", "--out", "runs/one", folder=tmp_path).returncode == 0
    opened = OpenedRun.load(tmp_path / "runs/one", device="cpu")
    prompt = opened.tokenizer.encode("It was a small")
    ids = [step.tokens[0] for step in generate(opened.model, [prompt], SampleConfig(tokens=12, temperature=0))]
    end = ids[3]
    path = tmp_path / "gpt2" / "generation_config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**values, "eos_token_id": [0, end, 10**6]}), encoding="utf-8")
    assert here("import", "gpt2", "--out", "runs/two", folder=tmp_path).returncode == 0
    assert written("one").ended == "length"
    assert (written("two").tokens, written("two").ended) == (ids.index(end) + 1, "end")
    served = ModelRegistry([tmp_path / "runs/two"], "cpu", "torch").open("two")
    assert LoadedCheckpoint(served).token_loop().end_ids == {0, end}

    assert here("export", "runs/two", "--to", "hf", "--out", "out", folder=tmp_path).returncode == 0
    exported = json.loads((tmp_path / "out" / "generation_config.json").read_text(encoding="utf-8"))
    assert exported["eos_token_id"] == [0, end]
    assert here("import", "out", "--out", "runs/back", folder=tmp_path).returncode == 0
    assert written("back") == written("two")


def test_shards_and_other_precisions_are_read(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    shutil.copytree(home / "gpt2", folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = {"one.safetensors": sorted(tensors)[::2], "two.safetensors": sorted(tensors)[1::2]}
    for file, keys in names.items():
        save_file({key: tensors[key].bfloat16() for key in keys}, folder / file, {"format": "pt"})
    table = {"metadata": {}, "weight_map": {key: file for file, keys in names.items() for key in keys}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(table), encoding="utf-8")
    done = here("import", "parts", "--out", "runs/parts", folder=tmp_path)
    assert done.returncode == 0, done.stderr


def tensors_of(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def tokenizer_of(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def index_of(folder: Path, file: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": file}}), encoding="utf-8")


def no_end(folder: Path, id: int) -> None:
    (folder / "tokenizer_config.json").unlink()
    (folder / "generation_config.json").unlink()
    change_config(folder, eos_token_id=id)


def cut(path: Path, share: float = 0.5) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


WEIGHT = "transformer.h.1.mlp.c_fc.weight"
BIAS = "transformer.h.1.mlp.c_fc.bias"
Spoil = Callable[[Path], Any]
SPOILT: dict[str, tuple[Spoil, str, str]] = {
    "no folder": (lambda f: shutil.rmtree(f), "is not a folder", "config.json"),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json does not exist", ""),
    "config that is no JSON": (lambda f: (f / "config.json").write_text("{'a': 1"), "not valid JSON", "Copy"),
    "config that is a list": (lambda f: (f / "config.json").write_text("[]"), "not a JSON object", "Copy"),
    "no model type": (lambda f: change_config(f, model_type=...), "has no field model_type", "gpt2"),
    "unknown architecture": (
        lambda f: change_config(f, model_type="rwkv7"),
        "unknown architecture 'rwkv7'",
        "Choose one of",
    ),
    "near architecture": (lambda f: change_config(f, model_type="gpt"), "unknown architecture 'gpt'", "gpt2"),
    "olmo3": (lambda f: change_config(f, model_type="olmo3"), "olmo3", "olmo2"),
    "another head": (
        lambda f: change_config(f, architectures=["GPT2ForSequenceClassification"]),
        "GPT2ForSequenceClassification",
        "GPT2LMHeadModel",
    ),
    "a field that is missing": (lambda f: change_config(f, n_layer=...), "has no field n_layer", ""),
    "a field that is text": (lambda f: change_config(f, n_embd="30"), "n_embd = '30'", "whole number"),
    "a field below one": (lambda f: change_config(f, n_layer=0), "layers = 0", "1 or more"),
    "heads that do not divide": (lambda f: change_config(f, n_head=7), "n_head = 7", "Correct"),
    "another width": (lambda f: change_config(f, n_embd=35), "implies", "same model"),
    "another vocabulary": (lambda f: change_config(f, vocab_size=777), "777", "same model"),
    "more layers": (lambda f: change_config(f, n_layer=3), "has no tensor transformer.h.2.", "Copy"),
    "fewer layers": (
        lambda f: change_config(f, n_layer=1),
        "tensor that gpt2 models do not have: transformer.h.1.",
        "no effect on the result",
    ),
    "an activation that is not ours": (
        lambda f: change_config(f, activation_function="quick_gelu"),
        "quick_gelu",
        "gelu_new",
    ),
    "scores that are scaled otherwise": (
        lambda f: change_config(f, scale_attn_by_inverse_layer_idx=True),
        "scale_attn_by_inverse_layer_idx = True",
        "False",
    ),
    "a field that nobody knows": (
        lambda f: change_config(f, secret_scale=2.0),
        "secret_scale",
        "no effect on the result",
    ),
    "quantised": (lambda f: change_config(f, quantization_config={"bits": 4}), "quantization_config", ""),
    "a head that is not tied": (lambda f: change_config(f, tie_word_embeddings=False), "lm_head.weight", ""),
    "a million layers": (lambda f: change_config(f, n_layer=10**6), "1000000 layers", "same model"),
    "an epsilon that is no number": (lambda f: change_config(f, layer_norm_epsilon=float("nan")), "= nan", "a number"),
    "a list for a name": (lambda f: change_config(f, architectures=[["x"]]), "['x'], which is not supported", "GPT2"),
    "truncated weights": (lambda f: cut(f / "model.safetensors"), "not a complete safetensors file", "Copy"),
    "empty weights": (lambda f: (f / "model.safetensors").write_bytes(b""), "not a complete safetensors file", "Copy"),
    "foreign weights": (lambda f: (f / "model.safetensors").write_bytes(b"PK\3\4" * 99), "not a complete", "Copy"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors", ""),
    "a pickle": (
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        "pytorch_model.bin",
        "save_pretrained",
    ),
    "another pickle": (lambda f: (f / "model.safetensors").rename(f / "model.pt"), "model.pt", "save_pretrained"),
    "a missing shard": (lambda f: index_of(f, "gone.safetensors"), "gone.safetensors is missing", "Copy"),
    "a shard elsewhere": (lambda f: index_of(f, "../gpt2.safetensors"), "outside its folder", ""),
    "a missing tensor": (lambda f: tensors_of(f, lambda t: t.pop(WEIGHT)), f"has no tensor {WEIGHT}", "Copy"),
    "a tensor too many": (
        lambda f: tensors_of(f, lambda t: t.update(extra=torch.ones(2))),
        "extra",
        "Remove the tensor",
    ),
    "a turned tensor": (
        lambda f: tensors_of(f, lambda t: t.update({WEIGHT: t[WEIGHT].T.contiguous()})),
        WEIGHT,
        "Copy",
    ),
    "a tensor with nan": (lambda f: tensors_of(f, lambda t: t[WEIGHT].fill_(float("nan"))), "not finite", "damaged"),
    "a quantised tensor": (
        lambda f: tensors_of(f, lambda t: t.update({WEIGHT: t[WEIGHT].to(torch.int8)})),
        "I8",
        "float32",
    ),
    "a quantised bias": (lambda f: tensors_of(f, lambda t: t.update({BIAS: t[BIAS].to(torch.int8)})), "I8", "float32"),
    "complex numbers": (
        lambda f: tensors_of(f, lambda t: t.update({WEIGHT: t[WEIGHT].to(torch.complex64)})),
        "C64",
        "float32",
    ),
    "a head that differs": (
        lambda f: tensors_of(f, lambda t: t.update({"lm_head.weight": t["transformer.wte.weight"] + 1})),
        "lm_head.weight differs",
        "tie_word_embeddings",
    ),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer.json", "AutoTokenizer"),
    "a tokenizer that is cut": (lambda f: cut(f / "tokenizer.json"), "not valid JSON", "Copy"),
    "a tokenizer that is none": (lambda f: (f / "tokenizer.json").write_text("{}"), "is not a tokenizer", "Copy"),
    "a larger tokenizer": (
        lambda f: tokenizer_of(f, lambda v: v["model"]["vocab"].update(zzz=999)),
        "1,000 tokens",
        "trained with",
    ),
    "bpe of characters": (
        lambda f: tokenizer_of(f, lambda v: v.update(pre_tokenizer={"type": "Whitespace"})),
        "BPE of characters",
        "byte-level BPE",
    ),
    "letters that are no bytes": (
        lambda f: tokenizer_of(f, lambda v: v["model"].update(vocab={**v["model"]["vocab"], "আ": 299})),
        "is not a byte-level token",
        "byte-level BPE",
    ),
    "words that are cut at random": (
        lambda f: tokenizer_of(f, lambda v: v["model"].update(dropout=0.5)),
        "dropout = 0.5",
        "null",
    ),
    "an end below all": (lambda f: no_end(f, -1), "no token that ends a text", "eos_token"),
    "an end beyond all": (lambda f: no_end(f, 2**70), "no token that ends a text", "eos_token"),
    "words": (
        lambda f: tokenizer_of(
            f, lambda v: v.update(model={"type": "WordLevel", "vocab": {END: 0, "a": 1}, "unk_token": "a"})
        ),
        "WordLevel",
        "byte-level BPE",
    ),
    "another frame": (
        lambda f: tokenizer_of(
            f,
            lambda v: v.update(
                post_processor={
                    "type": "TemplateProcessing",
                    "pair": [],
                    "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": END, "type_id": 0}}],
                    "special_tokens": {END: {"id": END, "ids": [0], "tokens": [END]}},
                }
            ),
        ),
        f"TEXT {END}",
        "read_model",
    ),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_damaged_folder_is_refused_with_the_reason(name: str, home: Path, tmp_path: Path) -> None:
    spoil, wrong, right = SPOILT[name]
    shutil.copytree(home / "gpt2", tmp_path / "gpt2")
    spoil(tmp_path / "gpt2")
    problem, remedy = refused("import", "gpt2", "--out", "runs/one", folder=tmp_path)
    assert wrong in problem
    assert right in remedy
    assert not (tmp_path / "runs").exists()


LLAMAS: dict[str, tuple[dict[str, Any], str]] = {
    "long rope": ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "rope_theta": 1e4}}, "llama3"),
    "old long rope": ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
    "part of a head": ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary"),
    "an activation": ({"hidden_act": "relu"}, "hidden_act = 'relu'"),
    "softcap": ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    "window": ({"sliding_window": 8}, "sliding_window"),
    "no key heads": ({"num_key_value_heads": 0}, "kv_heads = 0"),
    "what makes them say several lines": ({"bos_token_id": "a\nb"}, "cannot load"),
    "no number": ({"rope_parameters": {"rope_type": "default", "rope_theta": float("nan")}}, "rope_theta = nan"),
}


@pytest.mark.parametrize("name", LLAMAS)
def test_unsupported_settings_are_not_ignored(name: str, tmp_path: Path) -> None:
    changes, wrong = LLAMAS[name]
    saved(tmp_path / "llama", "LlamaForCausalLM", bytes_bpe(), **LLAMA)
    change_config(tmp_path / "llama", **changes)
    assert wrong in refused("import", "llama", "--out", "runs/one", folder=tmp_path)[0]


LABELLINGS: dict[str, tuple[dict[str, Any], str]] = {
    "two labels with one name": (
        {"id2label": {"0": "ham", "1": "spam", "2": "ham"}, "label2id": {"ham": 2, "spam": 1}},
        "has two labels with the name 'ham'",
    ),
    "a label without a name": ({"id2label": {"0": "ham", "2": "other"}}, "does not name every label from 0 on"),
    "other numbers": (
        {"label2id": {"ham": 2, "spam": 1, "other": 0}},
        "'ham' is label 0 in id2label of bert/config.json, but label 2 in its label2id",
    ),
    "several labels": ({"problem_type": "multi_label_classification"}, "problem_type = multi_label_classification"),
    "a number": (
        {"problem_type": "regression", "id2label": {"0": "score"}, "label2id": {"score": 0}},
        "only one label",
    ),
}


@pytest.mark.parametrize("name", LABELLINGS)
def test_labels_that_are_not_those_of_the_scores_are_refused(name: str, bert: Path, tmp_path: Path) -> None:
    values, wrong = LABELLINGS[name]
    shutil.copytree(bert, tmp_path / "bert")
    change_config(tmp_path / "bert", **values)
    problem, _ = refused("import", "bert", "--out", "runs/one", folder=tmp_path)
    assert wrong in problem
    assert not (tmp_path / "runs").exists()


def test_names_that_were_given_only_for_the_scores_are_read(bert: Path, tmp_path: Path) -> None:
    """transformers leaves the default in `label2id` if only `id2label` is set."""
    shutil.copytree(bert, tmp_path / "bert")
    default = {f"LABEL_{number}": number for number in range(3)}
    change_config(tmp_path / "bert", label2id=default, problem_type="single_label_classification")
    done = here("import", "bert", "--out", "one", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert OpenedRun.load(tmp_path / "one", device="cpu").labels == ("ham", "spam", "other")


def test_a_missing_class_name_is_derived_from_the_model_type(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "gpt2", tmp_path / "gpt2")
    change_config(tmp_path / "gpt2", architectures=...)
    done = here("import", "gpt2", "--out", "runs/one", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "GPT2LMHeadModel" in done.stdout


def test_generation_settings_are_reported_and_an_invalid_first_token_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "t5", "T5ForConditionalGeneration", unigram(), **T5)
    path = tmp_path / "t5" / "generation_config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**values, "no_repeat_ngram_size": 3}), encoding="utf-8")
    assert "no_repeat_ngram_size = 3" in here("import", "t5", "--out", "runs/one", folder=tmp_path).stdout
    path.write_text(json.dumps({**values, "forced_bos_token_id": 10**6}), encoding="utf-8")
    assert "forced_bos_token_id = 1000000" in refused("import", "t5", "--out", "runs/two", folder=tmp_path)[0]
    path.unlink()
    change_config(tmp_path / "t5", decoder_start_token_id=...)
    assert "decoder_start_token_id = None" in refused("import", "t5", "--out", "runs/two", folder=tmp_path)[0]


def test_layers_with_different_windows_are_refused(tmp_path: Path) -> None:
    values = {key: v for key, v in LLAMA.items() if key != "head_dim"}
    window = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    saved(tmp_path / "qwen", "Qwen2ForCausalLM", bytes_bpe(), **values, **window)
    assert "layer_types" in refused("import", "qwen", "--out", "runs/one", folder=tmp_path)[0]


def test_an_existing_run_is_not_overwritten(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "gpt2", tmp_path / "gpt2")
    assert here("import", "gpt2", "--out", "runs/one", folder=tmp_path).returncode == 0
    assert "already contains a run" in refused("import", "gpt2", "--out", "runs/one", folder=tmp_path)[0]


ASKED = [{"role": "user", "content": "It was a small day."}]
CHAT = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
SHOUTED = "{% for m in messages %}{{ m.content | upper }}{% endfor %}"
TEMPLATES: dict[str, tuple[Any, str | None, str]] = {  # what the tokenizer has, the template that is taken, the note
    "one": (CHAT, CHAT, ""),
    "one with a name": ({"default": CHAT}, CHAT, ""),
    "several": (
        {"rag": SHOUTED, "default": CHAT, "tool_use": SHOUTED},
        CHAT,
        "note: imported the chat template named default; left out: rag, tool_use",
    ),
    "no default": (
        {"rag": SHOUTED, "tool_use": SHOUTED},
        None,
        "note: no chat template is imported: the folder has templates named rag, tool_use, but none named default. "
        "Copy one of them to runs/one/chat_template.jinja",
    ),
}


@pytest.mark.parametrize("in_files", [True, False])
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_default_of_named_chat_templates_is_used(name: str, in_files: bool, home: Path, tmp_path: Path) -> None:
    given, taken, note = TEMPLATES[name]
    shutil.copytree(home / "gpt2", tmp_path / "gpt2")
    words = bytes_bpe()
    words.chat_template = given
    words.save_pretrained(tmp_path / "gpt2", save_jinja_files=in_files)
    done = here("import", "gpt2", "--out", "runs/one", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout.replace("\\", "/")
    assert note in said
    assert ("chat template" in said) == bool(note)
    assert Run(tmp_path / "runs/one").chat_template() == taken
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "gpt2")
    if taken is None:
        with pytest.raises(ValueError, match="no default"):
            theirs.apply_chat_template(ASKED)
        return
    ids = theirs.apply_chat_template(ASKED, return_dict=False)
    assert OpenedRun.load(tmp_path / "runs/one", device="cpu").chat_model.conversation_ids(ASKED) == ids


def test_chat_template_files_take_precedence_over_entries(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "gpt2", tmp_path / "gpt2")
    words = bytes_bpe()
    words.chat_template = CHAT
    words.save_pretrained(tmp_path / "gpt2", save_jinja_files=False)
    (tmp_path / "gpt2" / "chat_template.jinja").write_text(SHOUTED, encoding="utf-8")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "gpt2").chat_template == SHOUTED
    assert here("import", "gpt2", "--out", "runs/one", folder=tmp_path).returncode == 0
    assert Run(tmp_path / "runs/one").chat_template() == SHOUTED


@pytest.mark.parametrize("has_own", [True, False])
def test_a_file_named_default_is_the_default(has_own: bool, home: Path, tmp_path: Path) -> None:
    """transformers also prefers `additional_chat_templates/default.jinja` to `chat_template.jinja`."""
    shutil.copytree(home / "gpt2", tmp_path / "gpt2")
    bytes_bpe().save_pretrained(tmp_path / "gpt2")
    (tmp_path / "gpt2" / "additional_chat_templates").mkdir()
    (tmp_path / "gpt2" / "additional_chat_templates" / "default.jinja").write_text(SHOUTED, encoding="utf-8")
    if has_own:
        (tmp_path / "gpt2" / "chat_template.jinja").write_text(CHAT, encoding="utf-8")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "gpt2").chat_template == SHOUTED
    done = here("import", "gpt2", "--out", "runs/one", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "chat template" not in done.stdout
    assert Run(tmp_path / "runs/one").chat_template() == SHOUTED


@pytest.mark.parametrize("name", ["chat_template.jinja", "additional_chat_templates/rag.jinja"])
def test_a_chat_template_that_cannot_be_read_is_refused(name: str, home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "gpt2", tmp_path / "gpt2")
    (tmp_path / "gpt2" / "additional_chat_templates").mkdir()
    (tmp_path / "gpt2" / name).write_bytes(b"\xff")
    problem, remedy = refused("import", "gpt2", "--out", "runs/one", folder=tmp_path)
    assert f"{Path(name).name} cannot be read" in problem
    assert remedy == "Copy it again, or remove it from the folder."
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("wrong", [3, {"a": "b"}, [1], [{"name": "default"}], [{"name": "default", "template": 3}]])
def test_chat_templates_of_an_unknown_format_are_refused(wrong: Any, home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "gpt2", tmp_path / "gpt2")
    path = tmp_path / "gpt2" / "tokenizer_config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**values, "chat_template": wrong}), encoding="utf-8")
    problem, remedy = refused("import", "gpt2", "--out", "runs/one", folder=tmp_path)
    assert "neither a string nor a list of named templates" in problem
    assert '"default"' in remedy
    assert not (tmp_path / "runs").exists()
