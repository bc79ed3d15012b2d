"""The values that travel between match play, the runtimes, the recorder and the pages: plain, frozen and picklable.

They know neither Ray nor the database. Times are seconds; probabilities are natural logarithms where the name says
`logprob` and plain shares elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from arena.config import AgentConfig


class Termination(StrEnum):
    """How a game ended. Every game has exactly one."""

    NORMAL = "normal"  # by the rules of the game; `GameResult.reason` names the rule
    PLY_LIMIT = "ply_limit"  # adjudicated at `max_plies`
    ILLEGAL_MOVE = "illegal_move"  # the mover loses
    NO_MOVE = "no_move"  # the mover's replies named no move that could be read, and it loses
    RESIGNATION = "resignation"
    TIMEOUT = "timeout"  # the mover loses on time
    CRASH = "crash"  # the mover's agent failed by its own fault and loses
    RECORDED = "recorded"  # as an imported record says, for no reason in the rules
    INFRASTRUCTURE = "infrastructure"  # nobody's fault: the game is void and is played again


@dataclass(frozen=True)
class GameSpec:
    """One game to be played. `moves` holds what is already recorded when a killed run goes on."""

    run_id: int
    number: int  # 1-based, unique within the run
    round: int  # 1-based
    game: str
    rules: str | None
    setup: str | None
    start_fen: str | None
    agents: tuple[AgentConfig, AgentConfig]  # the first mover first
    seed: int  # of the run; every draw is keyed by (seed, number, ply, purpose)
    max_plies: int
    move_time_limit: float | None = None  # seconds per move
    opening: tuple[str, ...] = ()  # moves that are played without asking the agents
    moves: tuple[str, ...] = ()


@dataclass(frozen=True)
class MoveChoice:
    """What an agent answers: a move, and what is known about how it came about."""

    uci: str
    logprob: float | None = None
    legal_mass: float | None = None
    entropy: float | None = None
    distribution: Mapping[str, float] = field(default_factory=dict)  # legal move -> probability
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    scored_rows: int | None = None
    prompt_restarted: bool = False  # at the context limit, before this move
    thoughts: str | None = None


@dataclass(frozen=True)
class GameStarted:
    """The game is on a worker now; `moves` of them were replayed from the record."""

    run_id: int
    number: int


@dataclass(frozen=True)
class MoveRecord:
    """One ply as it is recorded. Writing the same (run, game, ply) twice must change nothing."""

    run_id: int
    number: int
    ply: int  # 0-based
    side: int  # 0 = first mover
    choice: MoveChoice
    notation: str
    fen: str  # after the move
    key: str  # repetition key after the move
    elapsed_s: float | None  # wall time of the agent's answer; None for moves of the opening


@dataclass(frozen=True)
class GameResult:
    """The end of a game. `winner` is a side (0 = first mover) or None for a draw or a void game."""

    run_id: int
    number: int
    winner: int | None
    termination: Termination
    reason: str
    by_points: bool
    points: tuple[float, float] | None
    plies: int
    final_fen: str

    @property
    def result(self) -> str:
        """PGN result: "1-0", "0-1", "1/2-1/2", or "*" for a void game."""
        if self.termination is Termination.INFRASTRUCTURE:
            return "*"
        return {0: "1-0", 1: "0-1", None: "1/2-1/2"}[self.winner]


@dataclass(frozen=True)
class EngineSample:
    """The engine's figures at one moment, once a second. `stats` has the names of `engine.EngineStats`."""

    run_id: int
    at: float  # seconds since the epoch
    stats: Mapping[str, object]


Event = GameStarted | MoveRecord | GameResult | EngineSample
