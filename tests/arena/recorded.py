"""Scripted tournaments for the tests of the database: which events a run consists of."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator

import games
from arena.config import ROSTER, AgentConfig, GreedyAgent, RandomAgent
from arena.store import Recorder, Store
from arena.types import (
    Event,
    GameResult,
    GameSpec,
    GameStarted,
    MoveChoice,
    MoveRecord,
    Termination,
)

AGENTS: list[AgentConfig] = [ROSTER[0], RandomAgent(name="random"), GreedyAgent(name="greedy")]


def specs(game: str = "chess", **changes: object) -> list[GameSpec]:
    """Everybody meets everybody with both colours."""
    pairs = [(a, b) for a in AGENTS for b in AGENTS if a is not b]
    given = {"rules": None, "setup": None, "start_fen": None} | changes
    return [
        GameSpec(0, number, 1, game, agents=pair, seed=7, max_plies=12, **given)
        for number, pair in enumerate(pairs, 1)
    ]


def new_run(store: Store, game: str = "chess", **changes: object) -> int:
    agents = [agent.model_dump(mode="json") for agent in AGENTS]
    config = {"game": game, "agents": agents, "model": "tiny"}
    return store.create_run(config, "A test", game, agents, specs(game, **changes))


def play(spec: GameSpec) -> Iterator[Event]:
    """Random play, the same for the same game whatever was recorded before; ends after 12 plies."""
    position = games.get_game(spec.game).position(spec.start_fen, spec.rules, spec.setup)
    for uci in spec.moves:
        position.push(uci)
    yield GameStarted(spec.run_id, spec.number)
    while position.outcome() is None and position.ply < spec.max_plies:
        legal = position.legal_moves()
        uci = random.Random(f"{spec.number} {position.ply}").choice(legal)
        notation, ply, side = position.notation(uci, "san"), position.ply, position.turn
        position.push(uci)
        choice = MoveChoice(
            uci, logprob=-0.5, legal_mass=0.75, distribution={m: 1 / len(legal) for m in legal}
        )
        key, fen = str(position.key()), position.fen()
        yield MoveRecord(spec.run_id, spec.number, ply, side, choice, notation, fen, key, 0.25)
    outcome = position.outcome() or position.adjudicate()
    winner = (0, 1, None)[spec.number % 3] if spec.game == "chess" else outcome.winner
    yield GameResult(
        spec.run_id,
        spec.number,
        winner,
        Termination.PLY_LIMIT,
        outcome.reason,
        outcome.by_points,
        outcome.points,
        position.ply,
        position.fen(),
    )


def play_run(url: str, run_id: int) -> None:
    """Claim a run and play it to the end, its games by turns; a process of its own does it to be
    killed.
    """
    with Store.open(url) as store:
        store.claim_run(run_id)
        with Recorder(store, [run_id]) as recorder:
            streams = [play(spec) for spec in store.pending_specs(run_id)]
            while streams:
                for stream in list(streams):
                    if event := next(stream, None):
                        recorder.put(event)
                        time.sleep(0.005)
                    else:
                        streams.remove(stream)
        store.finish_run(run_id, "finished")


def record(store: Store, run_id: int, numbers: range = range(1, 7)) -> None:
    """Play the pending games of those numbers and record them."""
    with Recorder(store, [run_id]) as recorder:
        for spec in store.pending_specs(run_id):
            if spec.number in numbers:
                for event in play(spec):
                    recorder.put(event)


if __name__ == "__main__":
    play_run(sys.argv[1], int(sys.argv[2]))
