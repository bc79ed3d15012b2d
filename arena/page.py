"""The web server beside a run or by itself: the socket first, so that its address holds at once.

The application is named by its import string, as this package does not know `web`.
"""

from __future__ import annotations

import errno
import importlib
import socket
import threading
from typing import Any

SERVER = "web.server"  # its `Server` is a `uvicorn.Server` over one database
PORT = 8000
PORTS_TRIED = 100
STOP_S = 1.0


class PortInUse(OSError):
    """The address cannot be listened on; the message is one sentence."""


class Page:
    """A web server in a thread of this process."""

    def __init__(self, database: str, host: str, port: int | None) -> None:
        """Take the port (None: 8000, or the next free one). Raises PortInUse."""
        self._socket = _listen(host, port)
        self._database = database
        self._server: Any = None
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, name="page", daemon=True)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def address(self) -> str:
        host = self._socket.getsockname()[0]
        if host in ("0.0.0.0", "::"):
            host = "localhost"
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def start(self) -> None:
        """Answer requests from now on; those that came before wait in the socket's queue."""
        self._thread.start()

    def stop(self) -> None:
        """Let the port go; answers under way get a second."""
        self._stopping = True
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(STOP_S)
        if not self._thread.is_alive():
            self._socket.close()

    def _serve(self) -> None:
        host, port = self._socket.getsockname()[:2]
        self._server = importlib.import_module(SERVER).Server(self._database, host, port)
        if not self._stopping:
            self._server.run(sockets=[self._socket])


def _listen(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in [port] if port is not None else range(PORT, PORT + PORTS_TRIED):
        try:
            return socket.create_server((host, candidate), family=family)
        except (OSError, OverflowError) as error:
            if getattr(error, "errno", None) != errno.EADDRINUSE:
                reason = getattr(error, "strerror", None) or str(error)
                raise PortInUse(
                    f"Cannot listen on {host}, port {candidate} ({reason}); "
                    "give another --host or --port."
                ) from None
    if port is not None:
        raise PortInUse(f"Port {port} of {host} is in use; give another --port, or none.")
    last = PORT + PORTS_TRIED - 1
    raise PortInUse(f"All ports from {PORT} to {last} of {host} are in use; give --port.")
