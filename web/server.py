"""The web server as a process or thread runs it: uvicorn that does not wait for open pages."""

from __future__ import annotations

import socket

import uvicorn

from web.app import create_app

STOP_S = 2  # for answers under way; event streams end at once


class Server(uvicorn.Server):
    """Serves a match database. To stop it from another thread set `should_exit`.

    Raises `arena.store.DatabaseError` at construction if the database cannot be read.
    """

    def __init__(self, database: str, host: str, port: int) -> None:
        self._app = create_app(database)
        super().__init__(
            uvicorn.Config(
                self._app,
                host=host,
                port=port,
                log_level="warning",
                timeout_graceful_shutdown=STOP_S,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.feeds.close()
        await super().shutdown(sockets)
