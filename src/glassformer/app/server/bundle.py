"""Serve the files of the built page, with headers for the browser's cache."""

from __future__ import annotations

import os
import re
from pathlib import Path

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

PAGE = Path(__file__).parent / "page"
"""Folder to which `npm run build` writes the page."""
HASHED = re.compile(r"-[\w-]{8}\.\w+$")
"""End of a file name that contains a hash of the file's contents."""
MISSING = "the page was not built: {page} has no index.html\nBuild it: cd web && npm ci && npm run build\n"


def page_routes(folder: Path) -> list[Route]:
    """Return the routes of the page: `/`, the files beside `index.html`, and the files in `assets`."""
    page = Page(folder)
    return [Route(path, page, methods=["GET"]) for path in ("/", "/{file}", "/assets/{file:path}")]


class Page(StaticFiles):
    """Static files of the page.

    Args:
        folder: folder with `index.html`.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True, check_dir=False)
        self._folder = folder
        self.config_checked = True  # `get_response` handles a missing page; Starlette would raise an error

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file; for the path `/`, return status 503 if the page was not built.

        Browsers may cache assets with a hash in the name for a year; they must revalidate all other files.
        """
        if path == "." and not (self._folder / "index.html").is_file():
            return PlainTextResponse(MISSING.format(page=self._folder), 503)
        response = await super().get_response(path, scope)
        hashed = path.startswith("assets" + os.sep) and HASHED.search(path)
        response.headers["cache-control"] = "public, max-age=31536000, immutable" if hashed else "no-cache"
        return response
