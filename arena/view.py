"""What a person at the terminal sees of a run: a live table, or plain lines where there is none.

It reads the driver's `Progress` and the database, and changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

import games
from arena.crosstable import Cell, crosstable
from arena.store import Store, queries
from arena.tournament import Progress
from arena.types import GameResult, GameSpec, Termination

REFRESH_S = 0.25
STANDINGS_S = 1.0  # the table is computed again at most this often
SUMMARY_S = 10.0  # between two lines of figures, where there is no live table

Rows = Sequence[Mapping[str, Any]]


async def watch_live(progress: Progress, store: Store, console: Console, address: str) -> None:
    """Show the run until the task is cancelled; what was shown is then wiped away."""
    began = time.monotonic()
    standings: dict[int, Rows] = {}
    counted, at = -1, -STANDINGS_S
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            now = time.monotonic()
            if counted != progress.finished and now - at >= STANDINGS_S:
                counted, at = progress.finished, now
                for run in progress.runs:
                    standings[run.id] = await asyncio.to_thread(queries.standings, store, run.id)
            shown = live_view(progress, standings, address, now - began, console.height)
            live.update(shown, refresh=True)
            await asyncio.sleep(REFRESH_S)


def live_view(
    progress: Progress, standings: Mapping[int, Rows], address: str, elapsed: float, height: int
) -> RenderableType:
    """One frame, at most `height` lines."""
    head = Table.grid(expand=True)
    head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    head.add_column(justify="right", no_wrap=True)
    names = ", ".join(
        run.config.name or games.get_game(run.config.game).title for run in progress.runs
    )
    head.add_row(
        Text.assemble((names or "Starting", "bold"), "  ", (address, "cyan")),
        _clock(elapsed),
    )
    if not progress.runs:
        return head
    bar = Table.grid(expand=True, padding=(0, 1))
    bar.add_column(ratio=1)
    bar.add_column(no_wrap=True)
    bar.add_row(
        ProgressBar(total=max(progress.games, 1), completed=progress.finished),
        f"{progress.finished}/{progress.games} games",
    )
    parts: list[RenderableType] = [head, bar, figures(progress)]
    left = height - 4
    for run in progress.runs:
        rows = standings.get(run.id, ())
        shown = max(0, min(len(rows), left // len(progress.runs) - 1))  # one line is the heading
        if shown:
            parts.append(standings_table(rows[:shown]))
            left -= shown + 1
    parts.append(_boards(progress, max(0, left)))
    return Group(*parts)


def figures(progress: Progress) -> Text:
    """Games running, moves/s and the engine's figures in one line."""
    parts = [
        ("games running", f"{len(progress.playing)}"),
        ("moves/s", f"{progress.moves_per_s():.1f}"),
    ]
    if progress.stats is not None:
        rate = progress.stats["prefix_hit_rate"]
        parts += [
            ("tokens/s", f"{progress.stats['tokens_per_s']:.0f}"),
            ("queue", f"{progress.stats['num_waiting']}"),
            ("prefix hits", "–" if rate is None else f"{rate:.1%}"),
        ]
    text = Text()
    for name, value in parts:
        text.append(f"{name} ", style="dim")
        text.append(f"{value}   ", style="bold")
    return text


def standings_table(rows: Rows) -> Table:
    """Rank, name, results, score and rating, best first; without the notes."""
    table = _table()
    table.add_column("#", justify="right")
    table.add_column("agent", no_wrap=True, overflow="ellipsis")
    for name in ("played", "won", "drawn", "lost", "score", "rating", "95%"):
        table.add_column(name, justify="right", no_wrap=True)
    for rank, row in enumerate(rows, start=1):
        counts = (str(row[column]) for column in ("played", "wins", "draws", "losses"))
        table.add_row(
            str(rank), Text(row["name"]), *counts, _points(row["score"]), *_rating_cells(row)
        )
    return table


def crosstable_table(rows: Rows, cells: Sequence[Sequence[Cell | None]]) -> Table:
    """Each agent's score against each, in the order of the standings."""
    table = _table()
    table.add_column("#", justify="right")
    table.add_column("agent", no_wrap=True)
    for rank in range(1, len(rows) + 1):
        table.add_column(str(rank), justify="right", no_wrap=True)
    table.add_column("score", justify="right", no_wrap=True)
    for rank, (row, line) in enumerate(zip(rows, cells, strict=True), start=1):
        table.add_row(
            str(rank),
            Text(row["name"]),
            *("·" if cell is None else _points(cell.score) if cell.played else "" for cell in line),
            f"{_points(row['score'])}/{row['played']}",
        )
    return table


def print_results(console: Console, store: Store, run_id: int) -> None:
    """Crosstable and ratings of a run. Raises UnknownRun."""
    snapshot = queries.run_snapshot(store, run_id)
    run, rows = snapshot["run"], snapshot["standings"]
    order = [row["agent"] for row in rows]
    cells = crosstable(order, queries.played(store, run_id))
    played = f"{run['games_finished']} of {run['games']} games, {run['status']}"
    for title, table in (
        (f"Run {run_id}: {run['name']} ({played})", crosstable_table(rows, cells)),
        ("Ratings (Elo, the mean of the field is 0)", standings_table(rows)),
    ):
        console.print()
        console.print(Text(title, style="bold"))
        # A table that is wider than the terminal is wrapped by it, never cut.
        wide = console.options.update(width=10_000)
        width = max(console.width, console.measure(table, options=wide).maximum)
        console.print(table, width=width, crop=False)
    for note in dict.fromkeys(row["rating_note"] for row in rows if row["rating_note"]):
        names = ", ".join(row["name"] for row in rows if row["rating_note"] == note)
        console.print(Text(f"{names}: {note}", style="dim"))


async def watch_plain(progress: Progress, console: Console) -> None:
    """A line a finished game, and the figures every ten seconds, until the task is cancelled."""
    told = 0
    summary_at = 0.0
    try:
        while True:
            told = _tell(progress, console, told)
            now = time.monotonic()
            if not progress.runs:
                summary_at = now + SUMMARY_S
            elif now >= summary_at:
                summary_at = now + SUMMARY_S
                done = f"{progress.finished}/{progress.games} games   "
                console.print(done + figures(progress).plain.strip(), soft_wrap=True)
            await asyncio.sleep(REFRESH_S)
    finally:
        _tell(progress, console, told)


def _tell(progress: Progress, console: Console, told: int) -> int:
    before = sum(run.finished for run in progress.runs)
    for count, (spec, result) in enumerate(progress.results[told:], start=before + told + 1):
        line = f"{count}/{progress.games} {game_line(spec, result, len(progress.runs) > 1)}"
        console.print(Text(line), soft_wrap=True)
    return len(progress.results)


def game_line(spec: GameSpec, result: GameResult, several: bool) -> str:
    """`game 3: Heron - Pebble 1-0 (checkmate, 57 plies)`, with the run in front if there are
    several.
    """
    where = f"run {spec.run_id}, game {spec.number}" if several else f"game {spec.number}"
    first, second = (agent.name for agent in spec.agents)
    how = result.reason.replace("_", " ")
    if result.termination not in (Termination.NORMAL, result.reason):
        how = f"{result.termination.value.replace('_', ' ')}: {how}"
    plies = "1 ply" if result.plies == 1 else f"{result.plies} plies"
    return f"{where}: {first} - {second} {result.result} ({how}, {plies})"


def _boards(progress: Progress, height: int) -> Text:
    """The games being played, the furthest first, on at most `height` lines."""
    specs = {(run.id, spec.number): spec for run in progress.runs for spec in run.specs}
    playing = sorted(progress.playing.items(), key=lambda item: (-item[1], item[0]))
    shown = playing if len(playing) <= height else playing[: max(0, height - 1)]
    lines = [
        f"game {key[1]}: {' - '.join(agent.name for agent in specs[key].agents)}, ply {plies}"
        for key, plies in shown
    ]
    if len(shown) < len(playing) and height > 0:
        lines.append(f"and {len(playing) - len(shown)} more games")
    return Text("\n".join(lines), style="dim", no_wrap=True, overflow="ellipsis")


def _table() -> Table:
    return Table(box=None, pad_edge=False, header_style="dim")


def _points(score: float) -> str:
    """Chess writing: 1½."""
    whole, half = divmod(round(score * 2), 2)
    return f"{whole or ''}½" if half else str(whole)


def _rating_cells(row: Mapping[str, Any]) -> tuple[str, str]:
    rating, low, high = row["rating"], row["low"], row["high"]
    if rating is not None:
        return _elo(rating), "" if low is None else f"{_elo(low)} to {_elo(high)}"
    if low is not None:
        return f"> {_elo(low)}", ""
    return ("–" if high is None else f"< {_elo(high)}"), ""


def _elo(rating: float) -> str:
    return f"{round(rating):+d}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
