"""`glass export RUN --to hf`, and back with `glass import`: runs of several tasks, through the command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
pytest.importorskip("transformers")

from tests.journey.commands import here
from tests.journey.task_files import write_all
from tests.journey.task_runs import RUNS, TINY, refused
from tests.property.trainers import record_files

GPT2 = ["--model.positions=learned", "--model.activation=gelu"]
POST = ["--model.positions=learned", "--model.norm_order=post", "--model.embedding_norm=true"]
LLAMA = ["--model.positions=rotary", "--model.norm=rmsnorm", "--model.activation=swiglu"]
SETTINGS: dict[str, tuple[str, list[str], str]] = {  # a run -> its task's files, its settings, the class it becomes
    "gpt2": ("lm", GPT2, "GPT2LMHeadModel"),
    "llama": ("lm", [*LLAMA, "--tokenizer.kind=bpe", "--data.windows=documents"], "LlamaForCausalLM"),
    "masked": ("masked", [*POST, "--tokenizer.kind=wordpiece"], "BertForTokenClassification"),
    "classify": ("classify", POST, "BertMeanForSequenceClassification"),
    "translate": ("translate", [], "MBartForConditionalGeneration"),
    "marian": (
        "translate",
        [
            "--model.norm_order=post",
            "--model.positions=sinusoidal",
            "--model.embedding_norm=false",
            "--tokenizer.kind=unigram",
            "--tokenizer.vocab_size=400",
        ],
        "MarianMTModel",
    ),
}
USE = {
    "lm": ["generate", "It was", "--tokens=20"],
    "masked": ["fill", "It was a [MASK] day"],
    "classify": ["classify", "win a 7 pound prize now"],
    "translate": ["generate", "the old dog sleeps .", "--tokens=8"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tiny run of each kind, its export in `out`, and the export's report in `NAME.json`."""
    folder = tmp_path_factory.mktemp("export")
    write_all(folder)
    for name, (task, settings, _) in SETTINGS.items():
        data, *rest = RUNS[task]
        made = here("train", data, *TINY, *rest, *settings, "--steps=40", "--out", f"runs/{name}", folder=folder)
        assert made.returncode == 0, made.stderr
        done = here("export", f"runs/{name}", "--to", "hf", "--out", f"out/{name}", "--json", folder=folder)
        assert done.returncode == 0, done.stderr
        (folder / f"{name}.json").write_text(done.stdout, encoding="utf-8")
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("name", SETTINGS)
def test_an_exported_and_imported_run_gives_the_same_output(name: str, home: Path) -> None:
    task, _, kind = SETTINGS[name]
    said: dict[str, Any] = json.loads((home / f"{name}.json").read_text(encoding="utf-8"))
    assert said["architecture"] == kind
    measured = {each["name"]: each for each in said["measured"]}
    assert set(measured) == {"token ids", "logits"} | ({"greedy tokens"} if task in ("lm", "translate") else set())
    assert measured["logits"]["value"] <= 1e-4
    assert all(each["ok"] for each in said["measured"])
    back = here("import", f"out/{name}", "--out", f"runs/{name}-again", folder=home)
    assert back.returncode == 0, back.stderr
    assert f"runs/{name}-again is ready" in back.stdout.replace("\\", "/")
    command, *words = USE[task]
    one, other = (here(command, f"runs/{run}", *words, folder=home).stdout for run in (name, f"{name}-again"))
    assert one == other != ""


def test_the_exported_folder_works_without_glassformer(home: Path) -> None:
    """transformers' classes alone generate the same text."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model, words = (kind.from_pretrained(home / "out/translate") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
    found = model.generate(**words("the old dog sleeps .", return_tensors="pt"), max_new_tokens=8, do_sample=False)
    ours = here("generate", "runs/translate", "the old dog sleeps .", "--beams=1", "--tokens=8", folder=home).stdout
    assert words.decode(found[0], skip_special_tokens=True).split() == ours.split()


def test_the_printed_lines_generate_text_without_a_warning(home: Path) -> None:
    done = here("export", "runs/gpt2", "--to", "hf", "--out", "lines", folder=home)
    assert done.returncode == 0, done.stderr
    lines = done.stdout[done.stdout.index("from transformers") :].replace("TEXT", "It was").replace("50", "10")
    environment = {**os.environ, "TRANSFORMERS_VERBOSITY": "warning"}
    ran = subprocess.run(
        [sys.executable, "-c", lines], cwd=home, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("It was")
    assert "max_length" not in ran.stderr


def test_the_printed_lines_generate_the_text_of_glass_generate_at_temperature_0(home: Path) -> None:
    """With a repetition penalty, too, transformers and `glass generate` write the same greedy text."""
    folder = home / "runs/greedy"
    shutil.copytree(home / "runs/gpt2", folder)
    settings = (folder / "config.toml").read_text(encoding="utf-8")
    settings = re.sub(r"(?m)^temperature = .*$", "temperature = 0.0", settings)
    settings = re.sub(r"(?m)^repetition_penalty = .*$", "repetition_penalty = 1.7", settings)
    (folder / "config.toml").write_text(settings, encoding="utf-8")
    record_files(folder)
    done = here("export", "runs/greedy", "--to", "hf", "--out", "greedy-lines", folder=home)
    assert done.returncode == 0, done.stderr
    lines = done.stdout[done.stdout.index("from transformers") :].replace("TEXT", "It was").replace("50", "20")
    ran = subprocess.run([sys.executable, "-c", lines], cwd=home, capture_output=True, text=True, check=True)
    ours, without = (
        here("generate", "runs/greedy", "It was", "--tokens=20", *more, folder=home).stdout.strip()
        for more in ((), ("--repetition-penalty=1",))
    )
    assert ran.stdout.strip() == ours != without


def test_special_tokens_are_added_as_in_training(home: Path) -> None:
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(home / "out/llama")("It was")["input_ids"]
    assert ids[0] == AutoTokenizer.from_pretrained(home / "out/llama").eos_token_id
    ids = AutoTokenizer.from_pretrained(home / "out/marian")("the dog")["input_ids"]
    assert ids[-1] == AutoTokenizer.from_pretrained(home / "out/marian").eos_token_id


def test_existing_files_are_never_overwritten(home: Path) -> None:
    before = sorted(path.name for path in (home / "out/gpt2").iterdir())
    problem, remedy = refused("export", "runs/gpt2", "--to", "hf", "--out", "out/gpt2", folder=home)
    assert "out/gpt2 already exists" in problem
    assert "another --out" in remedy
    assert sorted(path.name for path in (home / "out/gpt2").iterdir()) == before


REFUSED = {
    "a class that cannot": (["--architecture", "llama"], "model.positions = learned", "model.positions=rotary"),
    "a class that is not": (["--architecture", "gpt3"], "unknown architecture 'gpt3'", "gpt2"),
    "another dtype": (["--dtype", "f16"], "--dtype f16", "float32"),
    "olmo3": (["--architecture", "olmo3"], "olmo3", "olmo2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_exports_are_refused_and_leave_nothing(name: str, home: Path) -> None:
    words, wrong, right = REFUSED[name]
    problem, remedy = refused("export", "runs/gpt2", "--to", "hf", "--out", "new/one", *words, folder=home)
    assert wrong in problem
    assert right in remedy
    assert not (home / "new").exists()


def test_a_class_that_derives_positions_from_padding_is_refused(home: Path) -> None:
    words = ("--to", "hf", "--out", "new/m", "--architecture", "roberta")
    problem, remedy = refused("export", "runs/masked", *words, folder=home)
    assert "padding token" in problem
    assert "--architecture bert" in remedy


def test_a_run_with_a_grapheme_tokenizer_is_refused(home: Path) -> None:
    done = here("train", "book.txt", *TINY, "--tokenizer.kind=graphemes", "--steps=5", "--out", "runs/g", folder=home)
    assert done.returncode == 0, done.stderr
    problem, remedy = refused("export", "runs/g", "--to", "hf", "--out", "new/g", folder=home)
    assert "tokenizer.kind = graphemes" in problem
    assert "tokenizer.kind=characters" in remedy
