"""Alter files of run folders at random, and check that every reader refuses the folder or gives the same result.

A round copies a run of a random task, alters one file (flipped bit, changed number or word, cut, lost, repeated or
appended lines, deletion, or the same file of another run), and lets every reader of run folders read it: `glass
generate`, `classify`, `fill`, `chat`, `evaluate`, `count`, `export` and `train --resume`, `glassformer.load`, and the
listing and views of `glass serve`. Each reader must do one of these:

- refuse the folder with an error of two lines ("refused"),
- give the same result as for the unaltered folder ("same"),
- give another result, and say on standard error or in the result that a file is missing or another one is used
  ("said").

Anything else is counted as "wrong" (another result) or "crashed" (no error of two lines), and printed.

  python -m tests.campaigns.alterations --rounds 1000 --seed 0

Exit code: 0 if no reader was wrong or crashed, otherwise 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import glassformer as gf
from glassformer.app.server.listing import Listing
from glassformer.app.server.registry import ModelRegistry
from glassformer.app.server.view import Binary
from glassformer.app.server.views import find_view
from glassformer.base.errors import GlassError
from tests.journey.commands import here
from tests.journey.task_files import write_all
from tests.journey.task_runs import DOES, RUNS, TINY

VOLATILE = re.compile(
    r"seconds|per_second|memory|date|time|version|python|run$|out$|files?$|folder|created|count|log_freq"
)
"""Names of values that differ between two equal uses of a run."""
SUGGESTED = ("prompt",)
"""Entries of the listing with which the page fills in a text, so that the user can start at once."""
SAMPLING = {"generate": ["--temperature", "0"], "chat": ["--temperature", "0"]}
EXPORTED = 0.1
"""Fraction of the runs of task lm and classify that are exported."""
STEPS = 20
MORE = 23
WORST_FIRST = ("crashed", "wrong", "said", "refused", "same")
SPARED = ("model.safetensors", "optimizer.safetensors")
"""Files that are altered less often, because the tests of checkpoints cover them."""


@dataclass(frozen=True)
class Answer:
    """What a reader did with a run folder.

    Attributes:
        result: the result, without volatile values; None: the folder was refused.
        said: notes, or the error.
        crashed: whether the reader failed without an error of two lines.
    """

    result: Any
    said: str
    crashed: bool = False


def make_runs(folder: Path) -> None:
    """Write the texts, and train two runs of each task, which differ in their seed: `runs/TASK` and `runs/TASK-2`."""
    write_all(folder)
    for task, (source, *more) in RUNS.items():
        for name, seed in ((task, 0), (f"{task}-2", 1)):
            snapshots = ["--train.snapshots=3"] if task == "lm" else []
            arguments = [*TINY, *more, *snapshots, f"--steps={STEPS}", f"--seed={seed}", "--train.save_every=7"]
            done = here(
                "train", source, *arguments, "--train.evaluate_every=10", "--out", f"runs/{name}", folder=folder
            )
            assert done.returncode == 0, done.stderr


def steady(value: Any) -> Any:
    """Return a JSON value without volatile entries."""
    if isinstance(value, Mapping):
        return {key: steady(entry) for key, entry in value.items() if not VOLATILE.search(key)}
    return [steady(entry) for entry in value] if isinstance(value, list) else value


def command(*words: str, folder: Path) -> Answer:
    """Run a command of `glass` with `--json`."""
    done = here(*words, "--json", folder=folder)
    if done.returncode == 0:
        return Answer(steady(json.loads(done.stdout)), done.stderr)
    lines = done.stderr.rstrip("\n").splitlines()
    is_refusal = (
        done.returncode == 2 and len(lines) >= 2 and "bug" not in done.stderr and "Traceback" not in done.stderr
    )
    return Answer(None, done.stderr, not is_refusal)


def call(function: Callable[[], Any]) -> Answer:
    """Call a function of the library."""
    try:
        return Answer(steady(function()), "")
    except GlassError as error:
        return Answer(None, str(error))
    except Exception as error:
        return Answer(None, f"{type(error).__name__}: {error}", crashed=True)


def resume(folder: Path) -> Answer:
    """Resume a copy of the run, and return its weights and logs."""
    copy = folder / "runs" / "resumed"
    shutil.copytree(folder / "runs" / "run", copy)
    try:
        answer = command("train", "--resume", "--out", "runs/resumed", "--steps", str(MORE), folder=folder)
        if answer.result is None:
            return answer
        last = (copy / "last").read_text(encoding="utf-8").split()[0]
        weights = hashlib.sha256((copy / "checkpoints" / last / "model.safetensors").read_bytes()).hexdigest()
        lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        samples = (copy / "samples.txt").read_text(encoding="utf-8")
        said = answer.said.replace("runs/resumed", "runs/run")
        return Answer([weights, [(line["step"], line["loss"]) for line in lines], samples, steady(answer.result)], said)
    finally:
        shutil.rmtree(copy)


def export(folder: Path) -> Answer:
    """Export the run, and return a hash of the exported weights and settings."""
    out = folder / "exported"
    try:
        answer = command("export", "runs/run", "--to", "onnx", "--out", "exported", folder=folder)
        if answer.result is None:
            return answer
        files = sorted(path for path in out.rglob("*") if path.is_file())
        return Answer({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}, answer.said)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def loaded(folder: Path) -> Any:
    """Load the run from Python, and return its weights, labels, settings and vocabulary."""
    run = gf.load(folder / "runs" / "run", device="cpu").run
    weights = hashlib.sha256()
    for tensor in run.model.state_dict().values():
        weights.update(tensor.numpy().tobytes())
    return [weights.hexdigest(), run.labels, run.config.model_dump(mode="json"), run.tokenizer.digest]


def view(name: str, folder: Path, **question: Any) -> Any:
    """Return the response of a view of the page."""
    opened = ModelRegistry([folder / "runs" / "run"], "cpu").open("run")
    found = find_view(name)
    reply = found.reply(opened, found.parse(json.dumps(question).encode()))
    body = Binary.unpacked(reply.body).header if reply.binary else json.loads(reply.body)
    why = body.get("why")
    if isinstance(why, dict) and re.search("altered|not written|damaged", why["what"]):  # snapshots are refused
        raise GlassError(why["what"], why["remedy"])
    return body


def listed(folder: Path) -> Any:
    """Return the entry of the run in the listing of the page; raise its error."""
    (entry,) = Listing(ModelRegistry([folder / "runs" / "run"], "cpu")).all()
    if entry["error"] is not None:
        raise GlassError(entry["error"]["what"], entry["error"]["remedy"])
    return {name: value for name, value in entry.items() if name not in SUGGESTED}


def answers(task: str, folder: Path, exports: bool) -> dict[str, Answer]:
    """Let every reader read `runs/run`; export it only if `exports` is True, because that takes long."""
    name, text = DOES[task]
    found = {
        name: command(name, "runs/run", text, *SAMPLING.get(name, []), folder=folder),
        "evaluate": command("evaluate", "runs/run", folder=folder),
        "count": command("count", "runs/run", folder=folder),
        "load": call(lambda: loaded(folder)),
        "listing": call(lambda: listed(folder)),
        "replay view": call(lambda: view("replay", folder)),
        "verification view": call(lambda: view("verification", folder)),
        "tokens view": call(lambda: view("tokens", folder, text=text)),
        "resume": resume(folder),
    }
    if exports:
        found["export"] = export(folder)
    return found


def alter(path: Path, other: Path, twin: Path | None, draw: random.Random) -> str | None:
    """Alter a file at random; return a description, or None if the file did not change.

    Args:
        path: the file.
        other: the same file in another run.
        twin: another file of the same run with the same form, such as `last` for `best`; None: there is none.
        draw: source of random numbers.
    """
    content = path.read_bytes()
    kinds = ["bit", "byte", "number", "word", "cut", "lose line", "repeat line", "append", "delete", "swap", "swap"]
    kind = draw.choice([*kinds, *(["twin", "twin"] if twin is not None else [])])
    lines = content.splitlines(keepends=True)
    changed = content
    if kind in ("bit", "byte") and content:
        place = draw.randrange(len(content))
        value = content[place] ^ (1 << draw.randrange(8)) if kind == "bit" else draw.randrange(256)
        changed = content[:place] + bytes([value]) + content[place + 1 :]
    elif kind == "number" and (numbers := list(re.finditer(rb"\d+", content))):
        match = draw.choice(numbers)
        number = str(draw.choice([int(match[0]) + 1, int(match[0]) * 10, max(0, int(match[0]) - 1), 0])).encode()
        changed = content[: match.start()] + number + content[match.end() :]
    elif kind == "word" and (words := list(re.finditer(rb"true|false|[a-z]{3,}", content))):
        match = draw.choice(words)
        word = {b"true": b"false", b"false": b"true"}.get(match[0]) or draw.choice(words)[0]
        changed = content[: match.start()] + word + content[match.end() :]
    elif kind == "cut":
        changed = content[: draw.randrange(len(content) or 1)]
    elif kind in ("lose line", "repeat line") and lines:
        place = draw.randrange(len(lines))
        changed = b"".join(
            lines[:place] + (lines[place : place + 1] * 2 if kind[0] == "r" else []) + lines[place + 1 :]
        )
    elif kind == "append":
        changed = content + draw.choice([b"\n", b"x\n", lines[-1] if lines else b"1\n"])
    elif kind == "swap" and other.is_file():
        changed = other.read_bytes()
    elif kind == "twin" and twin is not None:
        changed = twin.read_bytes()
    if kind == "delete" and path.suffix == ".npz":  # a user may delete snapshots: each view lists the remaining steps
        return None
    if kind == "delete":
        path.unlink()
    elif changed == content:
        return None
    else:
        path.write_bytes(changed)
    return kind


def alter_run(run: Path, runs: Path, task: str, draw: random.Random) -> str | None:
    """Alter one file of a run, or replace its checkpoints; return a description, or None if nothing changed."""
    other = runs / (draw.choice([f"{task}-2", f"{task}-2", draw.choice(list(RUNS))]))
    if draw.random() < 0.03:
        shutil.rmtree(run / "checkpoints")
        shutil.copytree(other / "checkpoints", run / "checkpoints")
        return f"checkpoints of {other.name}"
    files = [path for path in sorted(run.rglob("*")) if path.is_file() and path.name not in ("lock", "loss.svg")]
    weighted = [path for path in files for _ in range(1 if path.name in SPARED else 4)]
    path = draw.choice(weighted)
    relative = path.relative_to(run)
    twins = {"best": "last", "last": "best", "metrics.jsonl": "samples.txt", "tokenizer.json": "source_tokenizer.json"}
    twin = run / twins[path.name] if path.name in twins and (run / twins[path.name]).exists() else None
    kind = alter(path, other / relative, twin, draw)
    return None if kind is None else f"{relative.as_posix()}: {kind}{f' with {other.name}' if kind == 'swap' else ''}"


def judge(before: Answer, after: Answer) -> str:
    """Return the verdict on a reader's answer for an altered folder, given its answer for the unaltered folder."""
    if after.crashed:
        return "crashed"
    if after.result is None:
        return "same" if before.result is None and before.said == after.said else "refused"
    if after.result == before.result:
        return "same"
    notes = set(after.said.splitlines()) - set(before.said.splitlines())
    return "said" if any(re.search("missing|altered|damaged|is gone|lost|instead", note) for note in notes) else "wrong"


def campaign(folder: Path, rounds: int, seed: int) -> tuple[Counter[str], Counter[str]]:
    """Run the rounds; return the number of verdicts of readers, and the number of rounds by their worst verdict."""
    folder.mkdir(exist_ok=True)
    make_runs(folder)
    runs = folder / "runs"
    draw = random.Random(seed)
    verdicts = Counter[str]()
    worst = Counter[str]()
    original: dict[str, dict[str, Answer]] = {}
    done = 0
    while done < rounds:
        task = draw.choice(list(RUNS))
        shutil.rmtree(runs / "run", ignore_errors=True)
        shutil.copytree(runs / task, runs / "run")
        if task not in original:
            original[task] = answers(task, folder, task in ("lm", "classify"))
            for name, answer in original[task].items():
                assert not answer.crashed, (task, name, answer)
        change = alter_run(runs / "run", runs, task, draw)
        if change is None:
            continue
        done += 1
        found = answers(task, folder, task in ("lm", "classify") and draw.random() < EXPORTED)
        judged = {name: judge(original[task][name], answer) for name, answer in found.items()}
        verdicts.update(judged.values())
        worst.update(
            [next(each for each in ("crashed", "wrong", "said", "refused", "same") if each in judged.values())]
        )
        for name, verdict in judged.items():
            if verdict in ("crashed", "wrong"):
                print(f"round {done}, {task}, {change}: {name} {verdict}: {found[name].said[-400:]}", flush=True)
    return verdicts, worst


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m tests.campaigns.alterations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--rounds", type=int, default=20, metavar="N", help="altered folders (default: 20)")
    found.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the alterations (default: 0)")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign, print its counts, and return 1 if a reader was wrong or crashed, otherwise 0."""
    given = parser().parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="glass-alterations-", ignore_cleanup_errors=True) as temporary:
        verdicts, worst = campaign(Path(temporary).resolve(), given.rounds, given.seed)
    for name in ("same", "refused", "said", "wrong", "crashed"):
        print(
            f"{name:<10} {verdicts[name]:>7,} readings   worst verdict of {worst[name]:>6,} of {given.rounds:,} rounds"
        )
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if verdicts["wrong"] or verdicts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
