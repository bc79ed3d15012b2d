"""One agent's view of a game as token ids, which only ever grow at the end."""

from __future__ import annotations

from arena import config as cfg
from arena.agents.base import EngineClient, GameView
from arena.prompts import MOVES, move_text, persona_text, start_text, system_text
from arena.types import GameSpec
from games import Position, get_game

KEPT_PLIES = 16  # of the transcript, when it has to be restarted


class Transcript:
    """The prompt rules / persona / start / moves of a game as it goes on.

    Each layer and each move is turned into tokens once, by itself, so that a ply only ever adds
    tokens at the end. When `limit` tokens are passed, the transcript starts again from a position
    some plies ago; that depends on the moves alone, so that a resumed game has the same transcript.
    """

    def __init__(
        self, config: cfg.LlmAgent, spec: GameSpec, engine: EngineClient, limit: int
    ) -> None:
        game = get_game(spec.game)
        self._engine = engine
        self._limit = limit
        self._notation = config.notation or game.notations[0]
        system = system_text(game, spec.rules, self._notation, config.mode, config.show_legal_moves)
        persona = persona_text(config.name, config.strength, config.style)
        self._persona = [*engine.tokenizer.encode_prompt(system), *self.encode(persona)]
        self._position = game.position(spec.start_fen, spec.rules, spec.setup)
        fen = self._position.start_fen
        self._start = None if fen == game.start_fen else spec.setup or fen
        self.ids = self._from(0)
        self.restarted_at = 0  # the number of moves at the last restart, 0 before the first

    def follow(self, view: GameView) -> None:
        """Append the moves that are new since the last call, minding the limit after each one."""
        for move in view.moves[self._position.ply :]:
            self.ids = [*self.ids, *self._played(self._position, move)]
            if len(self.ids) > self._limit:
                self._restart()

    def encode(self, text: str) -> tuple[int, ...]:
        return self._engine.tokenizer.encode_choice(text)

    def shown(self, moves: list[str]) -> list[str]:
        """Legal moves of the present position, in UCI, as this agent reads and writes them."""
        return [self._position.notation(move, self._notation) for move in moves]

    def _restart(self) -> None:
        """Start from the position `KEPT_PLIES` ago, or less where that takes over half the room."""
        ply = self._position.ply
        kept = min(KEPT_PLIES, ply)
        ids = self._from(ply - kept)
        while kept and len(ids) > (len(self._persona) + self._limit) // 2:
            kept //= 2
            ids = self._from(ply - kept)
        self.ids = ids
        self.restarted_at = ply

    def _from(self, ply: int) -> list[int]:
        """The prompt with a transcript that begins at `ply`, from its FEN unless that is the start."""
        replay = self._position.copy()
        moves = replay.moves()[ply:]
        while replay.ply > ply:
            replay.pop()
        ids = [
            *self._persona,
            *self.encode(start_text(replay.fen() if ply else self._start) + MOVES),
        ]
        for move in moves:
            ids += self._played(replay, move)
        return ids

    def _played(self, position: Position, move: str) -> tuple[int, ...]:
        """Plays a move; its tokens."""
        text = move_text(position.notation(move, self._notation))
        position.push(move)
        return self.encode(text)
