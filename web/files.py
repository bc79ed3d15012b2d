"""The built front end as files: hashed assets are kept by browsers for good, the page itself is always asked for."""

from __future__ import annotations

import os
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

PAGE = "index.html"
NOT_BUILT = "The web pages are not built: run `make ui` (or `python -m web.build`) and reload."


class FrontEnd(StaticFiles):
    """Static files in which every unknown address that could be a page of the front end answers with that page."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory=directory, check_dir=False)
        self._page = directory / PAGE

    async def get_response(self, path: str, scope: Scope) -> Response:
        try:
            response = await super().get_response(path, scope)
        except HTTPException as error:
            if error.status_code != 404 or path.startswith(("api", "assets")):
                raise
            if not self._page.is_file():
                raise HTTPException(503, NOT_BUILT) from None
            response = await super().get_response(PAGE, scope)
        kept = path.startswith(
            "assets" + os.sep
        )  # Vite puts a hash of the content into these names
        response.headers["cache-control"] = (
            "public, max-age=31536000, immutable" if kept else "no-cache"
        )
        # Model text and names are shown as text; should one ever get into the page as markup, it runs nothing.
        response.headers["content-security-policy"] = (
            "default-src 'self'; style-src 'self' 'unsafe-inline'"
        )
        response.headers["x-content-type-options"] = "nosniff"
        return response
