"""Writes recorded games as PGN, and janggi as GIB.

Moves are replayed by the rules, so that a reader accepts what is written. Knows no game in
particular; the formats are in `games.pgn` and `games.janggi.gib`.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, TextIO

import games
from arena.store import Store, queries
from arena.types import Termination
from games import pgn
from games.janggi import gib
from games.records import Note, Record

FORMATS = ("pgn", "gib")

# Values of the tag `Termination` in the PGN standard, 9.8.1.
TERMINATIONS = {
    Termination.NORMAL: "normal",
    Termination.PLY_LIMIT: "adjudication",
    Termination.ILLEGAL_MOVE: "rules infraction",
    Termination.NO_MOVE: "rules infraction",
    Termination.RESIGNATION: "normal",
    Termination.TIMEOUT: "time forfeit",
    Termination.CRASH: "abandoned",
    Termination.RECORDED: "normal",
    None: "unterminated",
}


_TOLD = ("mode", "notation", "strength", "temperature", "depth")  # of an agent's settings


class ExportRefused(ValueError):
    """The games cannot be written in that format; the message is one sentence."""


def export_pgn(store: Store, run_id: int, out: TextIO, number: int | None = None) -> int:
    """Write the finished games of a run in order, or the game `number` as far as it goes.

    Returns how many games were written. Raises UnknownRun, and IllegalMove for a record that the
    rules refuse.
    """
    count = 0
    for count, record in enumerate(_records(store, run_id, number), 1):
        out.write("\n" * (count > 1) + pgn.dumps([record]))
    return count


def export_gib(store: Store, run_id: int, out: BinaryIO, number: int | None = None) -> int:
    """The same as GIB, in cp949. Raises ExportRefused for another game than janggi."""
    game = queries.run_snapshot(store, run_id)["run"]["game"]
    if game != "janggi":
        raise ExportRefused(f"GIB is a format of janggi: run {run_id} is {game}, export it as PGN.")
    count = 0
    for count, record in enumerate(_records(store, run_id, number, is_gib=True), 1):
        out.write(b"\n" * (count > 1) + gib.dumps([record]))
    return count


def _records(
    store: Store, run_id: int, number: int | None, *, is_gib: bool = False
) -> Iterator[Record]:
    snapshot = queries.run_snapshot(store, run_id)
    numbers = [game["number"] for game in snapshot["games"] if game["status"] == "finished"]
    for wanted in numbers if number is None else [number]:
        detail = queries.game_detail(store, run_id, wanted)
        yield game_record(
            snapshot["run"], snapshot["agents"], detail["game"], detail["moves"], is_gib=is_gib
        )


def game_record(
    run: Mapping[str, Any],
    agents: list[dict[str, Any]],
    record: Mapping[str, Any],
    moves: Iterable[Mapping[str, Any]],
    *,
    is_gib: bool = False,
) -> Record:
    """One game, from the dictionaries of `arena.store.queries`. White is who moves first.

    An imported game has the headers that it came with; with `is_gib` those of a GIB file as they
    are.
    """
    asked = record["spec"]
    start = games.get_game(run["game"]).position(asked["start_fen"], asked["rules"], asked["setup"])
    tags = dict(asked.get("headers", ())) or _tags(run, agents, record)
    if asked.get("format") == "gib" and not is_gib:
        tags = gib.pgn_headers(tags)
    found = Record(
        run["game"],
        start.start_fen,
        headers=tags,
        result=record["result"] or "*",
        rules=start.rules,
    )
    clocks = _Clocks(asked["move_time_limit"], pgn.time_control(tags))
    for ply, move in enumerate(moves, 1):
        found.moves.append(move["uci"])
        elapsed = move["elapsed_s"]
        text, clock = move["thoughts"] or "", clocks.after(move["side"], elapsed)
        if "format" in asked and clock is None:
            text, clock = pgn.without_clock(text)
        found.notes[ply] = Note(
            text=text,
            elapsed_s=elapsed,
            clock_s=clock,
            probability=None if move["logprob"] is None else math.exp(move["logprob"]),
            prompt_tokens=move["prompt_tokens"],
            cached_tokens=move["cached_tokens"],
        )
    found.ending = record["reason"] or ""
    if record["points"]:
        found.ending += " {:g}-{:g}".format(*record["points"])
    return found


class _Clocks:
    """What is left on the clocks: of the time for one move, or of that for the game."""

    def __init__(self, per_move: float | None, control: tuple[float, float] | None) -> None:
        self._per_move = per_move
        self._control = control
        self._left = [control[0]] * 2 if control else [0.0] * 2

    def after(self, side: int, elapsed: float | None) -> float | None:
        if self._per_move is not None:
            return None if elapsed is None else max(0.0, self._per_move - elapsed)
        if self._control is None:
            return None
        if elapsed is not None:
            self._left[side] += self._control[1] - elapsed
        return max(0.0, self._left[side])


def _tags(
    run: Mapping[str, Any], agents: list[dict[str, Any]], record: Mapping[str, Any]
) -> dict[str, str]:
    played = datetime.datetime.fromtimestamp(
        record["started_at"] or run["created_at"], datetime.UTC
    )
    players = {"White": agents[record["first"]], "Black": agents[record["second"]]}
    tags = {
        "Event": run["name"],
        "Site": "?",
        "Date": played.strftime("%Y.%m.%d"),
        "Round": str(record["round"]),
        **{side: agent["name"] for side, agent in players.items()},
    }
    limit = record["spec"]["move_time_limit"]
    if limit is not None:
        tags["TimeControl"] = f"1/{limit:g}"
    for side, agent in players.items():
        config = agent["config"]
        settings = [
            f"{key}={value}" for key, value in config.items() if key in _TOLD and value is not None
        ]
        tags[f"{side}Type"] = "program"
        tags[f"{side}Agent"] = " ".join([config["type"], *settings])
        model = config.get("model") or run["config"].get("model")
        if config["type"] == "llm" and model:
            tags[f"{side}Model"] = str(model)
    termination = record["termination"]
    tags["Termination"] = TERMINATIONS[termination and Termination(termination)]
    return tags
