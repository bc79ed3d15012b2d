"""Games as records: what the readers and writers of PGN and GIB files share.

Knows no game and no file format in particular.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import games
from games.core import IllegalMove


@dataclass(frozen=True)
class Problem:
    """Something of a file that could not be read, or that contradicts itself.

    `game` is the number of the game in its file and `ply` that of the move, both from 1; `ply` is
    None where it is not about a move. With `stops` nothing after it was read of this game.
    """

    game: int
    ply: int | None
    token: str
    text: str
    stops: bool = False

    def __str__(self) -> str:
        where = f"game {self.game}" + (f", ply {self.ply}" if self.ply is not None else "")
        return f"{where}, {self.token!r}: {self.text}" if self.token else f"{where}: {self.text}"


@dataclass
class Note:
    """What a record says about one move besides the move.

    Times are seconds: of the move, and left on the mover's clock after it. `probability` is what
    the mover gave his move; tokens are those of a language model's prompt.
    """

    text: str = ""
    elapsed_s: float | None = None
    clock_s: float | None = None
    probability: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None

    def __bool__(self) -> bool:
        return self != Note()


@dataclass
class Record:
    """One recorded game.

    `moves` are UCI. `result` is that of PGN: "1-0" if the first mover won, "0-1", "1/2-1/2", or "*"
    if it is not known. `notes` are by the number of moves played before them: 0 stands before the
    first move. `rules` is None where nothing tells the rule set. `ending` says what ended the
    game and, where they decided, both sides' points: "bikjang 40-38.5".
    """

    game: str
    start_fen: str
    moves: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    result: str = "*"
    rules: str | None = None
    notes: dict[int, Note] = field(default_factory=dict)
    ending: str = ""
    problems: list[Problem] = field(default_factory=list)
    number: int = 1  # of the game in its file

    @property
    def is_cut(self) -> bool:
        """Whether moves of the record could not be read."""
        return any(problem.stops for problem in self.problems)


class Records(list[Record]):
    """The games of a file in order, with all that was wrong in it.

    `skipped` counts the games of which nothing could be read. A writer takes `encoding` and
    `newline` for those of the file.
    """

    def __init__(self, *, encoding: str = "utf-8", newline: str = "\n") -> None:
        super().__init__()
        self.encoding = encoding
        self.newline = newline
        self.problems: list[Problem] = []
        self.skipped = 0


def fitting_rules(record: Record) -> tuple[str, int]:
    """The rule set under which the game can be replayed, and for how many of its moves.

    The record's own comes first, then the game's in their order; if none allows all the moves, the
    one that allows most.
    """
    game = games.get_game(record.game)
    best = (record.rules or game.rule_sets[0], -1)
    for rules in dict.fromkeys((best[0], *game.rule_sets)):
        position = game.position(record.start_fen, rules)
        try:
            for uci in record.moves:
                position.push(uci)
        except IllegalMove:
            pass
        if position.ply == len(record.moves):
            return rules, position.ply
        if position.ply > best[1]:
            best = (rules, position.ply)
    return best


_SPACE = re.compile(r"[ \t\r\n\f\v]+")


def one_line(text: str) -> str:
    """The text with every stretch of white space as one space."""
    return _SPACE.sub(" ", text).strip(" ")
