"""Who meets whom: round robin with both colours. Pure functions of the configuration."""

from __future__ import annotations

from arena.config import TournamentConfig, resolve_agents
from arena.types import GameSpec


def round_robin(n: int, cycles: int = 1) -> list[tuple[int, int, int]]:
    """(round, first mover, second mover) of every game among players 0..n-1; rounds count from 1.

    Rounds and the first game of each pair follow the Berger tables (FIDE Handbook C.05, annex 1);
    the return game comes directly after it, in the same round. With an odd number of players one
    of them rests in each round.
    """
    games = []
    size = n + n % 2
    last = size - 1  # stays in place while the others rotate; nobody sits there if n is odd
    for cycle in range(cycles):
        for turn in range(last):
            opponent = turn * (size // 2) % last  # of the last player
            pairs = [(opponent, last) if turn % 2 == 0 else (last, opponent)]
            pairs += [((opponent + k) % last, (opponent - k) % last) for k in range(1, size // 2)]
            for first, second in pairs:
                if max(first, second) < n:
                    number = cycle * last + turn + 1
                    games += [(number, first, second), (number, second, first)]
    return games


def game_specs(config: TournamentConfig, run_id: int) -> list[GameSpec]:
    """Every game of the tournament in the order in which they start."""
    agents = resolve_agents(config)
    openings = config.load_openings()
    return [
        GameSpec(
            run_id=run_id,
            number=number,
            round=round_,
            game=config.game,
            rules=config.rules,
            setup=opening.setup,
            start_fen=opening.start_fen,
            opening=opening.moves,
            agents=(agents[first], agents[second]),
            seed=config.seed,
            max_plies=config.max_plies,
            move_time_limit=config.move_time_limit,
        )
        for number, (round_, first, second) in enumerate(
            round_robin(len(agents), config.cycles), start=1
        )
        # A game and its return game share an opening: one index for the whole tournament.
        for opening in [openings[(number - 1) // 2 % len(openings)]]
    ]
