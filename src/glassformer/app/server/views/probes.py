"""Probes: tests of the abilities of a run on generated texts, as in `glass probe RUN --json` without surprisal.

The response::

    {"names": ["agreement", …], "size": 1280,
     "work": {"state": "idle" | "waiting" | "working" | "failed" | "done", "error": null | {"what", "remedy"}},
     "results": [{"name": "agreement", "about": …, "notes": […], "figures": {"name of a figure": 0.1},
                  "groups": [{"group": "all pairs", "share": 0.9, "ci95": [0.88, 0.92], "right": 1152.0, "count": 1280,
                              "chance": 0.5, "rules": {"last noun": 0.5}}]}],
     "notes": […]}

`results` has the results so far. `notes` is filled when the work is done: a probe that is not possible for the run is
left out, and a note gives the reason. `start` starts the work; the results are cached for each checkpoint and size.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from glassformer.app.server import view
from glassformer.app.server.background import IDLE, OnResult
from glassformer.app.server.registry import ServedModel
from glassformer.evaluation.probes.probe import SIZE, TAUGHT_BY, ProbeReport, ProbeRequest, probe_run
from glassformer.evaluation.probes.row_probabilities import require_scorable

WITHOUT = ("surprisal",)
"""Probes to leave out, because they have a separate view."""


class ProbesQuestion(view.ViewQuestion):
    """Request for the probe results of a run.

    Attributes:
        start: whether to start the probes.
        size: number of minimal pairs, as in `glass probe --size`; the size of the other probes is proportional to it.
    """

    start: bool = False
    size: Annotated[int, Field(ge=20, le=4 * SIZE)] = SIZE


def answer(opened: ServedModel, question: ProbesQuestion) -> dict[str, Any]:
    """Return the probe results available so far; `start` runs the probes in the background."""
    require_scorable(opened.model)
    name = f"probes {question.size}"
    task = opened.task(name)
    if question.start and (task is None or not task.succeeded):
        run = opened.copy()

        def run_probes(on_result: OnResult) -> ProbeReport:
            return probe_run(ProbeRequest(opened.folder, without=WITHOUT, size=question.size, on_result=on_result), run)

        task = opened.task(name, run_probes)
    report = task.result() if task is not None and task.succeeded else None
    return {
        "names": list(TAUGHT_BY),
        "size": question.size,
        "work": IDLE if task is None else task.facts(),
        "results": [] if task is None else [{"name": result.name, **result.facts()} for result in list(task.results)],
        "notes": [] if report is None else list(report.notes),
    }


def python(opened: ServedModel, question: ProbesQuestion) -> str:
    """Return a script that runs all probes except surprisal."""
    return (
        "\n".join(
            [
                "import json",
                "",
                "from glassformer.evaluation.probes.probe import ProbeRequest, probe_run",
                "",
                f"request = ProbeRequest({str(opened.folder)!r}, without={WITHOUT!r}, size={question.size})",
                "print(json.dumps(probe_run(request).facts(), ensure_ascii=False))",
            ]
        )
        + "\n"
    )


VIEW = view.PageView(ProbesQuestion, answer, python)
