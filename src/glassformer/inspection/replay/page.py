"""HTML page of a history with a slider: a single file that needs no network and no other file."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from glassformer.base.pages import render_page
from glassformer.inspection.replay.history import History
from glassformer.inspection.replay.snapshot import MappedTokens
from glassformer.inspection.sites import Site

MOST_HEADS = 8
"""Maximum number of heads on one page; the maps of each head take up to 0.55 MB."""
ON_REPEATED = ("induction", "duplicate")
"""Roles whose maps are shown on repeated random tokens."""


def make_page(history: History, title: str, head: str | None = None, role: str | None = None) -> str:
    """Return the HTML page.

    Args:
        history: the history to show.
        title: title of the page.
        head: the only head to show; None: at most `MOST_HEADS` heads with births, the earliest first, or one head if
            there are no births.
        role: role to select first; without `head`, only heads with a birth of this role are shown. None: any role.
    """
    heads_with_births = list(dict.fromkeys(birth.head for birth in history.births(role)))
    heads = [head] if head is not None else heads_with_births or [history.chosen(None, role)[0]]
    first_role = history.chosen(heads[0], role)[1]
    data = {
        "steps": history.steps,
        "losses": history.losses,
        "prompt": history.snapshots[0].prompt,
        "samples": [snapshot.sample for snapshot in history.snapshots],
        "texts": [name_of(text, number) for number, text in enumerate(history.labels.texts)],
        "text": text_for(history, first_role),
        "heads": [_head_data(history, each, role) for each in heads[:MOST_HEADS]],
    }
    return render_page("glassformer.inspection.replay", "page.html", title=title, data=data)


def text_for(history: History, role: str) -> int:
    """Return the index of the mapped text on which a role is shown."""
    probe = "repeated" if role in ON_REPEATED else "text"
    return next((n for n, text in enumerate(history.labels.texts) if text.probe == probe), 0)


def name_of(text: MappedTokens, number: int) -> str:
    """Return the display name of a mapped text."""
    return "repeated random tokens" if text.probe == "repeated" else f"text {number + 1}"


def _head_data(history: History, head: str, role: str | None) -> dict[str, Any]:
    """Return the curves, births and maps of one head, with the maps of all snapshots in order."""
    stack, layer, part = head.split(".")[:3]
    curves = {name: history.curve(head, name) for name in history.labels.roles}
    maps = []
    for number, text in enumerate(history.labels.texts):
        rows, columns = text.rows_and_columns(Site(stack, int(layer), part))
        weights = np.stack([snapshot.map_of(number, head) for snapshot in history.snapshots])  # (snapshots, T, S)
        data = base64.b64encode(weights.tobytes()).decode("ascii")
        maps.append({"rows": rows, "columns": columns, "data": data})
    return {
        "name": head,
        "role": history.chosen(head, role)[1],
        "maps": maps,
        "roles": {name: [float(x) for x in curve] for name, curve in curves.items() if not np.isnan(curve).any()},
        "births": {birth.role: birth.step for birth in history.births(None, head)},
    }
