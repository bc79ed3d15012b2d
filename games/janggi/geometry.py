"""The janggi board as tables: points, lines, and where every piece goes or comes from on an empty
board.

A point is `9 * (rank - 1) + file`, with files a..i as 0..8 and ranks 1..10 from Cho's side, so
0..89. A piece is `kind` for Cho and `8 + kind` for Han; an empty point is 0. Knows nothing of
games, turns or legality.
"""

from __future__ import annotations

FILES, RANKS = 9, 10
POINTS = FILES * RANKS
CHO, HAN = 0, 1

GENERAL, GUARD, HORSE, ELEPHANT, CHARIOT, CANNON, SOLDIER = range(1, 8)
LETTERS = ".KANBRCP.kanbrcp"  # by piece
# Points of the kinds (general first), as counted when a game is decided by points.
VALUES = (0, 0, 3, 5, 3, 13, 7, 2)

SQUARE_NAMES = tuple(f"{file}{rank}" for rank in range(1, RANKS + 1) for file in "abcdefghi")

Table = tuple[tuple[int, ...], ...]  # for each point, points


def _at(file: int, rank: int) -> int | None:
    return 9 * rank + file if 0 <= file < FILES and 0 <= rank < RANKS else None


def _points(*candidates: int | None) -> tuple[int, ...]:
    return tuple(point for point in candidates if point is not None)


PALACES = tuple(
    frozenset(9 * rank + file for rank in range(low, low + 3) for file in (3, 4, 5))
    for low in (0, 7)
)
# The palace's diagonals: the four corners and the centre of each X, and nothing else.
_CENTRES = (9 * 1 + 4, 9 * 8 + 4)
_DIAGONALS = ((-1, -1), (-1, 1), (1, -1), (1, 1))
_ORTHOGONALS = ((0, 1), (1, 0), (0, -1), (-1, 0))


def _diagonal_rays(point: int) -> list[tuple[int, ...]]:
    for centre in _CENTRES:
        if point == centre:
            return [(centre + 9 * dr + df,) for df, dr in _DIAGONALS]
        for df, dr in _DIAGONALS:
            if point == centre + 9 * dr + df:
                return [(centre, centre - 9 * dr - df)]
    return []


def _rays(point: int) -> tuple[tuple[int, ...], ...]:
    rank, file = divmod(point, 9)
    rays = []
    for df, dr in _ORTHOGONALS:
        steps = range(1, 10)
        ray = _points(*(_at(file + df * step, rank + dr * step) for step in steps))
        if ray:
            rays.append(ray)
    return (*rays, *_diagonal_rays(point))


# For each point the lines a chariot slides along: rank, file, and the X of a palace. A cannon uses
# the same lines; on the X it then jumps from corner to corner only, since a line from the centre is
# one point long.
RAYS = tuple(_rays(point) for point in range(POINTS))


def _palace_steps(side: int, point: int) -> tuple[int, ...]:
    near = [ray[0] for ray in RAYS[point]]
    return tuple(target for target in near if target in PALACES[side])


# Where a side's general or guard may step from a point. By side, then point.
PALACE_STEPS: tuple[Table, ...] = tuple(
    tuple(_palace_steps(side, point) for point in range(POINTS)) for side in (CHO, HAN)
)


def _soldier_steps(side: int, point: int) -> tuple[int, ...]:
    rank, file = divmod(point, 9)
    ahead = 1 if side == CHO else -1
    straight = _points(_at(file, rank + ahead), _at(file - 1, rank), _at(file + 1, rank))
    along_x = (ray[0] for ray in _diagonal_rays(point))
    return (*straight, *(target for target in along_x if (target // 9 - rank) * ahead > 0))


SOLDIER_STEPS: tuple[Table, ...] = tuple(
    tuple(_soldier_steps(side, point) for point in range(POINTS)) for side in (CHO, HAN)
)
# From where a soldier of a side attacks a point.
SOLDIER_ORIGINS: tuple[Table, ...] = tuple(
    tuple(
        tuple(origin for origin in range(POINTS) if point in SOLDIER_STEPS[side][origin])
        for point in range(POINTS)
    )
    for side in (CHO, HAN)
)


def _horse_steps(point: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    rank, file = divmod(point, 9)
    steps = []
    for df, dr in _ORTHOGONALS:
        leg = _at(file + df, rank + dr)
        side_a, side_b = (df + dr, dr + df), (df - dr, dr - df)
        targets = _points(*(_at(file + df + a, rank + dr + b) for a, b in (side_a, side_b)))
        if leg is not None and targets:
            steps.append((leg, targets))
    return tuple(steps)


def _elephant_steps(point: int) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
    rank, file = divmod(point, 9)
    steps = []
    for df, dr in _ORTHOGONALS:
        leg = _at(file + df, rank + dr)
        ways = []
        for a, b in ((df + dr, dr + df), (df - dr, dr - df)):
            block = _at(file + df + a, rank + dr + b)
            target = _at(file + df + 2 * a, rank + dr + 2 * b)
            if block is not None and target is not None:
                ways.append((block, target))
        if leg is not None and ways:
            steps.append((leg, tuple(ways)))
    return tuple(steps)


# Horse: for each leg point that must be free, the targets. Elephant: for each first block point,
# pairs of second block point and target.
HORSE_STEPS = tuple(_horse_steps(point) for point in range(POINTS))
ELEPHANT_STEPS = tuple(_elephant_steps(point) for point in range(POINTS))


def _horse_origins(point: int) -> tuple[tuple[int, int], ...]:
    return tuple(
        (origin, leg)
        for origin in range(POINTS)
        for leg, targets in HORSE_STEPS[origin]
        if point in targets
    )


def _elephant_origins(point: int) -> tuple[tuple[int, int, int], ...]:
    return tuple(
        (origin, leg, block)
        for origin in range(POINTS)
        for leg, ways in ELEPHANT_STEPS[origin]
        for block, target in ways
        if target == point
    )


# From where a horse or an elephant attacks a point, with the points that must be free for it.
HORSE_ORIGINS = tuple(_horse_origins(point) for point in range(POINTS))
ELEPHANT_ORIGINS = tuple(_elephant_origins(point) for point in range(POINTS))
