"""Move generation and attack tests on a bare list of 90 points; the hot loops of janggi.

Knows how pieces move and what attacks a general; knows nothing of turns' history, rule sets or
ends. A move is packed into one integer, `from << 7 | to`.
"""

from __future__ import annotations

from collections.abc import Iterable

from games.janggi.geometry import (
    CANNON,
    CHARIOT,
    ELEPHANT,
    ELEPHANT_ORIGINS,
    ELEPHANT_STEPS,
    HAN,
    HORSE,
    HORSE_ORIGINS,
    HORSE_STEPS,
    PALACE_STEPS,
    RAYS,
    SOLDIER,
    SOLDIER_ORIGINS,
    SOLDIER_STEPS,
)

# By side, whether a piece is its own.
_OWN = (
    tuple(0 < piece < 8 for piece in range(16)),
    tuple(piece > 8 for piece in range(16)),
)


def pseudo_legal(points: list[int], men: Iterable[int], side: int) -> list[int]:
    """Moves of a side's men (their points) that are right in shape, without the pass."""
    own = _OWN[side]
    soldier_steps, palace_steps = SOLDIER_STEPS[side], PALACE_STEPS[side]
    moves: list[int] = []
    add = moves.append
    for origin in men:
        kind = points[origin] & 7
        base = origin << 7
        if kind == SOLDIER:
            for target in soldier_steps[origin]:
                if not own[points[target]]:
                    add(base | target)
        elif kind == CHARIOT:
            for ray in RAYS[origin]:
                for target in ray:
                    piece = points[target]
                    if piece:
                        if not own[piece]:
                            add(base | target)
                        break
                    add(base | target)
        elif kind == CANNON:
            for ray in RAYS[origin]:
                line = iter(ray)
                for screen in line:
                    piece = points[screen]
                    if piece:
                        if piece & 7 != CANNON:
                            for target in line:  # beyond the screen
                                piece = points[target]
                                if piece:
                                    if piece & 7 != CANNON and not own[piece]:
                                        add(base | target)
                                    break
                                add(base | target)
                        break
        elif kind == HORSE:
            for leg, targets in HORSE_STEPS[origin]:
                if not points[leg]:
                    for target in targets:
                        if not own[points[target]]:
                            add(base | target)
        elif kind == ELEPHANT:
            for leg, ways in ELEPHANT_STEPS[origin]:
                if not points[leg]:
                    for block, target in ways:
                        if not points[block] and not own[points[target]]:
                            add(base | target)
        else:
            for target in palace_steps[origin]:
                if not own[points[target]]:
                    add(base | target)
    return moves


def attacked(points: list[int], general: int, side: int) -> bool:
    """Whether the other side could capture on `general`, a point that holds a man of `side`."""
    enemy = 0 if side == HAN else 8
    chariot, cannon = enemy | CHARIOT, enemy | CANNON
    for ray in RAYS[general]:
        line = iter(ray)
        for point in line:
            piece = points[point]
            if piece:
                if piece == chariot:
                    return True
                if piece & 7 != CANNON:
                    for beyond in line:
                        if points[beyond]:
                            if points[beyond] == cannon:
                                return True
                            break
                break
    horse, elephant, soldier = enemy | HORSE, enemy | ELEPHANT, enemy | SOLDIER
    for origin, leg in HORSE_ORIGINS[general]:
        if points[origin] == horse and not points[leg]:
            return True
    for origin in SOLDIER_ORIGINS[1 - side][general]:
        if points[origin] == soldier:
            return True
    for origin, leg, block in ELEPHANT_ORIGINS[general]:
        if points[origin] == elephant and not points[leg] and not points[block]:
            return True
    return False


def threats(points: list[int], general: int, side: int) -> tuple[list[int], set[int]]:
    """Who gives check to `general`, and the points on which check depends.

    A move of another man that neither leaves nor enters one of these points changes nothing about
    the attacks on the general: it is legal if there is no check and illegal if there is one. One
    move takes at most one piece off a line and puts at most one on it, so on each line a chariot
    matters with up to one piece before it, a cannon with up to two.
    """
    enemy = 0 if side == HAN else 8
    chariot, cannon = enemy | CHARIOT, enemy | CANNON
    checkers: list[int] = []
    critical: set[int] = set()
    for ray in RAYS[general]:
        met = first = 0
        reach = -1
        for point in ray:
            piece = points[point]
            if piece:
                met += 1
                if met == 1:
                    first = piece
                    if piece == chariot:
                        checkers.append(point)
                        reach = point
                    elif piece == cannon:
                        reach = point
                elif met == 2:
                    if piece == cannon:
                        if first & 7 != CANNON:
                            checkers.append(point)
                        reach = point
                    elif piece == chariot:
                        reach = point
                else:
                    if piece == cannon:
                        reach = point
                    break
        if reach >= 0:
            for point in ray:
                critical.add(point)
                if point == reach:
                    break
    horse, elephant, soldier = enemy | HORSE, enemy | ELEPHANT, enemy | SOLDIER
    for origin, leg in HORSE_ORIGINS[general]:
        if points[origin] == horse:
            critical.add(origin)
            critical.add(leg)
            if not points[leg]:
                checkers.append(origin)
    for origin in SOLDIER_ORIGINS[1 - side][general]:
        if points[origin] == soldier:
            critical.add(origin)
            checkers.append(origin)
    for origin, leg, block in ELEPHANT_ORIGINS[general]:
        if points[origin] == elephant:
            critical.update((origin, leg, block))
            if not points[leg] and not points[block]:
                checkers.append(origin)
    return checkers, critical


def legal(
    points: list[int],
    pseudo: list[int],
    side: int,
    general: int,
    checkers: list[int],
    critical: set[int],
) -> list[int]:
    """The moves of `pseudo` that leave the general of `side` unattacked; the last two arguments are
    of `threats`.
    """
    moves = []
    for move in pseudo:
        origin, target = move >> 7, move & 127
        if origin == general:
            home = target
        elif origin in critical or target in critical:
            home = general
        else:
            if not checkers:
                moves.append(move)
            continue
        captured = points[target]
        points[target], points[origin] = points[origin], 0
        if not attacked(points, home, side):
            moves.append(move)
        points[origin], points[target] = points[target], captured
    return moves


def facing(points: list[int], one: int, other: int) -> bool:
    """Whether the two generals stand on one file with nothing between them."""
    if (one - other) % 9:
        return False
    return not any(points[min(one, other) + 9 : max(one, other) : 9])
