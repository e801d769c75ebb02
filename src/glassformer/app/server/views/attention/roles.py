"""Roles of attention heads: the report of `glass heads --importance`, computed once in the background.

The response::

    {"ready": false}                                        not measured yet: repeat the request
    {"ready": true, "heads": [{"name": "dec.0.self.0", "stack": "dec", "part": "self", "layer": 0, "head": 0,
                               "is": ["previous"],          roles of the head, largest score first
                               "roles": {"previous": {"score": 0.93, "chance": 0.1, "lift": 9.3,
                                                      "interval": [0.92, 0.94] | null, "threshold": 0.4,
                                                      "earned": true, "rows": 4000, "probe": "text", "detail": {}}},
                               "numbers": {"entropy": 0.4, "distance": 1.2, …}, "importance": 0.012 | null}, …],
     "sink_share": 0.1, "probes": {"text": "…"}, "left_out": [{"part": …, "role": …, "reason": …}], "notes": […],
     "importance": null | "why it could not be measured"}

The roles are measured as in `glass heads`: on the run's own validation text (on random tokens, if it is missing) and on
random tokens with and without repetition. The request has no text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field

from glassformer.app.server.registry import ServedModel
from glassformer.app.server.view import Name, PageView, ViewQuestion, script
from glassformer.base.errors import GlassError
from glassformer.inspection.heads.of_run import heads_of_run
from glassformer.inspection.plots import find_site
from glassformer.inspection.pruning.importance import head_importance


class RolesQuestion(ViewQuestion):
    """Request for the roles of all heads, or of the heads of some layers.

    Attributes:
        sites: names of layers, such as dec.0.self; None: all.
    """

    sites: list[Name] | None = Field(None, min_length=1, max_length=500)


def answer(opened: ServedModel, question: RolesQuestion) -> dict[str, Any]:
    """Return roles, numbers and importance of the heads, or `ready: false` until they are measured."""
    sites = None if question.sites is None else {str(find_site(opened.model.model, name)) for name in question.sites}
    report = opened.later("head roles", lambda: measure(opened))
    if report is None:
        return {"ready": False}
    heads = [head for head in report["heads"] if sites is None or head["name"].rpartition(".")[0] in sites]
    return {"ready": True, **report, "heads": heads}


def measure(opened: ServedModel) -> dict[str, Any]:
    """Return the report of the roles, with the importance of each head or the reason why it could not be measured."""
    notes: list[str] = []
    run = replace(opened.copy(), note=notes.append)
    report = heads_of_run(run)
    problem = None
    try:
        report = report.with_importance(head_importance(run.model, run.held_out(run.config.train.evaluate_tokens)))
    except GlassError as error:
        problem = error.problem
    facts = report.facts()
    return {**facts, "notes": [*facts["notes"], *dict.fromkeys(notes)], "importance": problem}


def python(opened: ServedModel, question: RolesQuestion) -> str:
    """Return a script that prints the roles and numbers of each head and, if it can be measured, the importance."""
    report = opened.later("head roles", lambda: measure(opened))
    lines = [
        "for found in heads_of_run(run).heads:",
        "    print(json.dumps(found.facts()))",
    ]
    imports = ["import json", "from glassformer.inspection.heads.of_run import heads_of_run"]
    if report is None or report["importance"] is None:
        imports.append("from glassformer.inspection.pruning.importance import head_importance")
        lines.append("print(head_importance(run.model, run.held_out(run.config.train.evaluate_tokens)))")
    return script(opened, *lines, imports=imports)


VIEW = PageView(RolesQuestion, answer, python)
