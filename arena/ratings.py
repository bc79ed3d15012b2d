"""Ratings of a field and statistics of colour pairs, as pure functions of results.

Bradley-Terry with Davidson's draws (Davidson 1970) and a first-move advantage, fitted by maximum
likelihood: d = (R_first - R_second + A) ln 10 / 400 and P(win) : P(draw) : P(loss) = e^(d/2) : nu :
e^(-d/2). Where the maximum does not exist the answer is a one-sided bound or a sentence; infinities
and NaN never leave here. Knows nothing of the database and of how games are played.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ELO = 400 / math.log(10)  # Elo points per natural unit of strength
Z95 = 1.959964  # two-sided 95% of the normal distribution
_NO_MAXIMUM = 0.01  # less information (errors beyond 10 natural units) is taken for none
_LONGEST_STEP = 3.0  # natural units; Newton's method overshoots from far away

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Played:
    """A finished game between two agents (indices). `winner` is a side (0 = first mover) or None
    for a draw.
    """

    first: int
    second: int
    winner: int | None


@dataclass(frozen=True)
class Rating:
    """In Elo, zero being the mean of the field. None is "not known"; then `note` says why, in
    words.
    """

    rating: float | None
    low: float | None  # ends of the 95% interval
    high: float | None
    note: str = ""


@dataclass(frozen=True)
class Standing:
    """A row of the table, best first. `score` counts a draw as a half."""

    agent: int
    played: int
    wins: int
    draws: int
    losses: int
    score: float
    rating: Rating


@dataclass(frozen=True)
class Fit:
    """Maximum of the likelihood: strengths in natural units with mean zero, and their standard
    errors.
    """

    strength: Floats
    error: Floats
    advantage: float  # of the first mover, natural units
    draw: float  # nu; 0 when there was no draw


def standings(agents: int, games: Sequence[Played]) -> list[Standing]:
    """The table of `agents` agents after `games`, best score first."""
    tally = np.zeros((agents, 3), dtype=int)
    for game in games:
        column = 1 if game.winner is None else 2 * game.winner
        tally[game.first, column] += 1
        tally[game.second, 2 - column] += 1
    found = ratings(agents, games)
    rows = [
        Standing(i, won + drew + lost, won, drew, lost, won + drew / 2, found[i])
        for i, (won, drew, lost) in enumerate(tally.tolist())
    ]
    return sorted(
        rows, key=lambda r: (-r.score, r.played, -round(r.rating.rating or 0.0, 1), r.agent)
    )


def ratings(agents: int, games: Sequence[Played]) -> list[Rating]:
    """The rating of each agent with its 95% interval.

    The likelihood has a maximum only among agents that are connected by chains of "did not lose to"
    in both directions. The largest such group is rated (mean zero); an agent outside it that won
    (lost) all its games against the group gets a lower (upper) bound: the rating at which that
    would happen once in twenty times.
    """
    if not games:
        return [Rating(None, None, None, "no game played yet")] * agents
    counts = np.zeros((3, agents, agents))  # first mover's wins, draws, losses by [first, second]
    for game in games:
        counts[1 if game.winner is None else 2 * game.winner, game.first, game.second] += 1
    wins, draws, losses = counts
    not_lost = wins + draws + (losses + draws).T
    played = not_lost + not_lost.T > 0

    groups = _strongly_connected(not_lost > 0)
    # Among equally large groups the one that met most others; then the one that lost most, so that
    # the rest is ahead.
    group = max(groups, key=lambda g: (len(g), played[g].sum(), not_lost[:, g].sum()))
    model, note = _fit_what_exists(counts[np.ix_(range(3), group, group)])

    result: list[Rating] = []
    for agent in range(agents):
        if [agent] == group:
            note = "the zero of this table: no results both ways connect the agents"
            result.append(Rating(0.0, None, None, note))
        elif agent in group:
            at = group.index(agent)
            centre, half = float(model.strength[at] * ELO), float(Z95 * model.error[at] * ELO)
            result.append(Rating(centre, centre - half, centre + half, note))
        elif not played[agent].any():
            result.append(Rating(None, None, None, "no game played yet"))
        elif not played[agent, group].any():
            result.append(Rating(None, None, None, "no game yet against the rated agents"))
        else:
            result.append(_bound(agent, group, wins, losses, model))
    return result


def fit(counts: Floats, *, advantage: bool = True, draw: float | None = None) -> Fit | None:
    """Newton's method with the analytic Hessian; None when the likelihood has no maximum (with the
    advantage and nu both fixed it has one for every strongly connected group).

    `counts` is [3, n, n]: wins, draws and losses of the first mover by (first, second). Without
    `advantage` it is fixed at zero; `draw` fixes nu. The errors come from the inverse information
    of all fitted parameters together, restricted to strengths that sum to zero.
    """
    n = counts.shape[1]
    first, second = np.nonzero(counts.sum(axis=0))
    win, drawn, lost = (counts[k, first, second] for k in range(3))
    total = win + drawn + lost
    fit_draw = draw is None and drawn.sum() > 0
    columns = n + advantage + fit_draw

    # Each game type's d as a linear function of (strengths, advantage, log nu), strengths by a
    # basis of sum zero.
    design = np.zeros((len(first), n + advantage))
    rows = np.arange(len(first))
    design[rows, first] += 1
    design[rows, second] -= 1
    design[:, n:] = 1
    basis = np.zeros((columns, columns - 1))
    basis[:n, : n - 1] = np.linalg.qr(np.eye(n) - 1 / n)[0][:, : n - 1]
    basis[n:, n - 1 :] = np.eye(columns - n)

    x = np.zeros(columns)
    value = -math.inf
    step = np.zeros(columns)
    for _ in range(60):
        eta = x[-1] if fit_draw else math.log(draw) if draw else -math.inf
        p, logs = _probabilities(design @ x[: n + advantage], eta)
        new = float(
            sum(
                seen[seen > 0] @ log[seen > 0]
                for seen, log in zip((win, drawn, lost), logs, strict=True)
            )
        )
        if new < value - 1e-12 * abs(value):
            step /= 2
            x = x - step
            continue
        value = new
        lean = p[0] - p[2]
        gradient = np.zeros(columns)
        gradient[: n + advantage] = design.T @ ((win - lost - total * lean) / 2)
        information = np.zeros((columns, columns))
        weight = total * (p[0] + p[2] - lean**2) / 4
        information[: n + advantage, : n + advantage] = design.T @ (weight[:, None] * design)
        if fit_draw:
            gradient[-1] = (drawn - total * p[1]).sum()
            information[-1, -1] = (total * p[1] * (1 - p[1])).sum()
            cross = design.T @ (-total * p[1] * lean / 2)
            information[-1, : n + advantage] = information[: n + advantage, -1] = cross
        reduced = basis.T @ information @ basis
        if np.abs(basis.T @ gradient).max() < 1e-9 * total.sum():
            break
        # The information may be singular here; the gradient is then zero in that direction.
        damped = reduced + 1e-10 * np.trace(reduced) * np.eye(len(reduced))
        step = basis @ np.linalg.solve(damped, basis.T @ gradient)
        step *= min(1.0, _LONGEST_STEP / np.abs(step).max())
        x = x + step
    if (advantage or fit_draw) and np.linalg.eigvalsh(reduced)[0] < _NO_MAXIMUM:
        return None
    covariance = basis @ np.linalg.inv(reduced) @ basis.T
    nu = math.exp(x[-1]) if fit_draw else draw or 0.0
    return Fit(x[:n], np.sqrt(np.diag(covariance)[:n]), float(x[n]) if advantage else 0.0, nu)


def _fit_what_exists(counts: Floats) -> tuple[Fit, str]:
    """The fit of a strongly connected group, with the parameters held fixed that its games cannot
    tell, and a note.
    """
    n = counts.shape[1]
    if n == 1:
        return Fit(np.zeros(1), np.zeros(1), 0.0, 0.0), ""
    if found := fit(counts):
        return found, ""
    if found := fit(counts, advantage=False):
        return found, "too few games to tell the first move's advantage: taken as zero"
    # With nu fixed the maximum exists whenever the group is strongly connected. Two equal agents
    # draw nu / (nu + 2).
    share = (counts[1].sum() + 0.5) / (counts.sum() + 1)
    found = fit(counts, advantage=False, draw=2 * share / (1 - share))
    assert found, "nothing is left to run off"
    return found, "too few decided games: the share of draws taken as equal for all"


def _probabilities(d: Floats, eta: float) -> tuple[Floats, Floats]:
    """P(win), P(draw), P(loss) for each d (natural units), and their logarithms; eta = log nu."""
    utilities = np.stack([d / 2, np.full_like(d, eta), -d / 2])
    logs = utilities - np.logaddexp.reduce(utilities, axis=0)
    return np.exp(logs), logs


def _bound(agent: int, group: list[int], wins: Floats, losses: Floats, model: Fit) -> Rating:
    """For an agent that won, or lost, all its games against the rated group."""
    won = (wins[agent, group] + losses[group, agent]).sum()
    lost = (losses[agent, group] + wins[group, agent]).sum()
    sign = 1.0 if won else -1.0
    eta = math.log(model.draw) if model.draw else -math.inf

    # The games by kind: the agent moved first, or second, against each of the group.
    others = np.concatenate([model.advantage - model.strength, -model.advantage - model.strength])
    played = np.concatenate(
        [wins[agent, group] + losses[agent, group], wins[group, agent] + losses[group, agent]]
    )

    def chance(strength: float) -> float:
        """Logarithm of the probability of winning (losing) all the games at this strength."""
        return float(played @ _probabilities(sign * (strength + others), eta)[1][0])

    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        # The chance of winning all grows with the strength, the chance of losing all falls with it.
        if (chance(middle) < math.log(0.05)) == (sign > 0):
            low = middle
        else:
            high = middle
    bound = (low + high) / 2 * ELO
    if won:
        note = f"won every game ({won:g}) against the rated agents: only a lower bound"
        return Rating(None, bound, None, note)
    note = f"lost every game ({lost:g}) against the rated agents: only an upper bound"
    return Rating(None, None, bound, note)


def _strongly_connected(edges: NDArray[np.bool_]) -> list[list[int]]:
    """The strongly connected components of a small directed graph (by its transitive closure)."""
    n = len(edges)
    reach = edges | np.eye(n, dtype=bool)
    for k in range(n):
        reach |= reach[:, k : k + 1] & reach[k]
    mutual = reach & reach.T
    return [
        np.nonzero(row)[0].tolist() for i, row in enumerate(mutual) if np.nonzero(row)[0][0] == i
    ]


@dataclass(frozen=True)
class PairStatistics:
    """Strength of one agent over another from colour pairs, in Elo; None where the pairs cannot
    tell, with a note.
    """

    pairs: int
    score: float | None  # mean of the pair scores, 0..1
    elo: float | None
    low: float | None  # ends of the 95% interval
    high: float | None
    normalized_elo: float | None
    los: float | None  # likelihood of superiority, 0..1
    note: str = ""


def pair_counts(agent: int, other: int, games: Iterable[Played]) -> list[int]:
    """Pentanomial counts (LL, LD, DD+WL, WD, WW) of `agent` against `other`.

    The k-th game with `agent` moving first makes a pair with the k-th game with `other` moving
    first; a game whose partner is missing is not counted.
    """
    points: dict[int, list[int]] = {agent: [], other: []}
    for game in games:
        if {game.first, game.second} == {agent, other}:
            mine = 0 if game.first == agent else 1
            points[game.first].append(1 if game.winner is None else 2 * (game.winner == mine))
    seen = Counter(a + b for a, b in zip(points[agent], points[other], strict=False))
    return [seen[total] for total in range(5)]


def pair_statistics(counts: Sequence[int]) -> PairStatistics:
    """Elo, normalised Elo and likelihood of superiority from pentanomial counts (Van den Bergh's
    notes).
    """
    n = sum(counts)
    if not n:
        return PairStatistics(0, None, None, None, None, None, None, "no complete pair yet")
    scores = np.arange(5) / 4
    share = np.array(counts) / n
    mean = float(share @ scores)
    variance = float(share @ (scores - mean) ** 2)
    if not variance:
        return PairStatistics(
            n, mean, _elo(mean), None, None, None, None, "all pairs ended alike: no interval"
        )
    error = math.sqrt(variance / n)
    return PairStatistics(
        n,
        mean,
        _elo(mean),
        _elo(mean - 1.96 * error),
        _elo(mean + 1.96 * error),
        (mean - 0.5) / math.sqrt(2 * variance) * 800 / math.log(10),
        0.5 * math.erfc((0.5 - mean) / error / math.sqrt(2)),
    )


def _elo(score: float) -> float | None:
    """The Elo difference at which `score` is expected; None at and beyond 0 and 1, where there is
    none.
    """
    return -400 * math.log10(1 / score - 1) if 0 < score < 1 else None
