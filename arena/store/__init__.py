"""The match database: what is recorded of runs, games and moves, and how it is read. See README.md
for its rooms.
"""

from arena.store.database import DatabaseError
from arena.store.recorder import Recorder
from arena.store.store import RunBusy, Store, UnknownRun

__all__ = ["DatabaseError", "Recorder", "RunBusy", "Store", "UnknownRun"]
