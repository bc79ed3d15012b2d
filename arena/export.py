"""Writes recorded games as PGN (the Portable Game Notation standard; tag `Variant` for games other
than chess).

Moves are replayed by the rules and written in the game's SAN, so that a reader accepts what is
written. Knows no game in particular.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import games
from arena.store import Store, queries
from arena.types import Termination

LINE = 80  # PGN standard, 4.3: lines of export format are shorter than this

# Values of the tag `Termination` in the PGN standard, 9.8.1.
_TERMINATIONS = {
    Termination.NORMAL: "normal",
    Termination.PLY_LIMIT: "adjudication",
    Termination.ILLEGAL_MOVE: "rules infraction",
    Termination.NO_MOVE: "rules infraction",
    Termination.RESIGNATION: "normal",
    Termination.TIMEOUT: "time forfeit",
    Termination.CRASH: "abandoned",
    None: "unterminated",
}


def export_pgn(store: Store, run_id: int, out: TextIO, number: int | None = None) -> int:
    """Write the finished games of a run in order, or the game `number` as far as it goes.

    Returns how many games were written. Raises UnknownRun, and IllegalMove for a record that the
    rules refuse.
    """
    snapshot = queries.run_snapshot(store, run_id)
    numbers = [game["number"] for game in snapshot["games"] if game["status"] == "finished"]
    if number is not None:
        numbers = [number]
    for written, wanted in enumerate(numbers):
        out.write("\n" * bool(written))
        detail = queries.game_detail(store, run_id, wanted)
        out.write(game_pgn(snapshot["run"], snapshot["agents"], detail["game"], detail["moves"]))
    return len(numbers)


def game_pgn(
    run: Mapping[str, Any],
    agents: list[dict[str, Any]],
    record: Mapping[str, Any],
    moves: Iterable[Mapping[str, Any]],
) -> str:
    """One game, from the dictionaries of `arena.store.queries`. White is who moves first."""
    game = games.get_game(run["game"])
    asked = record["spec"]
    position = game.position(asked["start_fen"], asked["rules"], asked["setup"])
    played = datetime.datetime.fromtimestamp(
        record["started_at"] or run["created_at"], datetime.UTC
    )
    result = record["result"] or "*"
    tags = {
        "Event": run["name"],
        "Site": "?",
        "Date": played.strftime("%Y.%m.%d"),
        "Round": str(record["round"]),
        "White": agents[record["first"]]["name"],
        "Black": agents[record["second"]]["name"],
        "Result": result,
    }
    if game.pgn_variant:
        tags["Variant"] = game.pgn_variant
    if asked["rules"]:
        tags["Rules"] = asked["rules"]
    if position.start_fen != game.start_fen:
        tags |= {"SetUp": "1", "FEN": position.start_fen}
    tags["Termination"] = _TERMINATIONS[record["termination"]]

    style = "san" if "san" in game.notations else game.notations[0]
    tokens: list[str] = []
    for move in moves:
        dots = "." if position.turn == 0 else "..."
        full_move = position.fen().split()[-1]  # the last field of a FEN, in all games
        san = position.notation(move["uci"], style)
        tokens += [full_move + dots, san, "{" + _comment(move) + "}"]
        position.push(move["uci"])
    if record["reason"]:
        tokens.append("{" + _ending(record) + "}")
    tokens.append(result)
    head = "".join(f'[{name} "{_quoted(value)}"]\n' for name, value in tags.items())
    return head + "\n" + "\n".join(_lines(tokens)) + "\n"


def _comment(move: Mapping[str, Any]) -> str:
    """Elapsed time as PGN's %emt, then the probability that the agent gave its move."""
    minutes, seconds = divmod(move["elapsed_s"] or 0.0, 60)
    text = f"[%emt {int(minutes) // 60}:{int(minutes) % 60:02}:{seconds:06.3f}]"
    if move["logprob"] is not None:
        text += f" p={math.exp(move['logprob']):.3g}"
    return text


def _ending(record: Mapping[str, Any]) -> str:
    text = str(record["reason"])
    if record["points"]:
        text += " {:g}-{:g}".format(*record["points"])
    return " ".join(text.replace("}", ")").split())


def _quoted(value: str) -> str:
    return " ".join(value.split()).replace("\\", "\\\\").replace('"', '\\"')


def _lines(tokens: Iterable[str]) -> list[str]:
    """Tokens joined by spaces, broken before the line is full; a longer comment is broken at its
    spaces.
    """
    lines = [""]
    for token in tokens:
        for word in [token] if len(token) < LINE else token.split():
            if lines[-1] and len(lines[-1]) + 1 + len(word) >= LINE:
                lines.append(word)
            else:
                lines[-1] += " " * bool(lines[-1]) + word
    return lines
