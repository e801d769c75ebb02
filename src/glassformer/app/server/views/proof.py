"""The proof sheet: what `glass verify` found of these weights, and a button that puts them to the test.

The answer::

    {"names": ["checkpoints", …],           all checks, in their order
     "sheet": null | {"ok": true, "checkpoint": "step-000850", "date": …, "text": …, "seconds": 3.2, "versions": {…},
                      "checks": [{"name", "claim", "unit", "measured": 0.0 | null, "limit", "ok": true | false | null,
                                  "note", "seconds"}]},
     "current": true,                       whether the sheet is of the weights that are shown
     "work": {"state": "idle" | "waiting" | "working" | "failed" | "done", "error": null | {"what", "remedy"}},
     "made": [checks so far]}

`ok` is null where a check does not apply to the run, or could not be made. `start` begins the checks, in a process of
its own; the sheet is then kept as `verify.json` in the run's folder, as `glass verify` keeps it.
"""

from __future__ import annotations

from typing import Any

from glassformer.app.server import view
from glassformer.app.server.background import IDLE
from glassformer.app.server.registry import ServedModel
from glassformer.base.errors import GlassError
from glassformer.base.files import sha256
from glassformer.runs.folder import Run
from glassformer.verification.own_process import verify_apart
from glassformer.verification.sheet import CHECKS, kept_sheet

SHOWN = ("ok", "checkpoint", "date", "text", "seconds", "versions", "checks")
"""Of a sheet; the rest says where it was made."""


class ProofQuestion(view.ViewQuestion):
    """Request for the proof sheet of a run.

    Attributes:
        start: put the run to the test now.
    """

    start: bool = False


def answer(opened: ServedModel, question: ProofQuestion) -> dict[str, Any]:
    """Return the kept proof sheet and the progress of a new one."""
    do = (lambda tell: verify_apart(opened.folder, tell=tell)) if question.start else None
    work = opened.task("verify", do)
    sheet = _kept(opened)
    return {
        "names": [check.name for check in CHECKS],
        "sheet": None if sheet is None else {key: sheet.get(key) for key in SHOWN},
        "current": _is_current(opened),
        "work": IDLE if work is None else work.facts(),
        "made": [] if work is None else list(work.told),
    }


def _kept(opened: ServedModel) -> dict[str, Any] | None:
    """The sheet in the run's folder; a damaged one is none, as it is written anew."""
    try:
        return kept_sheet(Run(opened.folder))
    except GlassError:
        return None


def _is_current(opened: ServedModel) -> bool:
    """Return True if the kept sheet was made from the loaded weights."""
    sheet = _kept(opened)
    return sheet is not None and sheet.get("weights_sha256") == _weights(opened)


def _weights(opened: ServedModel) -> str | None:
    """SHA-256 of the weights' file, read once."""
    path = Run(opened.folder).checkpoints / opened.version / "model.safetensors"
    return opened.cached("weights", lambda: sha256(path) if path.exists() else None, lambda text: 64)


def python(opened: ServedModel, question: ProofQuestion) -> str:
    """The kept sheet; or making one."""
    with opened.lock:
        kept = _is_current(opened)
    lines = [
        "import json",
        "from pathlib import Path",
        "",
        "from glassformer.runs.folder import open_run"
        if kept
        else "from glassformer.verification.sheet import verify_run",
        *(["from glassformer.verification.sheet import kept_sheet  # verify_run makes a new one"] if kept else []),
        "",
        f"folder = Path({str(opened.folder)!r})",
        f"facts = {'kept_sheet(open_run(folder))' if kept else 'verify_run(folder).facts()'}",
        'for check in facts["checks"]:',
        '    print(check["ok"], check["name"], json.dumps(check["measured"]), check["limit"])',
    ]
    return "\n".join(lines) + "\n"


VIEW = view.PageView(ProofQuestion, answer, python)
