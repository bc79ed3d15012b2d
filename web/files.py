"""The built front end as files: hashed assets may be kept for good, the page is always asked for."""

from __future__ import annotations

import os
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

PAGE = "index.html"
FOR_GOOD = "public, max-age=31536000, immutable"
# Model text is shown as text; should any ever get into the page as markup, it runs nothing.
POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'"
FOR_GOOD = "public, max-age=31536000, immutable"
# Model text is shown as text; should any ever get into the page as markup, it runs nothing.
POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'"
NOT_BUILT = "The web pages are not built: run `make ui` (or `python -m web.build`) and reload."


class FrontEnd(StaticFiles):
    """Static files; every unknown address that could be a page answers with the front end's page."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory=directory, check_dir=False)
        self._page = directory / PAGE

    async def check_config(self) -> None:
        """A front end that is not built is answered for in `get_response`, whenever that is."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        try:
            response = await super().get_response(path, scope)
        except HTTPException as error:
            if error.status_code != 404 or path.startswith(("api", "assets")):
                raise
            if not self._page.is_file():
                raise HTTPException(503, NOT_BUILT) from None
            response = await super().get_response(PAGE, scope)
        # Vite puts a hash of the content into the names of assets.
        # Vite puts a hash of the content into the names of assets.
        kept = path.startswith("assets" + os.sep)
        response.headers["cache-control"] = FOR_GOOD if kept else "no-cache"
        response.headers["content-security-policy"] = POLICY
        response.headers["x-content-type-options"] = "nosniff"
        return response
