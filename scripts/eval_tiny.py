"""What the bundled model is worth: legal mass and agreement on held-out positions, matches, and the default roster.

    python scripts/eval_tiny.py --data data                   # everything, about half an hour on two cores
    python scripts/eval_tiny.py --data data positions          # one part: positions, matches or roster

`positions` asks for the move of each held-out position with the persona of the level that played it. `matches` plays
the strongest agent of the roster against bots and the weakest agent. `roster` runs `arena run --game G --agents 8`
as a user does. Intervals are of 95%: of a mean from its standard error, of a match score by Wilson's formula, counting
a draw as half a point. Figures go to build/eval/eval_tiny.json too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
from rich.console import Console
from rich.table import Table
from tiny_data import Record, read_records

import games
from arena.config import ROSTER, TournamentConfig, bundled_model
from arena.prompts import STRENGTHS, move_text, prompt_text
from arena.runtime.local import LocalRuntime
from arena.store import Store, queries
from arena.tournament import Progress, host
from engine import LLM, ChoiceParams, EngineConfig, load_tokenizer

STRONGEST, WEAKEST = ROSTER[-1], ROSTER[0]
OPPONENTS: tuple[str, ...] = ("random", "greedy", "alphabeta", WEAKEST.name)
Figures = dict[str, Any]


def held_out_positions(records: Sequence[Record], count: int) -> list[tuple[Record, int]]:
    """`count` positions (game, ply) drawn at random from all plies that an engine decided."""
    decided = [
        (record, ply)
        for record in records
        for ply in range(len(record.moves))
        if record.random[ply] == "0"
    ]
    return random.Random(1).sample(decided, min(count, len(decided)))


def positions(llm: LLM, records: Sequence[Record], count: int) -> Figures:
    """Legal mass, and how often the likeliest move is the engine's, per level of the side to move."""
    prompts, choices, played, levels = [], [], [], []
    game = games.get_game(records[0].game)
    style = game.notations[0]
    for record, ply in held_out_positions(records, count):
        position = game.position(setup=record.setup)
        for move in record.moves[:ply]:
            position.push(move)
        level = record.levels[ply % 2]
        persona = next((a for a in ROSTER if a.strength == level), ROSTER[0])
        prompts.append(
            prompt_text(persona.model_copy(update={"strength": level}), record.setup, position)
        )
        choices.append([move_text(position.notation(m, style)) for m in position.legal_moves()])
        played.append(move_text(position.notation(record.moves[ply], style)))
        levels.append(level)
    outputs = llm.choose(prompts, choices, ChoiceParams(temperature=0))
    mass = np.array([output.legal_mass for output in outputs])
    agrees = np.array([o.text == p for o, p in zip(outputs, played, strict=True)], dtype=float)
    return {
        "positions": len(mass),
        "legal_mass": mean(mass),
        "top1": mean(agrees),
        "top1_by_level": {
            level: mean(agrees[np.array(levels) == level]) for level in STRENGTHS if level in levels
        },
    }


def mean(values: np.ndarray) -> list[float]:
    """[mean, low, high] with 95% intervals from the standard error."""
    middle, error = float(values.mean()), float(values.std() / math.sqrt(len(values)))
    return [round(x, 4) for x in (middle, middle - 1.96 * error, middle + 1.96 * error)]


def wilson(score: float, count: int) -> list[float]:
    """[score, low, high] by Wilson (1927), z = 1.96."""
    z = 1.96
    middle = (score + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(score * (1 - score) / count + (z / 2 / count) ** 2)
    return [round(x, 4) for x in (score, max(middle - half, 0.0), min(middle + half, 1.0))]


def match(game: str, model: str, opponent: str, count: int, folder: Path) -> Figures:
    """The strongest agent's score against another, `count` games from the start, colours in turn."""
    config = TournamentConfig.model_validate(
        {
            "game": game,
            "agents": [STRONGEST.name, opponent],
            "cycles": math.ceil(count / 2),
            "model": model,
            "seed": 1,
        }
    )
    with Store.open(f"sqlite:///{folder}/{game}-{opponent}.db") as store:
        runtime = LocalRuntime(EngineConfig(config.model_path))

        async def play() -> None:
            try:
                await host([config], store, runtime, Progress())
            finally:
                await runtime.close()

        asyncio.run(play())
        [run] = queries.runs(store)
        rows = {row["name"]: row for row in queries.standings(store, run["id"])}
        mine = rows[STRONGEST.name]
        return {
            "games": mine["played"],
            "wins": mine["wins"],
            "draws": mine["draws"],
            "losses": mine["losses"],
            "score": wilson(mine["score"] / mine["played"], mine["played"]),
        }


def roster(game: str, model: str, folder: Path) -> Figures:
    """`arena run --game GAME --agents 8` as a user types it: time, rate, and ratings by condition."""
    database = f"sqlite:///{folder}/roster-{game}.db"
    command = [str(Path(sys.executable).with_name("arena")), "run", "--game", game, "--agents", "8"]
    started = time.monotonic()
    subprocess.run(
        [*command, "--model", model, "--database", database, "--no-web"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    seconds = time.monotonic() - started
    with Store.open(database, create=False) as store:
        [run] = queries.runs(store)
        ratings = {row["name"]: rating(row) for row in queries.standings(store, run["id"])}
        count = range(1, run["games_finished"] + 1)
        played = [queries.game_detail(store, run["id"], number) for number in count]
    masses = [move["legal_mass"] for one in played for move in one["moves"]]
    played_s = run["finished_at"] - run["started_at"]
    strength = {agent.name: STRENGTHS.index(agent.strength) for agent in ROSTER}
    names = [agent.name for agent in ROSTER]
    return {
        "seconds": round(seconds, 1),
        "moves": len(masses),
        "moves_per_s": round(len(masses) / played_s, 1),
        "engine_alone_moves_per_s": round(engine_alone(game, model, played), 1),
        "legal_mass": mean(np.array(masses)),
        "ratings": {name: round(ratings[name], 1) for name in names},
        "spearman": round(spearman([strength[n] for n in names], [ratings[n] for n in names]), 3),
    }


def engine_alone(game: str, model: str, played: Sequence[Figures]) -> float:
    """Moves per second when the engine is asked for nothing but the moves of these games, as many games at a time as
    the run had: what a run could have if all around the engine took no time.
    """
    rules = games.get_game(game)
    style = rules.notations[0]
    at_once = TournamentConfig(game=game, agents=len(ROSTER)).concurrency
    llm, tokenizer = LLM(EngineConfig(model)), load_tokenizer(model)
    asked, seconds = 0, 0.0
    waiting, group = [(one, rules.position()) for one in played], []
    while waiting or group:
        group = [(one, at) for one, at in group if at.ply < len(one["moves"])]
        while waiting and len(group) < at_once:
            group.append(waiting.pop(0))
        if group:
            agents = [ROSTER[one["game"][("first", "second")[at.ply % 2]]] for one, at in group]
            prompts = [
                tokenizer.encode(prompt_text(agent, None, at))
                for agent, (_, at) in zip(agents, group, strict=True)
            ]
            choices = [
                [move_text(at.notation(move, style)) for move in at.legal_moves()]
                for _, at in group
            ]
            began = time.perf_counter()
            llm.choose(prompts, choices)
            seconds += time.perf_counter() - began
            asked += len(group)
            for one, at in group:
                at.push(one["moves"][at.ply]["uci"])
    return asked / seconds


def rating(row: dict[str, Any]) -> float:
    """In Elo; without bound for who won, or lost, every game."""
    if row["rating"] is not None:
        return float(row["rating"])
    return math.inf if 2 * row["score"] > row["played"] else -math.inf


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """The correlation of ranks; equal values share their mean rank."""

    def ranks(values: Sequence[float]) -> np.ndarray:
        order = np.array(values, dtype=float)
        return np.array([(order < v).sum() + (order == v).sum() / 2 for v in order])

    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("positions", "matches", "roster")
    parser.add_argument("parts", nargs="*", metavar="PART", default=parts, help=", ".join(parts))
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of *.jsonl games")
    parser.add_argument("--model", default=bundled_model())
    parser.add_argument("--games", nargs="+", default=games.list_games(), help="which games")
    parser.add_argument("--positions", type=int, default=2000, help="held-out positions per game")
    parser.add_argument("--count", type=int, default=200, help="games per match")
    parser.add_argument("--out", type=Path, default=Path("build/eval"))
    args = parser.parse_args()
    if unknown := set(args.parts) - set(parts):
        parser.error(f"there is no part {sorted(unknown)[0]!r}; use {', '.join(parts)}")
    found: dict[str, Figures] = {name: {} for name in args.games}
    if "positions" in args.parts:
        llm = LLM(EngineConfig(args.model))
        held_out = read_records(args.data)[1]
        for name in args.games:
            of_game = [record for record in held_out if record.game == name]
            found[name]["positions"] = positions(llm, of_game, args.positions)
    with tempfile.TemporaryDirectory() as folder:
        for name in args.games:
            if "matches" in args.parts:
                found[name]["matches"] = {
                    other: match(name, args.model, other, args.count, Path(folder))
                    for other in OPPONENTS
                }
            if "roster" in args.parts:
                found[name]["roster"] = roster(name, args.model, Path(folder))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "eval_tiny.json").write_text(json.dumps(found, indent=2) + "\n")
    show(found)


def show(found: dict[str, Figures]) -> None:
    """The figures as a table, one row each."""
    table = Table("game", "what", "figure", "95% interval")
    for game, parts in found.items():
        for key, value in flat(parts):
            if isinstance(value, list):
                table.add_row(game, key, f"{value[0]:.3f}", f"{value[1]:.3f} to {value[2]:.3f}")
            else:
                table.add_row(game, key, str(value), "")
    Console(width=110).print(table)


def flat(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Leaves of nested dictionaries with the path to each."""
    rows = []
    for key, value in tree.items():
        path = f"{prefix} {key}".strip()
        rows += flat(value, path) if isinstance(value, dict) else [(path, value)]
    return rows


if __name__ == "__main__":
    main()
