"""Views of the web page. Each view returns the result of a library function and computes nothing itself.

To add one, say `lens`:

1. Write `views/lens.py` (or a folder) with

   - `class LensQuestion(TextQuestion)` from `app.server.view`: pydantic, every field bounded, unknown fields refused;
   - `answer(opened, question) -> dict | Binary`. It runs in a thread and holds `opened.lock`, so hooks and patches are
     safe as long as they are taken away again. `opened.subject(text, target)` gives what the model reads, encoded and
     translated once; `opened.model` is the `AnyTextModel`, `opened.cached(key, make, size)` keeps work within a
     budget of bytes, `opened.later(name, make)` works in the background (on `opened.copy()`) and gives None until
     done: answer `{"ready": False}` until then, and the page asks again;
   - `python(opened, question) -> str`: a script of the library's public functions that prints the same numbers;
     `app.server.view.script` writes its beginning, `repr` quotes what a person typed;
   - `VIEW = PageView(LensQuestion, answer, python)`.

2. Add it to `VIEWS` below. `POST /api/runs/RUN/lens` answers from then on; `run`, `version` and `python` are added to
   every answer, numbers that are not finite become null, and an answer above 1 MB is refused: pool, cut or page.
3. Raise `GlassError` for what a person can put right (`RefusedRequestError` with another status than 400): it reaches
   the page as `{"error": {"what": …, "remedy": …}}`.
4. Document the answer's fields in the module's docstring: the page is written from it. Test the numbers against the
   library to 1e-6, the script's too, for all families that have the view.
"""

from __future__ import annotations

from typing import Any

from glassformer.app.server.request_errors import RefusedRequestError
from glassformer.app.server.view import PageView
from glassformer.app.server.views import (
    ablation,
    beams,
    compare,
    contrast,
    embeddings,
    importance,
    lens,
    loss,
    machines,
    positions,
    probes,
    proof,
    receipt,
    replay,
    sampling,
    tape,
    tokens,
    write,
)
from glassformer.app.server.views.attention import alignment, focus, head_map, heads, roles, score
from glassformer.base.errors import nearest

VIEWS: dict[str, PageView[Any]] = {
    "write": write.VIEW,
    "sampling": sampling.VIEW,
    "beams": beams.VIEW,
    "ablation": ablation.VIEW,
    "compare": compare.VIEW,
    "contrast": contrast.VIEW,
    "machines": machines.VIEW,
    "tokens": tokens.VIEW,
    "tape": tape.VIEW,
    "attention": head_map.VIEW,
    "score": score.VIEW,
    "heads": heads.VIEW,
    "roles": roles.VIEW,
    "focus": focus.VIEW,
    "alignment": alignment.VIEW,
    "receipt": receipt.VIEW,
    "lens": lens.VIEW,
    "importance": importance.VIEW,
    "embeddings": embeddings.VIEW,
    "positions": positions.VIEW,
    "replay": replay.VIEW,
    "loss": loss.VIEW,
    "probes": probes.VIEW,
    "proof": proof.VIEW,
}
"""Name -> view."""


def find_view(name: str) -> PageView[Any]:
    """The view of that name.

    Raises:
        GlassError: there is none.
    """
    if name not in VIEWS:
        raise RefusedRequestError(f"there is no view {name!r}", nearest(name, VIEWS), 404)
    return VIEWS[name]
