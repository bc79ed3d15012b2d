"""Reads game records (PGN, GIB) into the match database, so that they can be replayed and exported.

A file's games become a finished run of the kind "imported"; players are its agents, by name.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import games
from arena.config import MAX_AGENTS
from arena.export import TERMINATIONS
from arena.store import Store
from arena.store.imported import ImportedGame, add_imported_run, imported_keys
from arena.types import MoveChoice, MoveRecord, Termination
from games import GameError, Outcome, Position, pgn
from games.janggi import gib
from games.records import Note, Problem, Record, Records, fitting_rules, one_line

GAMES_PER_RUN = 1000  # a page shows all games of its run

# The first of those that are written the same.
_TERMINATIONS = {tag: kind for kind, tag in reversed(TERMINATIONS.items()) if kind}


class ImportRefused(ValueError):
    """A file that holds no game records; the message is one sentence."""


@dataclass
class Imported:
    """What an import did. `runs` are (id, game, games, players); the other numbers are games."""

    runs: list[tuple[int, str, int, int]] = field(default_factory=list)
    read: int = 0
    cut: int = 0  # of those read: with moves missing at the end
    known: int = 0  # of those read: in the database before
    skipped: int = 0


def import_files(
    store: Store, paths: Sequence[Path], tell: Callable[[str], None], name: str | None = None
) -> Imported:
    """Record the games of files, one run for each kind of game that is in them.

    A run has at most 1000 games and 256 players; then the next one begins. Games that were imported
    before, in whatever file, are left out. What could not be read goes to `tell`, sentence by
    sentence; a game keeps the moves before one that cannot be read. Raises DatabaseError.
    """
    done = Imported()
    known = imported_keys(store)
    ready: dict[str, list[ImportedGame]] = {}
    sources: dict[str, list[str]] = {}  # names of the files that the games are from

    def write(game: str) -> None:
        of_game, files = ready.pop(game), sources.pop(game)
        title = name or (files[0] if len(files) == 1 else f"{files[0]} and others")
        run_id = add_imported_run(store, title, game, of_game)
        done.runs.append((run_id, game, len(of_game), len(_players(of_game))))

    for path in paths:
        try:
            records, form = read_file(path)
        except ImportRefused as error:
            tell(str(error))
            continue
        done.skipped += records.skipped
        for problem in records.problems:
            tell(f"{path}: {problem}.")
        for record in records:
            try:
                one, illegal = _imported(record, form)
            except GameError as error:  # an impossible start, which GIB files may have
                tell(f"{path}: game {record.number}: {error}")
                done.skipped += 1
                continue
            if illegal:
                tell(f"{path}: {illegal}.")
            done.read += 1
            done.cut += len(one.moves) < len(record.moves) or record.is_cut
            if one.key in known:
                done.known += 1
                continue
            known[one.key] = 0
            others = ready.get(record.game, [])
            if len(others) == GAMES_PER_RUN or len(_players([*others, one])) > MAX_AGENTS:
                write(record.game)
            ready.setdefault(record.game, []).append(one)
            if path.stem not in (files := sources.setdefault(record.game, [])):
                files.append(path.stem)
    for game in list(ready):
        write(game)
    return done


def read_file(path: Path) -> tuple[Records, str]:
    """The records of a file, and "pgn" or "gib". Raises ImportRefused."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ImportRefused(f"{path} cannot be read: {error.strerror}.") from None
    form = _format(path, data)
    if form is None:
        raise ImportRefused(
            f"{path} holds positions, not games: to play from one, give it as start_fen of a"
            " tournament."
        )
    records = gib.loads(data) if form == "gib" else pgn.loads(data)
    if not records and not records.skipped:
        raise ImportRefused(f"{path} holds no game in PGN or GIB.")
    return records, form


def _format(path: Path, data: bytes) -> str | None:
    """By content, then by name; None for a list of positions."""
    start = data[:4096]
    if re.search(rb"^\s*\[[\x80-\xff]", start, re.M):  # a header in Korean
        return "gib"
    if re.search(rb"^\s*\[\w+[ \t]+\"", start, re.M):
        return "pgn"
    first = next((line for line in start.decode("latin-1").splitlines() if line.strip()), "")
    if path.suffix.lower() in (".fen", ".epd") or re.match(r"\s*(\w+/){7,9}\w+(\s|$)", first):
        return None
    return "gib" if path.suffix.lower() == ".gib" or b"\xff" in start else "pgn"


def _players(games_of: Sequence[ImportedGame]) -> set[str]:
    return {player for one in games_of for player in one.players}


def _imported(record: Record, form: str) -> tuple[ImportedGame, Problem | None]:
    """The record replayed, and what no rule set allows. Raises GameError for a start that is
    impossible.
    """
    game = games.get_game(record.game)
    rules, plies = fitting_rules(record)
    problem = None
    if plies < len(record.moves):
        left = len(record.moves) - plies
        text = f"is not legal in any rule set; {left} {'ply is' if left == 1 else 'plies are'} left out"
        problem = Problem(record.number, plies + 1, record.moves[plies], text, stops=True)
    position = game.position(record.start_fen, rules)
    tags = gib.pgn_headers(record.headers) if form == "gib" else record.headers
    moves = list(_moves(record, position, record.moves[:plies], tags))
    is_cut = record.is_cut or plies < len(record.moves)
    first, second = (
        one_line(tags.get(tag, "")).strip("?") or side.capitalize()
        for tag, side in zip(("White", "Black"), game.sides, strict=True)
    )
    termination, reason, outcome = _ending(record, tags, None if is_cut else position.outcome())
    if is_cut:
        reason = f"record cut after {len(moves)} plies"
    named = [tags.get(tag, "").strip("?.") for tag in ("Event", "Date", "Round", "White", "Black")]
    content: list[object] = [record.game, record.start_fen, record.moves, record.result, named]
    if is_cut and not moves:  # nothing tells such games apart but what could not be read
        content += [record.headers, [problem.token for problem in record.problems]]
    round_ = re.match(r"\d{1,6}", tags.get("Round", ""))
    one = ImportedGame(
        key=hashlib.sha256(json.dumps(content).encode()).hexdigest(),
        players=(first, second if second != first else f"{second} 2"),
        round=int(round_[0]) if round_ else 1,
        rules=rules,
        start_fen=position.start_fen,
        fen=position.fen(),
        moves=moves,
        result=record.result,
        winner={"1-0": 0, "0-1": 1}.get(record.result),
        termination=termination,
        reason=reason,
        by_points=outcome is not None and outcome.by_points,
        points=outcome.points if outcome else None,
        started_at=_date(tags),
        format=form,
        headers=record.headers,
    )
    return one, problem


def _moves(
    record: Record, position: Position, moves: Sequence[str], tags: dict[str, str]
) -> Iterator[MoveRecord]:
    """The moves as they are recorded; `position` plays them."""
    control = pgn.time_control(tags)
    clocks = [control[0] if control else None] * 2
    style = pgn.move_notation(position.game)
    for ply, uci in enumerate(moves):
        note = record.notes.get(ply + 1, Note())
        text = note.text
        if ply == 0 and 0 in record.notes:
            text = f"{record.notes[0].text} {text}".strip()
        if note.clock_s is not None and control is None:
            text = pgn.with_clock(text, note.clock_s)  # no time of the move follows from it
        side = position.turn
        elapsed = note.elapsed_s
        before = clocks[side]
        if elapsed is None and control and before is not None and note.clock_s is not None:
            elapsed = max(0.0, round(before + control[1] - note.clock_s, 3))
            if ply < 2 and note.clock_s == control[0]:
                elapsed = None  # clocks that start with the second move
        clocks[side] = note.clock_s
        probability = note.probability
        choice = MoveChoice(
            uci,
            logprob=math.log(probability) if probability and probability > 0 else None,
            prompt_tokens=note.prompt_tokens,
            cached_tokens=note.cached_tokens,
            thoughts=text or None,
        )
        notation = position.notation(uci, style)
        position.push(uci)
        yield MoveRecord(0, 0, ply, side, choice, notation, position.fen(), position.key(), elapsed)


def _ending(
    record: Record, tags: dict[str, str], outcome: Outcome | None
) -> tuple[Termination | None, str, Outcome | None]:
    """How the game ended by the rules, else by what the record says; with the points if they
    decided.
    """
    winner = {"1-0": 0, "0-1": 1}.get(record.result)
    if record.result == "*":
        return None, "", None
    if outcome is not None and outcome.winner == winner:
        return Termination.NORMAL, outcome.reason, outcome
    tag = tags.get("Termination", "").strip()
    reason, points = record.ending, None
    if counted := re.fullmatch(r"(.*) ([\d.]{1,6})-([\d.]{1,6})", record.ending):
        reason, points = counted[1], (float(counted[2]), float(counted[3]))
    termination = _TERMINATIONS.get(tag.lower())
    if "시간승" in tag:
        termination = Termination.TIMEOUT
    elif re.search("resign|기권", f"{reason} {tag}", re.I):
        termination = Termination.RESIGNATION
    if termination in (None, Termination.NORMAL):
        termination = Termination.RECORDED
    if not reason and tag.lower() not in ("?", *_TERMINATIONS):
        reason = tag
    return termination, reason, Outcome(winner, reason, points is not None, points)


def _date(tags: dict[str, str]) -> float | None:
    try:
        date = datetime.datetime.strptime(tags.get("Date", ""), "%Y.%m.%d")
        return date.replace(tzinfo=datetime.UTC).timestamp()
    except (ValueError, OverflowError):
        return None
