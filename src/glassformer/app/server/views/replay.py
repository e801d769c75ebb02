"""Training replay: the training curves of the run, and the attention of its heads at each snapshot.

The response::

    {"lines": 5000,                          lines of metrics.jsonl; at most 1,000 evenly spaced lines are sent
     "curves": {"step": […], "loss": […], "learning_rate": […], "gradient_norm": […]},      null: no value in this line
     "validation": {"step": […], "loss": […]},
     "samples": [{"step": 100, "text": "…"}],     from samples.txt, if there are no snapshots
     "why": null | {"what", "remedy"},       the reason if there are no snapshots
     "snapshots": null | {
         "steps": […], "losses": […], "prompt": "…", "samples": ["…"],
         "heads": ["dec.1.self.1"], "roles": ["previous"], "head": …, "role": …,
         "scores": [[…]],                    scores in the role: a row for each of `heads`, a column for each step;
                                             `heads` are the heads (at most 200) with the best last scores
         "curve": […],                       score of the head in the role, at each step
         "births": [{"head", "role", "step", "loss", "score", "last_score"}],
         "texts": ["text 1", "repeated random tokens"], "text": 0, "rows": ["▁the"], "columns": […],
         "maps": "…"},                       base64 of uint8 (steps, rows, columns): 255 times the attention weights
     "check": {"state": "idle" | …, "error": …, "found": null | {"step", "maps", "scores", "losses"}}}

`check: true` recomputes the last snapshot from the weights, in the background, and returns the differences in
`found`, which stays null if the last checkpoint has no snapshot.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Field

from glassformer.app.server import view
from glassformer.app.server.background import IDLE
from glassformer.app.server.registry import ServedModel
from glassformer.app.server.request_errors import as_json
from glassformer.base.errors import GlassError
from glassformer.inspection.replay import History, read_history
from glassformer.inspection.replay.of_run import agreement
from glassformer.inspection.replay.page import name_of, text_for
from glassformer.inspection.replay.snapshot import snapshot_files
from glassformer.inspection.sites import Site
from glassformer.runs.folder import Run
from glassformer.training.journal import read_metrics, read_samples

POINTS = 1_000
"""Maximum number of points of a curve."""
HEADS = 200
"""Maximum number of heads to return."""
BIRTHS = 200
"""Maximum number of births (the moments at which a head acquires a role), besides those of the chosen head."""
SAMPLES = 64
"""Maximum number of samples to return."""
CHARACTERS = 1_000
"""Maximum number of characters of a sample."""
T = TypeVar("T")


class ReplayQuestion(view.ViewQuestion):
    """Request for the training curves and attention snapshots of a run.

    Attributes:
        head: head whose maps are returned; None: the head with the best last score in `role` or, without `role`, the
            first head that acquired a role, or else the first head.
        role: role whose scores are returned; None: the role in which the head has the best last score, among the roles
            that the head has in the last snapshot or, if it has none, among all roles.
        text: index of the text whose maps are returned; None: a text that suits the role.
        check: whether to recompute the last snapshot and compare the results.
    """

    head: view.Name | None = None
    role: view.Name | None = None
    text: Annotated[int, Field(ge=0, le=100)] | None = None
    check: bool = False


def answer(opened: ServedModel, question: ReplayQuestion) -> dict[str, Any]:
    """Return the training curves, and head scores and attention maps of the snapshots."""
    run = opened.run.files
    lines = read_metrics(run)
    evaluated = evenly([line for line in lines if line.get("validation_loss") is not None], POINTS)
    sampled_lines = evenly(lines, POINTS)
    history, why = _history(opened, run)
    return {
        "lines": len(lines),
        "curves": {
            key: [line.get(key) for line in sampled_lines] for key in ("step", "loss", "learning_rate", "gradient_norm")
        },
        "validation": {
            "step": [line["step"] for line in evaluated],
            "loss": [line["validation_loss"] for line in evaluated],
        },
        "samples": [] if history else _samples(run),
        "why": None if why is None else as_json(why)["error"],
        "snapshots": None if history is None else _snapshots(history, question),
        "check": _check(opened, run, history, question.check),
    }


def evenly(values: Sequence[T], most: int) -> list[T]:
    """Return all values, or `most` evenly spaced values that include the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[number * (len(values) - 1) // (most - 1)] for number in range(most)]


def _history(opened: ServedModel, run: Run) -> tuple[History | None, GlassError | None]:
    """Return the snapshots (cached) and None, or None and the error that gives the reason."""
    try:
        files = tuple((path.name, path.stat().st_mtime_ns) for path in snapshot_files(run.snapshots_folder).values())
        return opened.cached(("history", files), lambda: read_history(run), _nbytes), None
    except GlassError as error:
        return None, error


def _nbytes(history: History) -> int:
    return sum(weights.nbytes for snapshot in history.snapshots for weights in snapshot.maps.values())


def _samples(run: Run) -> list[dict[str, Any]]:
    samples = evenly(read_samples(run), SAMPLES)
    return [{"step": step, "text": text[:CHARACTERS]} for step, text in samples]


def _snapshots(history: History, question: ReplayQuestion) -> dict[str, Any]:
    """Return the scores of the strongest heads in one role, the births, and the maps of one head on one text."""
    head, role = _chosen_head_and_role(history, question)
    labels = history.labels
    scores = history.scores[:, :, history.labels.roles.index(role)]  # (snapshots, heads)
    strongest = np.argsort(-np.nan_to_num(scores[-1], nan=-np.inf), kind="stable")[:HEADS]
    shown_heads = sorted(strongest.tolist())
    texts = labels.texts
    number = text_for(history, role) if question.text is None else question.text
    if number >= len(texts):
        raise GlassError(f"there is no text {number} in these snapshots", f"Give a number from 0 to {len(texts) - 1}.")
    stack, layer, part = head.split(".")[:3]
    rows, columns = texts[number].rows_and_columns(Site(stack, int(layer), part))
    maps = np.stack([snapshot.map_of(number, head) for snapshot in history.snapshots])  # (snapshots, T, S)
    births = history.births()
    births = [birth for index, birth in enumerate(births) if index < BIRTHS or birth.head == head]
    return {
        "steps": history.steps,
        "losses": history.losses,
        "prompt": history.snapshots[0].prompt[:CHARACTERS],
        "samples": [snapshot.sample[:CHARACTERS] for snapshot in history.snapshots],
        "heads": [labels.heads[row] for row in shown_heads],
        "roles": list(labels.roles),
        "head": head,
        "role": role,
        "scores": scores[:, shown_heads].T.tolist(),
        "curve": history.curve(head, role).tolist(),
        "births": [asdict(birth) for birth in births],
        "texts": [name_of(text, index) for index, text in enumerate(texts)],
        "text": number,
        "rows": rows,
        "columns": columns,
        "maps": base64.b64encode(maps.tobytes()).decode("ascii"),
    }


def _chosen_head_and_role(history: History, question: ReplayQuestion) -> tuple[str, str]:
    head = None if question.head is None else history.checked_head(question.head)
    role = None if question.role is None else history.checked_role(question.role)
    return history.chosen(head, role)


def _check(opened: ServedModel, run: Run, history: History | None, start: bool) -> dict[str, Any]:
    """Return the state and the result of the comparison of the last snapshot with the weights."""
    task = None
    if history is not None:
        name = f"last snapshot, of {history.steps[-1]}"
        device = str(opened.model.model.embedding.tokens.weight.device)
        task = opened.task(name)
        if start and (task is None or not task.succeeded):
            task = opened.task(name, lambda on_result: agreement(run, history, device))
    if task is None:
        return {**IDLE, "found": None}
    result = task.result() if task.succeeded else None
    return {**task.facts(), "found": None if result is None else asdict(result)}


def python(opened: ServedModel, question: ReplayQuestion) -> str:
    """Return a script that prints the training curves, the score of the head at each snapshot, and its last map."""
    history, _ = _history_of(opened)
    lines = [
        "from glassformer.inspection.replay import read_history",
        "from glassformer.runs.folder import open_run",
        "from glassformer.training.journal import read_metrics",
        "",
        f"run = open_run({str(opened.folder)!r})",
        "for line in read_metrics(run):",
        '    print(line["step"], line["loss"], line.get("learning_rate"), line.get("gradient_norm"))',
    ]
    if history is not None:
        head, role = _chosen_head_and_role(history, question)
        number = text_for(history, role) if question.text is None else question.text
        lines += [
            "history = read_history(run)",
            f"for step, score in zip(history.steps, history.curve({head!r}, {role!r}).tolist()):",
            "    print(step, score)",
            f"print(history.snapshots[-1].map_of({number}, {head!r}) / 255)",
        ]
    return "\n".join(lines) + "\n"


def _history_of(opened: ServedModel) -> tuple[History | None, GlassError | None]:
    with opened.lock:
        return _history(opened, opened.run.files)


VIEW = view.PageView(ReplayQuestion, answer, python)
