"""lm-evaluation-harness, which queries `glass serve`, measures the same accuracy on minimal pairs as `glass probe`.

Run it with `pip install "lm_eval[api]==0.4.13"` and `pytest tests/outside/lm_eval_check.py`. The file's name does not
begin with `test_`, so pytest does not collect it with the test suite.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.journey.api_server import TOKEN, serving
from tests.journey.commands import here as glass
from tests.journey.task_files import ADJECTIVES, NOUNS, write_all, write_lines

TASK = """task: own_pairs
dataset_path: json
dataset_kwargs:
  data_files:
    test: {pairs}
output_type: multiple_choice
test_split: test
doc_to_text: ""
doc_to_choice: "{{{{[sentence_good, sentence_bad]}}}}"
doc_to_target: 0
target_delimiter: ""
metric_list:
  - metric: acc
"""
TRAINED = [
    "--model.layers=1",
    "--model.width=32",
    "--model.heads=2",
    "--model.context=64",
    "--train.threads=1",
    "--data.document=line",
    "--data.windows=documents",
    "--steps=60",
    "--train.batch=8",
    "--tokenizer.vocab_size=400",
]


def test_both_find_the_same_accuracy(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    write_all(tmp_path)
    done = glass("train", "book.txt", *TRAINED, "--out", "runs/book", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    done = glass("export", "runs/book", "--to", "hf", "--out", "exported", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [
        {
            "sentence_good": f"It was a {adjective} day when the {noun} met the bird.",
            "sentence_bad": f"It was a {adjective} day when the {other} met the fish.",
        }
        for adjective, noun, other in product(ADJECTIVES, NOUNS, NOUNS)
        if noun != other
    ]
    write_lines(tmp_path / "pairs.jsonl", map(json.dumps, rows))
    own = json.loads(glass("probe", "runs/book", "--pairs", "pairs.jsonl", "--json", folder=tmp_path).stdout)
    (tmp_path / "tasks").mkdir()
    task = TASK.format(pairs=tmp_path / "pairs.jsonl")
    (tmp_path / "tasks/own_pairs.yaml").write_text(task, encoding="utf-8")
    with serving([tmp_path / "runs/book"]) as served:
        arguments = {
            "model": "book",
            "base_url": f"{served.url}/v1/completions",
            "tokenizer": str(tmp_path / "exported"),
            "num_concurrent": "1",
        }
        command = [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--tasks", "own_pairs"]
        command += ["--model_args", ",".join(f"{name}={value}" for name, value in arguments.items())]
        command += ["--include_path", str(tmp_path / "tasks"), "--output_path", str(tmp_path / "out")]
        environment = {**os.environ, "OPENAI_API_KEY": TOKEN, "HF_DATASETS_CACHE": str(tmp_path / "cache")}
        found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-3000:]
    (results,) = (tmp_path / "out").rglob("results_*.json")
    theirs = json.loads(results.read_text(encoding="utf-8"))["results"]["own_pairs"]["acc,none"]
    (group,) = own["probes"]["pairs"]["groups"]
    assert 0 < theirs < 1
    assert theirs == pytest.approx(group["share"])
