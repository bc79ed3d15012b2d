"""One game between two agents, as a stream of events.

Pure: it knows neither Ray nor the database, and no clock but the one handed to it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import games
from arena.agents.base import Agent, GameView, InfrastructureError, NoMove, Resigned
from arena.types import GameResult, GameSpec, GameStarted, MoveChoice, MoveRecord, Termination

# An agent that is called off gets this long to clean up; then the game ends without it.
GRACE_S = 1.0


class _Late(Exception):
    """The agent has not answered within its time."""


async def play(
    spec: GameSpec, agents: tuple[Agent, Agent], *, clock: Callable[[], float] = time.perf_counter
) -> AsyncIterator[GameStarted | MoveRecord | GameResult]:
    """Play `spec` to its end, from `spec.moves` on (those are replayed and not yielded again).

    Yields `GameStarted`, a `MoveRecord` a ply and one `GameResult`. The agents are closed at the
    end, also when the consumer stops early or the task is cancelled (then there is no result).
    `clock` gives seconds.
    """
    game = games.get_game(spec.game)
    style = "san" if "san" in game.notations else game.notations[0]
    position = game.position(spec.start_fen, spec.rules, spec.setup)

    def result(
        termination: Termination,
        reason: str,
        winner: int | None = None,
        outcome: games.Outcome | None = None,
    ) -> GameResult:
        return GameResult(
            run_id=spec.run_id,
            number=spec.number,
            winner=outcome.winner if outcome else winner,
            termination=termination,
            reason=reason,
            by_points=outcome.by_points if outcome else False,
            points=outcome.points if outcome else None,
            plies=position.ply,
            final_fen=position.fen(),
        )

    try:
        yield GameStarted(spec.run_id, spec.number)
        try:
            for uci in spec.moves:
                position.push(uci)
        except games.IllegalMove as error:
            yield result(
                Termination.INFRASTRUCTURE, f"the recorded moves cannot be replayed: {error}"
            )
            return
        while True:
            if outcome := position.outcome():
                yield result(Termination.NORMAL, outcome.reason, outcome=outcome)
                return
            if position.ply >= spec.max_plies:
                outcome = position.adjudicate()
                yield result(Termination.PLY_LIMIT, outcome.reason, outcome=outcome)
                return
            side, ply = position.turn, position.ply
            legal = position.legal_moves()
            if ply < len(spec.opening) and (uci := spec.opening[ply]) in legal:
                yield _moved(spec, position, MoveChoice(uci), style, None)
                continue
            view = GameView(position, position.moves(), legal, spec, side, ply)
            began = clock()
            try:
                choice = await _ask(agents[side], view)
                uci = choice.uci
                elapsed = clock() - began
                if spec.move_time_limit is not None and elapsed > spec.move_time_limit:
                    raise _Late
            except _Late:
                late = f"no move within {spec.move_time_limit:g} s"
                yield result(Termination.TIMEOUT, late, winner=1 - side)
                return
            except InfrastructureError as error:
                yield result(Termination.INFRASTRUCTURE, str(error))
                return
            except Resigned:
                resigned = f"{game.sides[side]} resigned"
                yield result(Termination.RESIGNATION, resigned, winner=1 - side)
                return
            except NoMove as error:
                kind = Termination.NO_MOVE
                if error.failure is games.ParseFailure.ILLEGAL:
                    kind = Termination.ILLEGAL_MOVE
                yield result(kind, error.reason, winner=1 - side)
                return
            except Exception as error:
                crash = f"{type(error).__name__}: {error}"
                yield result(Termination.CRASH, crash, winner=1 - side)
                return
            if uci not in legal:
                illegal = f"{uci!r} is not legal for {game.sides[side]}"
                yield result(Termination.ILLEGAL_MOVE, illegal, winner=1 - side)
                return
            yield _moved(spec, position, choice, style, elapsed)
    finally:
        for agent in agents:
            await agent.close()


def _moved(
    spec: GameSpec, position: games.Position, choice: MoveChoice, style: str, elapsed: float | None
) -> MoveRecord:
    """Play the move on `position` and say what there is to record of it."""
    ply, side = position.ply, position.turn
    notation = position.notation(choice.uci, style)
    position.push(choice.uci)
    return MoveRecord(
        run_id=spec.run_id,
        number=spec.number,
        ply=ply,
        side=side,
        choice=choice,
        notation=notation,
        fen=position.fen(),
        key=position.key(),
        elapsed_s=elapsed,
    )


async def _ask(agent: Agent, view: GameView) -> MoveChoice:
    """The agent's answer, from a task of its own: one that hangs can be left behind."""
    task = asyncio.ensure_future(agent.move(view))
    try:
        await asyncio.wait({task}, timeout=view.spec.move_time_limit)
        if not task.done():
            raise _Late
        if task.cancelled():
            raise InfrastructureError("the agent's request was cancelled")
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE_S)
