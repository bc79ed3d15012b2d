"""What every game gives to the rest of the project: the `Game` record, the `Position` interface,
outcomes and errors.

This module knows no game in particular; nothing outside `games` needs to know more than this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol


class GameError(ValueError):
    """Base of all errors of `games`; the text says in one sentence what is wrong."""


class UnknownGame(GameError):
    """No game of that name; the text lists the known ones."""


class UnknownRules(GameError):
    """The game has no rule set of that name; the text lists the known ones."""


class UnknownSetup(GameError):
    """The game has no starting arrangement of that name; the text lists the known ones."""


class InvalidFen(GameError):
    """A FEN that cannot be read or describes an impossible position.

    `problems` names each problem found, e.g. `("opposite_check",)`.
    """

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems

    def __reduce__(self) -> tuple[type[InvalidFen], tuple[str, tuple[str, ...]]]:
        return InvalidFen, (str(self), self.problems)


class IllegalMove(GameError):
    """A move that cannot be read or cannot be played here."""


class AmbiguousMove(IllegalMove):
    """A shortened move that fits more than one legal move."""


class ParseFailure(StrEnum):
    """Why a text gave no move."""

    EMPTY = "empty"
    TRUNCATED = "truncated"
    UNPARSABLE = "unparsable"
    AMBIGUOUS = "ambiguous"
    ILLEGAL = "illegal"
    RESIGN = "resign"


@dataclass(frozen=True)
class ParseResult:
    """What a text says: a legal move in UCI, or the reason why it gave none.

    `span` is where in `text` the move (or the word of resignation) stands.
    """

    text: str
    move: str | None = None
    failure: ParseFailure | None = None
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class Outcome:
    """How a game ended.

    `winner` is 0 for the side that moves first, 1 for the other, None for a draw. `points` are both
    sides' totals, compensation included, in games that count them.
    """

    winner: int | None
    reason: str
    by_points: bool = False
    points: tuple[float, float] | None = None


@dataclass(frozen=True)
class PieceInfo:
    """One kind of piece: its FEN letter (first mover's case), English name, value, and a glyph for
    each side.
    """

    letter: str
    name: str
    value: float
    glyphs: tuple[str, str]


@dataclass(frozen=True)
class MoveFacts:
    """What a legal move does, as far as one look at the board tells.

    captured: the letter (`PieceInfo`) of what it takes. check: the other side is then in check. outcome: the end it
    brings. at_risk: the letter of the mover's piece that the other side could then win most by capturing, if any: all
    of its value where nobody can recapture, else what it is worth more than the cheapest captor. Neither pins nor
    checks are minded.
    """

    captured: str | None = None
    check: bool = False
    outcome: Outcome | None = None
    at_risk: str | None = None


class Position(Protocol):
    """A position with the moves that led to it; `push` and `pop` change it in place."""

    game: Game
    rules: str
    start_fen: str

    @property
    def turn(self) -> int:
        """0 if `game.sides[0]` is to move, else 1."""
        ...

    @property
    def ply(self) -> int:
        """Plies pushed on this object."""
        ...

    def fen(self) -> str: ...

    def key(self) -> str:
        """Equal for two positions exactly if the repetition rule calls them the same; stable across
        processes.
        """
        ...

    def legal_moves(self) -> list[str]:
        """Legal moves in UCI, sorted; empty exactly if the game has ended without a claim."""
        ...

    def facts(self, uci: str) -> MoveFacts:
        """What a legal move does. Raises `IllegalMove`."""
        ...

    def push(self, uci: str) -> None:
        """Play a move. Raises `IllegalMove`, and then nothing has changed."""
        ...

    def pop(self) -> str:
        """Take the last move back and return it. Raises `IndexError` if there is none."""
        ...

    def moves(self) -> list[str]:
        """The moves pushed so far, in UCI."""
        ...

    def copy(self) -> Position: ...

    def in_check(self) -> bool: ...

    def outcome(self) -> Outcome | None:
        """The end of the game, or None. Ends that a player may claim are claimed."""
        ...

    def adjudicate(self, reason: str = "ply_limit") -> Outcome:
        """End the game here: by points where the rule set decides by points, else as a draw."""
        ...

    def material(self) -> tuple[float, float]:
        """Both sides' sums of `PieceInfo.value`, without compensation."""
        ...

    def notation(self, uci: str, style: str) -> str:
        """A legal move in one of `game.notations`. Raises `IllegalMove`, or `GameError` for an
        unknown style.
        """
        ...

    def parse(self, text: str, truncated: bool = False) -> ParseResult:
        """Read the move out of a reply: in any of `game.notations` and other usual spellings, alone or in prose.

        The last stated answer counts; nothing ambiguous or illegal is turned into a move. truncated: the
        reply was cut off by a limit on its length.
        """
        ...

    def ascii(self) -> str: ...

    def pieces(self) -> dict[str, str]:
        """Square name -> FEN letter, whose case tells the side."""
        ...


@dataclass(frozen=True)
class Opening:
    """Moves, in UCI, that a game begins with, from a FEN, a setup or the usual start."""

    moves: tuple[str, ...] = ()
    start_fen: str | None = None
    setup: str | None = None


@dataclass(frozen=True)
class Game:
    """A game as a record: what match play, prompts, files and the browser need to know of it."""

    name: str
    title: str
    sides: tuple[str, str]
    files: int
    ranks: int
    board: Literal["squares", "points"]  # "points": the pieces stand on the crossings of the lines
    lines: tuple[tuple[str, str], ...]  # drawn besides the grid, between two squares
    start_fen: str
    rule_sets: tuple[str, ...]  # the first is the default
    setups: tuple[str, ...]  # names of the starting arrangements, empty if there is only one
    notations: tuple[str, ...]  # the first is the default
    pieces: tuple[PieceInfo, ...]
    pgn_variant: str | None  # the PGN tag `Variant`, None for chess
    factory: Callable[[str | None, str, str | None], Position] = field(repr=False, compare=False)
    describe: Callable[[str, str], str] = field(repr=False, compare=False)
    openings: tuple[Opening, ...] = field(
        default=(), repr=False
    )  # balanced, to be played with both colours

    def rules_text(self, rules: str | None = None, notation: str | None = None) -> str:
        """The rules and the notation as language models are told them. Raises `UnknownRules` and `GameError`."""
        self._check_rules(rules := rules or self.rule_sets[0])
        self._check_notation(notation := notation or self.notations[0])
        return self.describe(rules, notation)

    def position(
        self, fen: str | None = None, rules: str | None = None, setup: str | None = None
    ) -> Position:
        """A position from a FEN or of a starting arrangement; by default the usual start.

        A setup may be spelled in any way that the game reads: its `factory` tells which it has not.
        Raises `InvalidFen`, `UnknownRules`, `UnknownSetup`, and `GameError` if both FEN and
        arrangement are given.
        """
        if rules is None:
            rules = self.rule_sets[0]
        self._check_rules(rules)
        if setup is not None and not self.setups:
            raise UnknownSetup(f"{self.title} has no setup {setup!r}, nor any other: leave it out.")
        if setup is not None and fen is not None:
            raise GameError("Give a FEN or a setup, not both.")
        return self.factory(fen, rules, setup)

    def _check_rules(self, rules: str) -> None:
        if rules not in self.rule_sets:
            known = ", ".join(self.rule_sets)
            raise UnknownRules(f"{self.title} has no rule set {rules!r}; choose one of {known}.")

    def _check_notation(self, notation: str) -> None:
        if notation not in self.notations:
            known = ", ".join(self.notations)
            raise GameError(f"{self.title} has no notation {notation!r}; choose one of {known}.")

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON-able values, for the browser."""
        return {
            "name": self.name,
            "title": self.title,
            "sides": list(self.sides),
            "files": self.files,
            "ranks": self.ranks,
            "board": self.board,
            "lines": [list(line) for line in self.lines],
            "start_fen": self.start_fen,
            "rule_sets": list(self.rule_sets),
            "setups": list(self.setups),
            "notations": list(self.notations),
            "pieces": [
                {"letter": p.letter, "name": p.name, "value": p.value, "glyphs": list(p.glyphs)}
                for p in self.pieces
            ],
            "rules_text": self.rules_text(),
            "pgn_variant": self.pgn_variant,
        }


def ascii_board(files: int, ranks: int, pieces: dict[str, str]) -> str:
    """A text board, first mover below: FEN letters, `.` for empty, ranks and files named."""
    names = "abcdefghi"[:files]
    rows = [
        f"{rank:>2} " + " ".join(pieces.get(f"{name}{rank}", ".") for name in names)
        for rank in range(ranks, 0, -1)
    ]
    return "\n".join([*rows, "   " + " ".join(names)])
