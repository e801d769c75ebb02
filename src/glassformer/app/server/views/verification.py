"""Verification report: the results of `glass verify` for the run, and the progress of a new verification.

The response::

    {"names": ["checkpoints", …],           names of all checks, in order
     "report": null | {"ok": true, "checkpoint": "step-000850", "date": …, "text": …, "seconds": 3.2, "versions": {…},
                      "checks": [{"name", "claim", "unit", "measured": 0.0 | null, "limit", "ok": true | false | null,
                                  "note", "seconds"}]},
     "current": true,                       whether the report belongs to the loaded weights
     "work": {"state": "idle" | "waiting" | "working" | "failed" | "done", "error": null | {"what", "remedy"}},
     "made": [results of the newest verification so far]}

`ok` is null if a check does not apply to the run, or could not run. `start` starts a verification in a separate
process, which saves the report as `verify.json` in the run folder, as `glass verify` does.
"""

from __future__ import annotations

from typing import Any

from glassformer.app.server import view
from glassformer.app.server.background import IDLE
from glassformer.app.server.registry import ServedModel
from glassformer.base.errors import GlassError
from glassformer.base.files import recorded_sha256
from glassformer.verification.own_process import verify_in_subprocess
from glassformer.verification.report import CHECKS, saved_report

SHOWN = ("ok", "checkpoint", "date", "text", "seconds", "versions", "checks")
"""Fields of a report to return; the run folder, the hash of the weights and the machine are omitted."""


class VerificationQuestion(view.ViewQuestion):
    """Request for the report of a run.

    Attributes:
        start: whether to start a new verification.
    """

    start: bool = False


def answer(opened: ServedModel, question: VerificationQuestion) -> dict[str, Any]:
    """Return the saved report and the progress of a new verification."""
    do = (lambda on_result: verify_in_subprocess(opened.folder, tell=on_result)) if question.start else None
    task = opened.task("verify", do)
    report = _saved_report(opened)
    report_fields = None if report is None else {key: report.get(key) for key in SHOWN}
    return {
        "names": [check.name for check in CHECKS],
        "report": report_fields,
        "current": _is_current(opened),
        "work": IDLE if task is None else task.facts(),
        "made": [] if task is None else list(task.results),
    }


def _saved_report(opened: ServedModel) -> dict[str, Any] | None:
    """Return the saved report of the run; None if there is none or it is damaged."""
    try:
        return saved_report(opened.run.files)
    except GlassError:
        return None


def _is_current(opened: ServedModel) -> bool:
    """Return whether the saved report was made from the loaded weights."""
    report = _saved_report(opened)
    weights = recorded_sha256(opened.run.checkpoint, "model.safetensors")
    return report is not None and weights is not None and report["weights_sha256"] == weights


def python(opened: ServedModel, question: VerificationQuestion) -> str:
    """Return a script that prints the checks of the saved report or, if it is not current, of a new verification."""
    with opened.lock:
        is_current = _is_current(opened)
    lines = [
        "import json",
        "from pathlib import Path",
        "",
        "from glassformer.runs.folder import open_run"
        if is_current
        else "from glassformer.verification.report import verify_run",
        *(
            ["from glassformer.verification.report import saved_report  # verify_run makes a new one"]
            if is_current
            else []
        ),
        "",
        f"folder = Path({str(opened.folder)!r})",
        f"facts = {'saved_report(open_run(folder))' if is_current else 'verify_run(folder).facts()'}",
        'for check in facts["checks"]:',
        '    print(check["ok"], check["name"], json.dumps(check["measured"]), check["limit"])',
    ]
    return "\n".join(lines) + "\n"


VIEW = view.PageView(VerificationQuestion, answer, python)
