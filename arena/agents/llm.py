"""A language model at the board: chooses among the legal moves, thinks before it does, or writes its move freely."""

from __future__ import annotations

import math
import secrets
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from arena import config as cfg
from arena import prompts
from arena.agents.base import EngineClient, GameView, InfrastructureError, NoMove, Resigned
from arena.agents.transcript import Transcript
from arena.config import ConfigError
from arena.types import GameSpec, MoveChoice
from engine import (
    BoundaryMerge,
    ChoiceOutput,
    ChoiceParams,
    NoChoices,
    PromptTooLong,
    RequestMetrics,
    SamplingParams,
)
from games import ParseFailure, get_game

MAX_MOVE_TOKENS = 16  # the longest move has 8 characters after its space, at most a few tokens each
ROOM_TOKENS = 256  # for a position as FEN (at most about 100 characters) and the last moves
MORE_MOVES = 3  # times as many legal moves as at the start are shown at most
ASKING_TOKENS = 64  # for the words between the parts of a prompt
EXCERPT = 80  # characters of a reply that a game's reason quotes

Output = TypeVar("Output")


class LlmPlayer:
    """One side of one game, in one of three modes.

    `choose`: one request a move, always a legal one. `think`: a text first, which is recorded, then the
    choice. `free`: a text that is read for its move; replies without a legal move are asked for again
    `retries` times, and then the game is lost.
    """

    def __init__(self, config: cfg.LlmAgent, spec: GameSpec, engine: EngineClient) -> None:
        self._config = config
        self._engine = engine
        self._tag = secrets.token_hex(4)  # a game that is played again must not reuse request ids
        room = _room(config) + _shown_tokens(config, spec, engine)
        self._transcript = Transcript(config, spec, engine, engine.max_model_len - room)
        taken = len(self._transcript.ids)
        more = ROOM_TOKENS + room - MAX_MOVE_TOKENS
        if taken + more > engine.max_model_len:
            raise ConfigError(
                f"The prompt of {config.name} for {spec.game} takes {taken} tokens and a game {more} more, but "
                f"the model's context is {engine.max_model_len}; raise max_model_len or take another model."
            )

    async def move(self, view: GameView) -> MoveChoice:
        self._transcript.follow(view)
        if self._config.mode == "free":
            choice = await self._write(view)
        else:
            choice = await self._choose(view)
        restarted = self._transcript.restarted_at > max(view.ply - 2, 0)
        return replace(choice, prompt_restarted=restarted)

    async def close(self) -> None:
        pass

    async def _choose(self, view: GameView) -> MoveChoice:
        config = self._config
        shown = self._shown(view)
        ids = (
            [*self._transcript.ids, *self._transcript.encode(shown)]
            if shown
            else self._transcript.ids
        )
        thoughts, spent = None, []
        if config.mode == "think":
            ids = [*ids, *self._transcript.encode(prompts.THOUGHTS)]
            text = await self._ask(
                self._engine.generate(
                    ids,
                    self._sampling(view, "thoughts"),
                    request_id=self._id(view, "thoughts"),
                    client=_client(view),
                )
            )
            ids = [*ids, *text.token_ids]
            thoughts = text.text.strip()
            spent.append(text.metrics)
        if shown or thoughts is not None:
            ids = [*ids, *self._transcript.encode(prompts.answer_text(config.strength))]
        params = ChoiceParams(
            scoring=config.scoring,
            temperature=config.temperature,
            top_p=config.top_p,
            min_p=config.min_p,
            seed=view.key("choice"),
        )
        texts = [prompts.move_text(move) for move in self._transcript.shown(list(view.legal_moves))]
        output = await self._ask(
            self._engine.choose(
                ids, texts, params, request_id=self._id(view, "choice"), client=_client(view)
            )
        )
        choice = replace(_choice(output, view), thoughts=thoughts)
        return _timed(choice, [*spent, output.metrics])

    async def _write(self, view: GameView) -> MoveChoice:
        ids = list(self._transcript.ids)
        ids += self._transcript.encode(self._shown(view) + prompts.REPLY)
        failure, reply, spent = ParseFailure.EMPTY, "", []
        for attempt in range(self._config.retries + 1):
            purpose = f"reply {attempt}"
            output = await self._ask(
                self._engine.generate(
                    ids,
                    self._sampling(view, purpose),
                    request_id=self._id(view, purpose),
                    client=_client(view),
                )
            )
            reply = output.text
            spent.append(output.metrics)
            read = view.position.parse(reply, truncated=output.finish_reason == "length")
            if read.move is not None:
                return _timed(MoveChoice(read.move, thoughts=reply.strip()), spent)
            failure = read.failure or ParseFailure.UNPARSABLE
            if failure is ParseFailure.RESIGN:
                raise Resigned
            excerpt = reply.strip()[-EXCERPT:]
            ids += self._transcript.encode(prompts.retry_text(excerpt, failure))
        raise NoMove(failure, self._config.retries + 1, reply.strip()[-EXCERPT:])

    def _shown(self, view: GameView) -> str:
        config = self._config
        text = prompts.shown_text(config, view.position)
        taken = len(self._transcript.ids) + len(self._transcript.encode(text))
        if taken + _room(config) > self._engine.max_model_len:
            return prompts.shown_text(_unlisted(config), view.position)
        return text

    def _sampling(self, view: GameView, purpose: str) -> SamplingParams:
        config = self._config
        return SamplingParams(
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            top_p=config.top_p,
            min_p=config.min_p,
            seed=view.key(purpose),
            stop=("\n\n",) if config.mode == "think" else (),
        )

    def _id(self, view: GameView, purpose: str) -> str:
        return f"{view.spec.run_id}/{view.spec.number}/{view.ply}/{purpose}/{self._tag}"

    @staticmethod
    async def _ask(answer: Awaitable[Output]) -> Output:
        try:
            return await answer
        except (BoundaryMerge, NoChoices, PromptTooLong, InfrastructureError):
            raise  # the first three: this agent asked for something impossible
        except Exception as error:
            raise InfrastructureError(f"{type(error).__name__}: {error}") from error


def check_context(specs: Iterable[GameSpec], engine: EngineClient) -> None:
    """Raise `ConfigError` for the first agent whose prompt does not fit the engine's model."""
    checked = set()
    for spec in specs:
        for config in spec.agents:
            if isinstance(config, cfg.LlmAgent) and (spec.run_id, config.name) not in checked:
                checked.add((spec.run_id, config.name))
                LlmPlayer(config, spec, engine)


def _room(config: cfg.LlmAgent) -> int:
    """Tokens of a prompt and its answer besides the transcript and what is shown of the position."""
    room = MAX_MOVE_TOKENS
    if config.mode == "choose":
        return room + ASKING_TOKENS
    if config.mode == "think":
        return room + ASKING_TOKENS + config.max_tokens
    again = config.retries * (ASKING_TOKENS + EXCERPT)  # a character is at most a few tokens
    return room + ASKING_TOKENS + again + config.max_tokens


def _client(view: GameView) -> str:
    """Runs share the engine equally, however many games each plays at a time."""
    return f"run {view.spec.run_id}"


def _shown_tokens(config: cfg.LlmAgent, spec: GameSpec, engine: EngineClient) -> int:
    """Room for what a ply shows of its position; a position with more legal moves is shown without them."""
    position = get_game(spec.game).position(spec.start_fen, spec.rules, spec.setup)
    taken = [
        len(engine.tokenizer.encode_choice(text)) if text else 0
        for text in (
            prompts.shown_text(config, position),
            prompts.shown_text(_unlisted(config), position),
        )
    ]
    return taken[1] + (taken[0] - taken[1]) * MORE_MOVES


def _unlisted(config: cfg.LlmAgent) -> cfg.LlmAgent:
    return config.model_copy(update={"show_legal_moves": False})


def _choice(output: ChoiceOutput, view: GameView) -> MoveChoice:
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
    )


def _timed(choice: MoveChoice, requests: Sequence[RequestMetrics]) -> MoveChoice:
    """With the time of all requests of the move, and the tokens of the one that gave it."""
    last = requests[-1]
    return replace(
        choice,
        queue_s=sum(one.queue_s for one in requests),
        prefill_s=sum(one.prefill_s for one in requests),
        decode_s=sum(one.decode_s for one in requests),
        prompt_tokens=last.prompt_tokens,
        cached_tokens=last.cached_tokens,
        scored_rows=last.scored_rows,
    )
