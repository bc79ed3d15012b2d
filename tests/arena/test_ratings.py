"""Ratings and pair statistics: golden values, the maximum, degenerate results, calibration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena import ratings
from arena.ratings import ELO, Played, pair_counts, pair_statistics


def simulate(seed: int, elo: np.ndarray, cycles: int, advantage: float, nu: float) -> list[Played]:
    """A round robin drawn from the model."""
    draw = np.random.default_rng(seed)
    games = []
    for first in range(len(elo)):
        for second in range(len(elo)):
            if first != second:
                d = (elo[first] - elo[second] + advantage) / ELO
                weights = np.array([math.exp(d / 2), nu, math.exp(-d / 2)])
                for result in draw.choice(3, size=cycles, p=weights / weights.sum()):
                    games.append(Played(first, second, (0, None, 1)[result]))
    return games


def counts(agents: int, games: list[Played]) -> np.ndarray:
    table = np.zeros((3, agents, agents))
    for game in games:
        table[1 if game.winner is None else 2 * game.winner, game.first, game.second] += 1
    return table


def log_likelihood(games: list[Played], strength: np.ndarray, advantage: float, nu: float) -> float:
    total = 0.0
    for game in games:
        d = strength[game.first] - strength[game.second] + advantage
        weights = {0: math.exp(d / 2), None: nu, 1: math.exp(-d / 2)}
        total += math.log(weights[game.winner] / sum(weights.values()))
    return total


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([39, 8843, 26675, 9240, 44], {"elo": 1.577, "low": 0.546, "high": 2.607}),
        ([39, 8843, 26675, 9240, 44], {"normalized_elo": 3.480}),
        ([13, 37, 50, 25, 3], {"elo": -43.658}),
    ],
)
def test_golden_values_of_pairs(pairs: list[int], expected: dict[str, float]) -> None:
    found = pair_statistics(pairs)
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, abs=5e-4)


def test_pairs_mirrored_from_the_other_side() -> None:
    ours, theirs = pair_statistics([1, 2, 3, 4, 5]), pair_statistics([5, 4, 3, 2, 1])
    assert ours.elo == pytest.approx(-theirs.elo)
    assert ours.low == pytest.approx(-theirs.high)
    assert ours.los == pytest.approx(1 - theirs.los)


@pytest.mark.parametrize(
    ("pairs", "note"),
    [
        ([0, 0, 0, 0, 0], "no complete pair yet"),
        ([0, 0, 0, 0, 7], "all pairs ended alike: no interval"),
        ([0, 0, 7, 0, 0], "all pairs ended alike: no interval"),
        ([0, 0, 0, 1, 1], ""),
    ],
)
def test_pairs_that_tell_little(pairs: list[int], note: str) -> None:
    found = pair_statistics(pairs)
    assert found.note == note
    if not note:
        assert (found.low is not None, found.high) == (True, None)  # beyond 100% there is no Elo


def test_a_pair_counts_as_a_whole_or_not_at_all() -> None:
    games = [
        *(Played(0, 1, 0), Played(1, 0, 1)),  # 0 wins both
        *(Played(0, 1, 0), Played(1, 0, 0)),  # each wins with the first move
        Played(2, 1, 0),  # others
        *(Played(1, 0, None), Played(0, 1, 1)),  # 0 draws and loses
        Played(0, 1, 0),  # its return game is missing
    ]
    assert pair_counts(0, 1, games) == [0, 1, 1, 0, 1]
    assert pair_counts(1, 0, games) == [1, 0, 1, 1, 0]


def test_two_agents_without_draws_by_hand() -> None:
    """60% with and 30% without the first move: both differences have their own equation."""
    games = [Played(0, 1, 0)] * 6 + [Played(0, 1, 1)] * 4
    games += [Played(1, 0, 0)] * 7 + [Played(1, 0, 1)] * 3
    ahead, behind = math.log(6 / 4), math.log(3 / 7)  # R + A and R - A
    fit = ratings.fit(counts(2, games))
    assert fit is not None
    assert fit.strength[0] - fit.strength[1] == pytest.approx((ahead + behind) / 2)
    assert fit.advantage == pytest.approx((ahead - behind) / 2)
    # The variance of the mean of two independent log odds, and half of it for one of two ratings.
    variance = (1 / 6 + 1 / 4 + 1 / 7 + 1 / 3) / 4
    assert fit.error[0] == pytest.approx(math.sqrt(variance) / 2)


def test_the_fit_is_the_maximum_and_its_errors_are_those_of_the_curvature() -> None:
    elo = np.array([150.0, 20.0, -40.0, -130.0])
    games = simulate(3, elo, 20, 40, 0.8)
    fit = ratings.fit(counts(4, games))
    assert fit is not None
    assert fit.strength.sum() == pytest.approx(0)

    # Parameters: strengths of all but the last (which balances the sum), advantage, log nu.
    def value(x: np.ndarray) -> float:
        return log_likelihood(games, np.append(x[:3], -x[:3].sum()), x[3], math.exp(x[4]))

    best = np.array([*fit.strength[:3], fit.advantage, math.log(fit.draw)])
    step = 1e-4 * np.eye(5)
    hessian = np.empty((5, 5))
    for i in range(5):
        assert value(best + step[i]) < value(best) > value(best - step[i])
        for j in range(5):
            corners = value(best + step[i] + step[j]) - value(best + step[i] - step[j])
            corners -= value(best - step[i] + step[j]) - value(best - step[i] - step[j])
            hessian[i, j] = corners / 4e-8
    errors = np.sqrt(np.diag(np.linalg.inv(-hessian)))
    assert fit.error[:3] == pytest.approx(errors[:3], rel=1e-3)


def test_standings_count_and_order() -> None:
    games = [Played(0, 1, 1), Played(1, 0, 0), Played(1, 2, None), Played(2, 0, 1)]
    rows = ratings.standings(4, games)
    assert [(r.agent, r.played, r.wins, r.draws, r.losses, r.score) for r in rows] == [
        (1, 3, 2, 1, 0, 2.5),
        (0, 3, 1, 0, 2, 1.0),
        (2, 2, 0, 1, 1, 0.5),
        (3, 0, 0, 0, 0, 0.0),
    ]
    assert rows[3].rating.note == "no game played yet"


def test_all_wins_give_a_bound_and_words() -> None:
    winner, loser = ratings.ratings(2, [Played(0, 1, 0), Played(1, 0, 1)] * 5)
    # Winning ten of ten happens once in twenty times at a chance of 0.05 ** (1 / 10) each.
    chance = 0.05**0.1
    assert (winner.rating, winner.high) == (None, None)
    assert winner.low == pytest.approx(400 * math.log10(chance / (1 - chance)))
    assert winner.note == "won every game (10) against the rated agents: only a lower bound"
    assert (loser.rating, loser.low, loser.high) == (0, None, None)
    assert "the zero of this table" in loser.note


def test_agents_outside_the_connected_group_get_bounds() -> None:
    both = [Played(a, b, w) for a, b in ((0, 1), (1, 0)) for w in (0, 1, None)] * 2
    games = [*both, *[Played(2, 0, 0)] * 3, Played(1, 2, 1), Played(3, 0, 1), Played(4, 3, None)]
    found = ratings.ratings(6, games)
    assert found[0].low < found[0].rating < found[0].high
    assert (found[2].rating, found[2].high) == (None, None)
    assert found[2].low > 0
    assert found[2].note == "won every game (4) against the rated agents: only a lower bound"
    assert (found[3].rating, found[3].low) == (None, None)
    assert found[3].note == "lost every game (1) against the rated agents: only an upper bound"
    assert found[4].note == "no game yet against the rated agents"
    assert found[5].note == "no game played yet"


@pytest.mark.parametrize(
    ("games", "note"),
    [
        # Whoever moves first wins: the advantage would be infinite.
        ([Played(0, 1, 0), Played(1, 0, 0)], "the first move's advantage: taken as zero"),
        # Only draws: nu would be infinite.
        ([Played(0, 1, None), Played(1, 0, None)], "the share of draws taken as equal for all"),
        # Connected, and yet nu and the one difference that was decided can grow together.
        (
            [Played(0, 1, 0), Played(0, 2, None), Played(1, 2, None)],
            "the share of draws taken as equal for all",
        ),
    ],
)
def test_what_the_games_cannot_tell_is_held_fixed(games: list[Played], note: str) -> None:
    for rating in ratings.ratings(3 if len(games) == 3 else 2, games):
        assert rating.note.endswith(note)
        assert rating.low < rating.rating < rating.high


played = st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from((0, 1, None))).filter(
    lambda game: game[0] != game[1]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(played, max_size=14))
def test_any_results_give_finite_numbers_or_words(games: list[tuple[int, int, int | None]]) -> None:
    for row in ratings.standings(5, [Played(*game) for game in games]):
        rating = row.rating
        for number in (rating.rating, rating.low, rating.high):
            assert number is None or abs(number) < 20_000
        assert rating.note or None not in (rating.rating, rating.low, rating.high)


@pytest.mark.slow
def test_the_interval_covers_the_truth_95_times_in_100() -> None:
    covered = total = 0
    for seed in range(400):
        elo = np.random.default_rng(10_000 + seed).normal(0, 120, 8)
        elo -= elo.mean()
        for found, truth in zip(
            ratings.ratings(8, simulate(seed, elo, 5, 35, 0.7)), elo, strict=True
        ):
            assert found.low is not None
            assert found.high is not None
            covered += found.low <= truth <= found.high
            total += 1
    assert 0.93 <= covered / total <= 0.97
