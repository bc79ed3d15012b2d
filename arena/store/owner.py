"""Who writes a run: a process named as `host:pid:start`, so that a number that was given out again
is not mistaken.

Knows nothing of the database.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path


def this_process() -> str:
    """The owner string of the calling process."""
    return owner_of(os.getpid())


def owner_of(pid: int) -> str:
    """The owner string of a process on this host."""
    return f"{socket.gethostname()}:{pid}:{_start(pid)}"


def is_alive(owner: str) -> bool:
    """Whether the owning process may still be running. A process of another host cannot be seen, so
    it counts as alive.
    """
    host, pid, start = owner.rsplit(":", 2)
    if host != socket.gethostname():
        return True
    return _start(int(pid)) == start


def _start(pid: int) -> str | None:
    """When the process started, in clock ticks since boot ("0" where the system has no /proc); None
    if it is gone.
    """
    if Path("/proc/self/stat").exists():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        # proc(5): state is field 3 and starttime field 22; a zombie holds nothing any more.
        return None if fields[0] in "ZX" else fields[19]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "0"
