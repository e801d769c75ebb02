"""The built page: its files as they are, and how long a browser may keep them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

PAGE = Path(__file__).parent / "page"
"""Where `npm run build` puts it."""
HASHED = re.compile(r"-[\w-]{8}\.\w+$")
"""The end of a file's name that changes with what is in it."""
MISSING = "the page was not built: {page} has no index.html\nBuild it: cd web && npm ci && npm run build\n"


def page_routes(folder: Path) -> list[Route]:
    """The addresses of the page: `/`, the files beside `index.html`, and those in `assets`; all others are not its."""
    page = Page(folder)
    return [Route(path, page, methods=["GET"]) for path in ("/", "/{file}", "/assets/{file:path}")]


class Page(StaticFiles):
    """The files of one folder.

    Args:
        folder: with `index.html`.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True, check_dir=False)
        self._folder = folder
        self.config_checked = True  # a missing page is answered below; Starlette would raise an error

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file: kept for ever where its name has its hash, otherwise asked about each time."""
        if path == "." and not (self._folder / "index.html").is_file():
            return PlainTextResponse(MISSING.format(page=self._folder), 503)
        found = await super().get_response(path, scope)
        hashed = path.startswith("assets" + os.sep) and HASHED.search(path)
        found.headers["cache-control"] = "public, max-age=31536000, immutable" if hashed else "no-cache"
        return found
