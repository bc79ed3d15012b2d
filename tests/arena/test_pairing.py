from collections import Counter

import pytest

from arena.config import load_config
from arena.pairing import game_specs, round_robin


def pairs(n: int) -> list[list[str]]:
    """The first games of all pairs, written as the Berger tables write them."""
    table: dict[int, list[str]] = {}
    for round_, first, second in round_robin(n)[::2]:
        table.setdefault(round_, []).append(f"{first + 1}-{second + 1}")
    return list(table.values())


def test_berger_tables() -> None:
    assert pairs(4) == [["1-4", "2-3"], ["4-3", "1-2"], ["2-4", "3-1"]]
    assert pairs(6) == [
        ["1-6", "2-5", "3-4"],
        ["6-4", "5-3", "1-2"],
        ["2-6", "3-1", "4-5"],
        ["6-5", "1-4", "2-3"],
        ["3-6", "4-2", "5-1"],
    ]
    assert pairs(8) == [
        ["1-8", "2-7", "3-6", "4-5"],
        ["8-5", "6-4", "7-3", "1-2"],
        ["2-8", "3-1", "4-7", "5-6"],
        ["8-6", "7-5", "1-4", "2-3"],
        ["3-8", "4-2", "5-1", "6-7"],
        ["8-7", "1-6", "2-5", "3-4"],
        ["4-8", "5-3", "6-2", "7-1"],
    ]


@pytest.mark.parametrize("n", [2, 3, 5, 8, 9])
@pytest.mark.parametrize("cycles", [1, 3])
def test_everybody_meets_everybody_with_both_colours(n: int, cycles: int) -> None:
    games = round_robin(n, cycles)
    counts = Counter((first, second) for _, first, second in games)
    assert counts == {(a, b): cycles for a in range(n) for b in range(n) if a != b}
    for (round_a, a, b), (round_b, c, d) in zip(games[::2], games[1::2], strict=True):
        assert (round_a, a, b) == (round_b, d, c)  # the return game is next to the first one
    for round_ in {r for r, _, _ in games}:
        players = [p for r, a, b in games[::2] if r == round_ for p in (a, b)]
        assert len(players) == len(set(players)) == n - n % 2
    rounds = [r for r, _, _ in games]
    assert rounds == sorted(rounds)
    assert rounds[-1] == cycles * (n - 1 + n % 2)


def test_specs_carry_the_configuration() -> None:
    config = load_config(
        None,
        {
            "game": "janggi",
            "rules": "kakao",
            "setup": "NBNB-BNBN",
            "agents": ["random", "greedy", "Dragon"],
            "seed": 7,
            "max_plies": 90,
            "move_time_limit": 2.5,
        },
    )
    specs = game_specs(config, run_id=3)
    assert [s.number for s in specs] == [1, 2, 3, 4, 5, 6]
    assert [tuple(a.name for a in s.agents) for s in specs[:2]] == [
        ("greedy", "Dragon"),
        ("Dragon", "greedy"),
    ]
    for spec in specs:
        assert (spec.run_id, spec.game, spec.rules, spec.setup) == (
            3,
            "janggi",
            "kakao",
            "NBNB-BNBN",
        )
        assert (spec.seed, spec.max_plies, spec.move_time_limit, spec.moves) == (7, 90, 2.5, ())


def test_default_tournament_is_56_games() -> None:
    assert len(game_specs(load_config(), run_id=1)) == 56
