"""A language model at the board: keeps the game as token ids, and the engine draws a legal move."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable

import games
from arena import config as cfg
from arena.agents.base import EngineClient, GameView, InfrastructureError
from arena.config import ConfigError
from arena.prompts import move_text, persona_text, start_text, system_text
from arena.types import GameSpec, MoveChoice
from engine import BoundaryMerge, ChoiceOutput, ChoiceParams, NoChoices, PromptTooLong

MAX_MOVE_TOKENS = 16  # the longest move has 6 characters after its space, at most a few tokens each
ROOM_TOKENS = 256  # for a position as FEN (at most about 100 characters) and the last moves
KEPT_PLIES = 16  # of the transcript, when it has to be restarted


class LlmPlayer:
    """Mode `choose`: one request a move, always a legal one.

    The prompt is rules / persona / start / moves. Each layer and each move is turned into tokens
    once, by itself, so that a ply only ever adds tokens at the end. When the context is full, the
    transcript starts again from a position some plies ago; that depends on the moves alone, so
    that a resumed game has the same transcript.
    """

    def __init__(self, config: cfg.LlmAgent, spec: GameSpec, engine: EngineClient) -> None:
        self._config = config
        self._engine = engine
        self._tag = secrets.token_hex(4)  # a game that is played again must not reuse request ids
        self._limit = engine.max_model_len - MAX_MOVE_TOKENS
        self._persona = _persona_ids(config, spec, engine)
        self._ids = [*self._persona, *_encode(engine, start_text(_start(spec)))]
        self._count = 0  # moves that the transcript covers
        self._restarted_at = 0  # the number of moves at the last restart, 0 before the first
        if len(self._ids) + ROOM_TOKENS > engine.max_model_len:
            raise ConfigError(
                f"The prompt of {config.name} for {spec.game} takes {len(self._ids)} tokens and a "
                f"game {ROOM_TOKENS} more, but the model's context is {engine.max_model_len}; "
                "raise max_model_len or take another model."
            )

    async def move(self, view: GameView) -> MoveChoice:
        self._follow(view)
        config = self._config
        params = ChoiceParams(
            scoring=config.scoring,
            temperature=config.temperature,
            top_p=config.top_p,
            min_p=config.min_p,
            seed=view.key("choice"),
        )
        try:
            output = await self._engine.choose(
                self._ids,
                [move_text(move) for move in view.legal_moves],
                params,
                request_id=f"{view.spec.run_id}/{view.spec.number}/{view.ply}/{self._tag}",
            )
        except (BoundaryMerge, NoChoices, PromptTooLong, InfrastructureError):
            raise  # the first three: this agent asked for something impossible
        except Exception as error:
            raise InfrastructureError(f"{type(error).__name__}: {error}") from error
        return _choice(output, view, restarted=self._restarted_at > max(view.ply - 2, 0))

    async def close(self) -> None:
        pass

    def _follow(self, view: GameView) -> None:
        """Append the moves that are new since the last call, minding the limit after each one."""
        for move in view.moves[self._count :]:
            self._ids = [*self._ids, *_encode(self._engine, move_text(move))]
            self._count += 1
            if len(self._ids) > self._limit:
                self._restart(view)

    def _restart(self, view: GameView) -> None:
        """Start from the position `KEPT_PLIES` ago, or less where that takes over half the room."""
        kept = min(KEPT_PLIES, self._count)
        ids = self._from(view, self._count - kept)
        while kept and len(ids) > (len(self._persona) + self._limit) // 2:
            kept //= 2
            ids = self._from(view, self._count - kept)
        self._ids = ids
        self._restarted_at = self._count

    def _from(self, view: GameView, ply: int) -> list[int]:
        """The prompt with a transcript that begins at `ply`."""
        position = view.position.copy()
        while position.ply > ply:
            position.pop()
        ids = [*self._persona, *_encode(self._engine, start_text(position.fen()))]
        for move in view.moves[ply : self._count]:
            ids += _encode(self._engine, move_text(move))
        return ids


def check_context(specs: Iterable[GameSpec], engine: EngineClient) -> None:
    """Raise `ConfigError` for the first agent whose prompt does not fit the engine's model."""
    checked = set()
    for spec in specs:
        for config in spec.agents:
            if isinstance(config, cfg.LlmAgent) and (spec.run_id, config.name) not in checked:
                checked.add((spec.run_id, config.name))
                LlmPlayer(config, spec, engine)


def _encode(engine: EngineClient, text: str) -> tuple[int, ...]:
    return engine.tokenizer.encode_choice(text)


def _persona_ids(config: cfg.LlmAgent, spec: GameSpec, engine: EngineClient) -> list[int]:
    rules = system_text(games.get_game(spec.game).rules_text)
    persona = persona_text(config.name, config.strength, config.style)
    return [*engine.tokenizer.encode_prompt(rules), *_encode(engine, persona)]


def _start(spec: GameSpec) -> str | None:
    """The setup's name or the FEN; None at the game's own start."""
    game = games.get_game(spec.game)
    fen = game.position(spec.start_fen, spec.rules, spec.setup).start_fen
    return None if fen == game.start_fen else spec.setup or fen


def _choice(output: ChoiceOutput, view: GameView, restarted: bool) -> MoveChoice:
    move = view.legal_moves[output.index]
    distribution = {}
    if output.logprobs is not None:
        shares = {
            m: round(math.exp(p), 4) for m, p in zip(view.legal_moves, output.logprobs, strict=True)
        }
        ranked = sorted(shares.items(), key=lambda item: -item[1])
        distribution = {m: share for m, share in ranked if share > 0 or m == move}
    return MoveChoice(
        uci=move,
        logprob=output.logprob,
        legal_mass=output.legal_mass,
        entropy=output.entropy,
        distribution=distribution,
        queue_s=output.metrics.queue_s,
        prefill_s=output.metrics.prefill_s,
        decode_s=output.metrics.decode_s,
        prompt_tokens=output.metrics.prompt_tokens,
        cached_tokens=output.metrics.cached_tokens,
        scored_rows=output.metrics.scored_rows,
        prompt_restarted=restarted,
    )
