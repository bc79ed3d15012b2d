"""A tournament that a test moves along by hand: random legal moves with made-up figures, recorded
like real ones.
"""

from __future__ import annotations

import math
import random
import time
from pathlib import Path
from typing import Any

import games
from arena.config import TournamentConfig, resolve_agents
from arena.pairing import game_specs
from arena.store import Recorder, Store
from arena.types import (
    EngineSample,
    GameResult,
    GameSpec,
    GameStarted,
    MoveChoice,
    MoveRecord,
    Termination,
)


class PlayedRun:
    """A claimed run in the database at `path`; what its methods do is recorded when they return."""

    def __init__(self, path: Path, seed: int = 1, **config: Any) -> None:
        self.config = TournamentConfig.model_validate(
            {"max_plies": 60, "name": "Test cup"} | config
        )
        self.random = random.Random(seed)
        self.store = Store.open(str(path))
        agents = resolve_agents(self.config)
        self.id = self.store.create_run(
            self.config.model_dump(mode="json"),
            self.config.name or "",
            self.config.game,
            [agent.model_dump(mode="json") for agent in agents],
            game_specs(self.config, 0),
        )
        self.store.claim_run(self.id)
        self.recorder = Recorder(self.store, [self.id])
        self.specs: dict[int, GameSpec] = {s.number: s for s in self.store.pending_specs(self.id)}
        self.positions = {number: self._position(spec) for number, spec in self.specs.items()}
        self.samples = 0

    def start(self, *numbers: int) -> None:
        for number in numbers:
            self.recorder.put(GameStarted(self.id, number))
        self.recorder.flush()

    def move(self, number: int, uci: str | None = None, **figures: Any) -> str:
        """Play a move in a game, a drawn one unless given; `figures` replace those made up."""
        uci = self._put(number, uci, figures)
        self.recorder.flush()
        return uci

    def _put(self, number: int, uci: str | None, figures: dict[str, Any]) -> str:
        position = self.positions[number]
        legal = position.legal_moves()
        weights = [self.random.expovariate(1.0) ** 2 for _ in legal]
        odds = {move: w / sum(weights) for move, w in zip(legal, weights, strict=True)}
        uci = uci or self.random.choices(legal, weights)[0]
        made_up = {
            "logprob": math.log(odds[uci]),
            "legal_mass": 0.8 + self.random.random() / 5,
            "entropy": -sum(p * math.log(p) for p in odds.values() if p),
            "distribution": odds,
            "queue_s": 0.004,
            "prefill_s": 0.03,
            "decode_s": 0.02,
            "prompt_tokens": 400 + 5 * position.ply,
            "cached_tokens": 396 + 5 * position.ply,
            "scored_rows": len(legal) // 2,
        }
        choice = MoveChoice(uci, **made_up | figures)
        self._record(number, choice, 0.03 + self.random.expovariate(10))
        return uci

    def open(self, number: int) -> None:
        """Play the opening of a game: nobody is asked, so nothing is known but the moves."""
        for uci in self.specs[number].opening:
            self._record(number, MoveChoice(uci), None)
        self.recorder.flush()

    def _record(self, number: int, choice: MoveChoice, elapsed_s: float | None) -> None:
        position = self.positions[number]
        ply, side = position.ply, position.turn
        notation = position.notation(choice.uci, position.game.notations[0])
        position.push(choice.uci)
        self.recorder.put(
            MoveRecord(
                run_id=self.id,
                number=number,
                ply=ply,
                side=side,
                choice=choice,
                notation=notation,
                fen=position.fen(),
                key=position.key(),
                elapsed_s=elapsed_s,
            )
        )

    def play(self, number: int, plies: int) -> None:
        """Up to so many moves, then the end of the game if it has come to one."""
        for _ in range(plies):
            if self._over(number):
                break
            self._put(number, None, {})
        self.recorder.flush()
        if self._over(number):
            self.finish(number)

    def finish(
        self, number: int, termination: Termination | None = None, reason: str | None = None
    ) -> None:
        """End a game: as the rules say, else by adjudication."""
        position = self.positions[number]
        outcome = position.outcome() or position.adjudicate()
        normal = Termination.NORMAL if position.outcome() else Termination.PLY_LIMIT
        self.recorder.put(
            GameResult(
                run_id=self.id,
                number=number,
                winner=outcome.winner,
                termination=termination or normal,
                reason=reason or outcome.reason,
                by_points=outcome.by_points,
                points=outcome.points,
                plies=position.ply,
                final_fen=position.fen(),
            )
        )
        self.recorder.flush()
        if termination is Termination.INFRASTRUCTURE:
            self.positions[number] = self._position(self.specs[number])

    def sample(self, at: float | None = None, **stats: Any) -> None:
        """One second of engine figures."""
        self.samples += 1
        figures = {
            "num_running": self.random.randint(8, 24),
            "num_waiting": self.random.randint(0, 8),
            "kv_usage": min(1.0, 0.1 + self.samples / 200),
            "prefix_hit_rate": 1 - 0.5 / (1 + self.samples),
            "requests_finished": self.samples * 18 + self.random.randint(0, 9),
            "tokens_per_s": 900 + 200 * math.sin(self.samples / 7),
        }
        self.recorder.put(EngineSample(self.id, at or time.time(), figures | stats))
        self.recorder.flush()

    def end(self, status: str = "finished") -> None:
        self.recorder.flush()
        self.store.finish_run(self.id, status)

    def close(self) -> None:
        self.recorder.close()
        self.store.close()

    def _over(self, number: int) -> bool:
        position = self.positions[number]
        return position.outcome() is not None or position.ply >= self.config.max_plies

    @staticmethod
    def _position(spec: GameSpec) -> games.Position:
        return games.get_game(spec.game).position(spec.start_fen, spec.rules, spec.setup)
