"""Janggi boards as SVG, for notebooks and documents: octagonal stones in three sizes, palaces with
their X, the last move and a check marked. Draws what it is given and knows no rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from games.janggi.fen import parse_fen
from games.janggi.geometry import CHO, FILES, GENERAL, GUARD, RANKS, SOLDIER, SQUARE_NAMES

if TYPE_CHECKING:
    from games.janggi.board import Board
    from games.janggi.move import Move

CELL = 100
EDGE = 36  # room for the names of files and ranks
GROUND, LINE, STONE, MARK, ALARM = "#e3b96f", "#6b4a1f", "#fbf3df", "#3f8f3f", "#d33"
COLOURS = ("#12655a", "#b3202a")  # Cho, Han
# By piece, as in `geometry`. The generals carry the names of their states.
HANJA = ".楚士馬象車包卒.漢士馬象車包兵"
HANGUL = ".초사마상차포졸.한사마상차포병"
# Where cannons and soldiers start: a small cross on the lines.
_CROSSES = [(file, rank) for rank in (2, 7) for file in (1, 7)] + [
    (file, rank) for rank in (3, 6) for file in (0, 2, 4, 6, 8)
]


def board(
    position: Board | str | list[int] | tuple[int, ...],
    *,
    orientation: int = CHO,
    lastmove: Move | None = None,
    check: int | None = None,
    hangul: bool = False,
    coordinates: bool = True,
    size: int | None = None,
) -> str:
    """An SVG of a board, a FEN, or 90 pieces in board order. Raises `InvalidFen`.

    orientation: the side shown below. lastmove: both its points are marked; a pass is a dashed ring.
    check: a point to be marked as in check. size: width in pixels, by default that of its place.

    >>> board("3k5/9/9/9/9/9/9/9/4K4/9", size=300)[:50]
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-'
    """
    points: Sequence[int]
    if isinstance(position, str):
        points = parse_fen(position).points
    elif isinstance(position, list | tuple):
        points = position
    else:
        points = position.squares
    edge = EDGE if coordinates else 0
    width, height = FILES * CELL + edge, RANKS * CELL + edge
    extent = f' width="{size}" height="{round(size * height / width)}"' if size else ""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-edge} 0 {width} {height}"{extent}>',
        f'<rect x="{-edge}" width="{width}" height="{height}" rx="14" fill="{GROUND}"/>',
        f'<path d="{_lines()}" fill="none" stroke="{LINE}" stroke-width="2.5"/>',
    ]
    if lastmove is not None:
        parts += _last_move(lastmove, orientation)
    if check is not None:
        x, y = _centre(check, orientation)
        parts.append(f'<circle cx="{x}" cy="{y}" r="56" fill="{ALARM}" fill-opacity=".55"/>')
    for point, piece in enumerate(points):
        if piece:
            parts.append(_stone(piece, *_centre(point, orientation), hangul))
    if coordinates:
        parts += _coordinates(orientation)
    return "".join([*parts, "</svg>"])


def _centre(point: int, orientation: int) -> tuple[int, int]:
    rank, file = divmod(point if orientation == CHO else 89 - point, FILES)
    return file * CELL + CELL // 2, (RANKS - 1 - rank) * CELL + CELL // 2


def _lines() -> str:
    """Grid, palaces and starting points; the same for both sides below."""
    half = CELL // 2
    d = [f"M{half} {rank * CELL + half}h{(FILES - 1) * CELL}" for rank in range(RANKS)]
    d += [f"M{file * CELL + half} {half}v{(RANKS - 1) * CELL}" for file in range(FILES)]
    for top in (0, RANKS - 3):
        x, y, span = 3 * CELL + half, top * CELL + half, 2 * CELL
        d.append(f"M{x} {y}l{span} {span}m0 {-span}l{-span} {span}")
    for file, rank in _CROSSES:
        x, y = file * CELL + half, rank * CELL + half
        d.append(f"M{x - 9} {y - 9}l18 18m0-18l-18 18")
    return "".join(d)


def _last_move(move: Move, orientation: int) -> list[str]:
    style = f'fill="none" stroke="{MARK}" stroke-width="7"'
    x, y = _centre(move.to_square, orientation)
    if move.is_pass:
        return [f'<circle cx="{x}" cy="{y}" r="53" {style} stroke-dasharray="14 9"/>']
    corners = f"M{x - 47} {y - 25}v-22h22m50 0h22v22m0 50v22h-22m-50 0h-22v-22"
    x, y = _centre(move.from_square, orientation)
    return [f'<path d="{corners}" {style}/>', f'<circle cx="{x}" cy="{y}" r="14" {style}/>']


def _stone(piece: int, x: int, y: int, hangul: bool) -> str:
    kind, colour = piece & 7, COLOURS[piece >> 3]
    radius = 48 if kind == GENERAL else 35 if kind in (GUARD, SOLDIER) else 42
    name = (HANGUL if hangul else HANJA)[piece]
    return (
        f'<g transform="translate({x} {y})"><path d="{_octagon(radius)}" fill="{STONE}" '
        f'stroke="{LINE}" stroke-width="2.5"/><path d="{_octagon(radius - 6)}" fill="none" '
        f'stroke="{colour}" stroke-width="1.5"/><text y=".35em" font-size="{round(radius * 1.2)}" '
        f'font-family="serif" font-weight="bold" text-anchor="middle" fill="{colour}">{name}</text></g>'
    )


def _octagon(radius: int) -> str:
    near = round(radius * 0.4142, 1)  # tan(pi / 8)
    return (
        f"M{-near} {-radius}H{near}L{radius} {-near}V{near}L{near} {radius}"
        f"H{-near}L{-radius} {near}V{-near}z"
    )


def _coordinates(orientation: int) -> list[str]:
    style = f'font-family="sans-serif" font-size="24" text-anchor="middle" fill="{LINE}"'
    below, left = RANKS * CELL + EDGE // 2, -EDGE // 2 + 4
    found = []
    for file in range(FILES):
        x, _ = _centre(file, orientation)
        found.append(f'<text x="{x}" y="{below}" {style}>{SQUARE_NAMES[file][0]}</text>')
    for rank in range(RANKS):
        _, y = _centre(rank * FILES, orientation)
        found.append(f'<text x="{left}" y="{y + 8}" {style}>{rank + 1}</text>')
    return found
