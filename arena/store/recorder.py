"""The one writer of what happens while games are played: moves, results, engine figures, and the
events that tell them.

Events are put from any thread; one writer thread commits them in groups, each group whole or not at
all. Knows nothing of how games are played and who watches.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from arena.store.database import DatabaseError
from arena.store.schema import EngineSampleRow, GameRow, MoveRow
from arena.store.store import (
    Store,
    add_events,
    clean_text,
    finite,
    get_run,
    recorded_moves,
    standings_rows,
)
from arena.types import (
    EngineSample,
    Event,
    GameResult,
    GameStarted,
    MoveChoice,
    MoveRecord,
    Termination,
)

GROUP_S = 0.05  # the longest time that an event waits for others to share its commit
GROUP_SIZE = 1000


@dataclass
class _Game:
    """What is recorded of a game; finished games have no moves here."""

    status: str
    moves: list[str] = field(default_factory=list)


@dataclass
class _Group:
    """The rows and events that one run gets in one transaction."""

    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    moves: list[dict[str, Any]] = field(default_factory=list)
    voided: list[int] = field(default_factory=list)
    games: dict[int, dict[str, Any]] = field(default_factory=dict)  # number -> changed columns
    samples: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = False

    def change(self, number: int, **columns: Any) -> None:
        self.games.setdefault(number, {}).update(columns)


class Recorder:
    """Writes the events of the runs that this process has claimed.

    What comes twice is written once. An event that contradicts the record (another move at the same
    ply, a gap, another number of plies) and a database that fails stop the recorder: nothing after
    it is written, and the next `put`, `flush` or `close` raises the DatabaseError. What was
    committed before can be resumed.
    """

    def __init__(self, store: Store, run_ids: Iterable[int]) -> None:
        self._store = store
        self._owners: dict[int, str | None] = {}
        self._games: dict[int, dict[int, _Game]] = {}
        with store.read() as session:
            for run_id in run_ids:
                self._owners[run_id] = get_run(session, run_id).owner
                moves = recorded_moves(session, run_id)
                self._games[run_id] = {
                    number: _Game(status, moves.get(number, []))
                    for number, status in session.execute(
                        sa.select(GameRow.number, GameRow.status).where(GameRow.run_id == run_id)
                    )
                }
        self._queue: queue.SimpleQueue[Event | threading.Event | None] = queue.SimpleQueue()
        self._failure: DatabaseError | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self._write_until_closed, name="recorder", daemon=True
        )
        self._thread.start()

    def put(self, event: Event) -> None:
        """Hand over an event and return at once; it is committed within about 50 ms. Raises
        DatabaseError.
        """
        self._enqueue(event)

    def flush(self) -> None:
        """Return when everything that was put before is committed. Raises DatabaseError."""
        done = threading.Event()
        self._enqueue(done)
        done.wait()
        if self._failure:
            raise self._failure

    def close(self) -> None:
        """Commit what was put, and stop. Raises DatabaseError."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()
        if self._failure:
            raise self._failure

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _enqueue(self, item: Event | threading.Event) -> None:
        with self._lock:  # nothing comes after the None that ends the writer
            if self._failure:
                raise self._failure
            if self._closed:
                raise DatabaseError("The recorder is closed.")
            self._queue.put(item)

    def _write_until_closed(self) -> None:
        closing = False
        while not closing:
            events: list[Event] = []
            flushed: threading.Event | None = None
            item = self._queue.get()
            until = time.monotonic() + GROUP_S
            while True:
                if item is None:
                    closing = True
                    break
                if isinstance(item, threading.Event):
                    flushed = item
                    break
                events.append(item)
                if len(events) == GROUP_SIZE:
                    break
                try:
                    item = self._queue.get(timeout=max(0.0, until - time.monotonic()))
                except queue.Empty:
                    break
            try:
                if events and not self._failure:
                    self._commit(events)
            except DatabaseError as error:
                self._failure = error
            except Exception as error:  # the thread must not die in silence
                self._failure = DatabaseError(f"Recording failed: {type(error).__name__}: {error}.")
                self._failure.__cause__ = error
            if flushed:
                flushed.set()

    def _commit(self, events: list[Event]) -> None:
        by_run: dict[int, list[Event]] = {}
        for event in events:
            by_run.setdefault(event.run_id, []).append(event)
        with self._store.write() as session:
            for run_id, of_run in sorted(by_run.items()):
                if run_id not in self._games:
                    raise DatabaseError(f"Run {run_id} was not given to this recorder.")
                if get_run(session, run_id, lock=True).owner != self._owners[run_id]:
                    if all(isinstance(event, EngineSample) for event in of_run):
                        continue  # the run has ended; the engine goes on for others
                    raise DatabaseError(f"Run {run_id} is no longer written by this process.")
                self._write(session, run_id, self._digest(run_id, of_run))

    def _digest(self, run_id: int, events: list[Event]) -> _Group:
        """What is new in `events`, in order."""
        group = _Group()
        for event in events:
            if isinstance(event, EngineSample):
                sample = {"at": event.at, "stats": finite(event.stats)}
                group.samples.append({"run_id": run_id, **sample})
                group.events.append(("engine", sample))
                continue
            try:
                game = self._games[run_id][event.number]
            except KeyError:
                raise DatabaseError(f"Run {run_id} has no game {event.number}.") from None
            if isinstance(event, GameStarted):
                self._started(group, event, game)
            elif isinstance(event, MoveRecord):
                self._moved(group, event, game)
            elif event.termination is Termination.INFRASTRUCTURE:
                self._voided(group, event, game)
            else:
                self._ended(group, event, game)
        return group

    def _started(self, group: _Group, event: GameStarted, game: _Game) -> None:
        if game.status == "pending":
            game.status = "playing"
            group.change(event.number, status="playing", started_at=time.time())
            group.events.append(("game_started", {"number": event.number}))

    def _moved(self, group: _Group, event: MoveRecord, game: _Game) -> None:
        if game.status == "finished":
            return
        name = f"ply {event.ply} of game {event.number} (run {event.run_id})"
        if event.ply < len(game.moves):
            if game.moves[event.ply] != event.choice.uci:
                raise DatabaseError(
                    f"{name} is recorded as {game.moves[event.ply]}"
                    f" and came again as {event.choice.uci}."
                )
            return
        if event.ply > len(game.moves):
            raise DatabaseError(f"{name} came before ply {len(game.moves)}.")
        game.moves.append(event.choice.uci)
        row = move_row(event)
        group.moves.append(row)
        group.change(event.number, plies=event.ply + 1, fen=event.fen, last_move=event.choice.uci)
        group.events.append(("move", {field: row[field] for field in _MOVE_PAYLOAD}))

    def _voided(self, group: _Group, event: GameResult, game: _Game) -> None:
        """Nobody's fault: the game is pending again, without its moves."""
        if game.status == "finished":
            return
        game.status, game.moves = "pending", []
        group.moves = [row for row in group.moves if row["number"] != event.number]
        group.voided.append(event.number)
        group.games.pop(event.number, None)
        group.events.append(
            ("game_voided", {"number": event.number, "reason": clean_text(event.reason)})
        )

    def _ended(self, group: _Group, event: GameResult, game: _Game) -> None:
        if game.status == "finished":
            return
        if event.plies != len(game.moves):
            raise DatabaseError(
                f"Game {event.number} (run {event.run_id}) ended after {event.plies} plies"
                f" but has {len(game.moves)}."
            )
        game.status, game.moves = "finished", []
        points = finite(event.points)
        told = {
            "winner": event.winner,
            "result": event.result,
            "termination": event.termination.value,
            "reason": clean_text(event.reason),
            "by_points": event.by_points,
        }
        group.change(
            event.number,
            status="finished",
            finished_at=time.time(),
            plies=event.plies,
            fen=event.final_fen,
            points_first=points and points[0],
            points_second=points and points[1],
            **told,
        )
        ending = {"points": points, "plies": event.plies, "final_fen": event.final_fen}
        group.events.append(("game_finished", {"number": event.number} | told | ending))
        group.finished = True

    def _write(self, session: Session, run_id: int, group: _Group) -> None:
        if group.voided:
            session.execute(
                sa.delete(MoveRow).where(MoveRow.run_id == run_id, MoveRow.number.in_(group.voided))
            )
            session.execute(
                sa.update(GameRow)
                .where(GameRow.run_id == run_id, GameRow.number.in_(group.voided))
                .values(
                    status="pending",
                    plies=0,
                    fen=GameRow.start_fen,
                    last_move=None,
                    started_at=None,
                )
            )
        if group.moves:
            session.execute(sa.insert(MoveRow), group.moves)
        if group.samples:
            session.execute(sa.insert(EngineSampleRow), group.samples)
        for number, columns in group.games.items():
            session.execute(
                sa.update(GameRow)
                .where(GameRow.run_id == run_id, GameRow.number == number)
                .values(columns)
            )
        if group.finished:
            group.events.append(("standings", {"rows": standings_rows(session, run_id)}))
        if group.events:
            add_events(session, run_id, group.events)


_CHOICE = tuple(field.name for field in fields(MoveChoice))
_MOVE_PAYLOAD = (
    *("number", "ply", "side", "uci", "notation", "fen", "elapsed_s"),
    *("logprob", "legal_mass", "cached_tokens", "prompt_tokens"),
)


def move_row(event: MoveRecord) -> dict[str, Any]:
    """The columns of a move."""
    row: dict[str, Any] = {
        "run_id": event.run_id,
        "number": event.number,
        "ply": event.ply,
        "side": event.side,
        "notation": event.notation,
        "fen": event.fen,
        "key": event.key,
        "elapsed_s": event.elapsed_s,
    }
    row |= {name: getattr(event.choice, name) for name in _CHOICE}
    return {column: finite(value) for column, value in row.items()}
