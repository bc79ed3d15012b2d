"""`Board`: a janggi position with its history, in the vocabulary of python-chess.

    >>> board = Board()
    >>> board.push_uci("a4a5")
    Move.from_uci('a4a5')
    >>> Move.from_uci("e9e9") in board.legal_moves  # a pass
    True

Its state and make/unmake are in `state`, ends in `ends`, text forms in `fen`, `notation`, `korean` and `svg`.
"""

from __future__ import annotations

from collections.abc import Iterable

from games.core import IllegalMove, Outcome, ascii_board
from games.janggi import ends, fen, korean, movegen, notation, svg
from games.janggi.fen import Status
from games.janggi.geometry import CHO, FILES, GENERAL, HAN, LETTERS, RANKS, SOLDIER, SQUARE_NAMES
from games.janggi.move import MOVES, PASS_ALIASES, LegalMoves, Move
from games.janggi.rules import START_FEN, get_rules, setup_fen, setup_of
from games.janggi.state import State

_SIDE_NAMES = ("Cho", "Han")


class Board(State):
    """A janggi board: a position, its rule set and the moves that led to it.

    `turn` is `CHO` or `HAN`, `halfmove_clock` counts plies since the last capture, `rules` is a
    `Rules`. `key` is a Zobrist key of 64 bits, equal for the same board and side to move in every
    process: use it where a hash is wanted, since a board that changes has none.

    Reads FENs in full and in all short forms. Raises `InvalidFen` for one that cannot be read and
    `UnknownRules`. An impossible position is accepted; ask `status()`.

    >>> Board().turn == CHO
    True
    >>> Board("3k5/9/9/9/9/9/9/9/4K4/9 b", rules="kakao")
    Board('3k5/9/9/9/9/9/9/9/4K4/9 b - - 0 1', 'kakao')
    """

    def __init__(self, fen: str = START_FEN, rules: str = "janggi") -> None:
        super().__init__(fen, get_rules(rules))

    @classmethod
    def from_setup(cls, setup: str, rules: str = "janggi") -> Board:
        """The start with Cho's, then Han's arrangement of horses and elephants on the files b, c, g
        and h, by letters or by Korean name. Raises `UnknownSetup`.

        >>> Board.from_setup("NBBN-BNNB") == Board.from_setup("마상상마-상마마상")
        True
        """
        return cls(setup_fen(setup), rules)

    def setup(self) -> str | None:
        """The name of the arrangement if this is the position of a start, else None.

        >>> Board().setup()
        'NBBN-NBBN'
        """
        return setup_of(self.board_fen())

    # Text forms

    def fen(self) -> str:
        """The position as FEN; always the full form, with N for horses and B for elephants.

        >>> Board().fen()
        'rnba1abnr/4k4/1c5c1/p1p1p1p1p/9/9/P1P1P1P1P/1C5C1/4K4/RNBA1ABNR w - - 0 1'
        """
        side = "w" if self.turn == CHO else "b"
        return f"{self.board_fen()} {side} - - {self.halfmove_clock} {self.fullmove_number}"

    def set_fen(self, text: str) -> None:
        """Put up another position and forget the history. Raises `InvalidFen`, and then nothing has
        changed.

        >>> board = Board()
        >>> board.set_fen("3k5/9/9/9/9/9/9/9/4K4/9 b 5 40")
        >>> board.halfmove_clock, board.fullmove_number
        (5, 40)
        """
        self._put_up(text)

    def board_fen(self) -> str:
        """The board field of the FEN.

        >>> Board("3k5/9/9/9/9/9/9/9/4K4/9 b").board_fen()
        '3k5/9/9/9/9/9/9/9/4K4/9'
        """
        return fen.board_fen(self.squares)

    def san(self, move: Move) -> str:
        """A legal move as Fairy-Stockfish writes it. Raises `IllegalMove`.

        >>> board = Board()
        >>> [board.san(Move.from_uci(uci)) for uci in ("b1c3", "a4b4", "e2e2")]
        ['Hc3', 'Pab4', 'Ke2']
        """
        return notation.san(self, self._checked(move))

    def lan(self, move: Move) -> str:
        """Like `san`, with both points. Raises `IllegalMove`.

        >>> Board().lan(Move.from_uci("b1c3"))
        'Hb1-c3'
        """
        return notation.lan(self, self._checked(move))

    def variation_san(self, moves: Iterable[Move]) -> str:
        """Moves that follow one another from here, numbered. Raises `IllegalMove`; the board stays.

        >>> Board().variation_san(map(Move.from_uci, ["b1c3", "b10c8", "a4a5"]))
        '1. Hc3 Hc8 2. Pa5'
        """
        board, words = self.copy(), []
        for move in moves:
            if board.turn == CHO:
                words.append(f"{board.fullmove_number}.")
            elif not words:
                words.append(f"{board.fullmove_number}...")
            words.append(board.san(move))
            board.push(move)
        return " ".join(words)

    def korean(
        self, move: Move, *, hanja: bool = False, side: bool = False, take: bool = False
    ) -> str:
        """A legal move in Korean notation. Raises `IllegalMove`.

        With `hanja` the men are named in hanja, with `side` the mover's side stands before his man,
        with `take` 타 before the man he captures. 장군 is check, 한수쉼 a pass.

        >>> board = Board("3k5/9/9/9/r4C3/9/9/9/9/5K3 b")
        >>> move = Move.from_uci("a6f6")
        >>> board.korean(move), board.korean(move, hanja=True, side=True, take=True)
        ('51차56포장군', '51漢車56타包장군')
        """
        return korean.korean(self, self._checked(move), hanja=hanja, side=side, take=take)

    def janggi(self, move: Move) -> str:
        """A legal move as Fairy-Stockfish's and PyChess's janggi notation. Raises `IllegalMove`.

        >>> Board().janggi(Move.from_uci("b1c3"))
        'H02-83'
        """
        return notation.digits(self, self._checked(move))

    def parse_uci(self, uci: str) -> Move:
        """Read a legal move in UCI; `0000` and `@@@@` also mean a pass. Raises `IllegalMove`.

        >>> Board().parse_uci("0000")
        Move.from_uci('e2e2')
        """
        return self._checked(self.pass_move if uci in PASS_ALIASES else Move.from_uci(uci))

    def parse_san(self, text: str) -> Move:
        """Read SAN or LAN, with `N` or `H` for the horse and `B` or `E` for the elephant.

        Raises `IllegalMove`, or its kind `AmbiguousMove` if more than one legal move fits.

        >>> Board().parse_san("Nb1-c3") == Board().parse_san("Hc3") == Move.from_uci("b1c3")
        True
        """
        return notation.parse_san(self, text)

    def parse_korean(self, text: str) -> Move:
        """Read Korean notation in any spelling of records: hangul or hanja, with or without the
        side, what is captured and 장군.

        Raises `IllegalMove`, also if another man stands on a point than the text says.

        >>> Board().parse_korean("02馬83") == Board().parse_korean("02초마83")
        True
        """
        return korean.parse_korean(self, text)

    def parse_janggi(self, text: str) -> Move:
        """Read what `janggi` writes. Raises `IllegalMove`.

        >>> Board().parse_janggi("N02-83")
        Move.from_uci('b1c3')
        """
        return notation.parse_digits(self, text)

    def unicode(self, *, empty: str = "·") -> str:
        """A text board as printed records have it: Cho's men in hangul, Han's in hanja, each as wide
        as two letters.

        >>> print(Board().unicode().splitlines()[-2])
         1 차 마 상 사 ·  사 상 마 차
        """
        rows = []
        for rank in range(RANKS, 0, -1):
            row = self.squares[FILES * (rank - 1) : FILES * rank]
            men = (
                (korean.HANGUL if piece < 8 else korean.HANJA)[piece] if piece else f"{empty} "
                for piece in row
            )
            rows.append(f"{rank:>2} " + " ".join(men).rstrip())
        return "\n".join([*rows, "   " + "  ".join("abcdefghi")])

    def ascii(self) -> str:
        """A text board in FEN letters, Cho below, with ranks and files; also `str(board)`.

        >>> print(Board().ascii().splitlines()[-2])
         1 R N B A . A B N R
        """
        return ascii_board(FILES, RANKS, fen.letters_by_square(self.squares))

    def _repr_svg_(self) -> str:
        """What a notebook shows: `svg.board` with the last move and a check marked.

        >>> Board()._repr_svg_().startswith("<svg")
        True
        """
        return svg.board(
            self.squares,
            lastmove=self.peek() if self.history else None,
            check=self.generals[self.turn] if self.is_check() else None,
        )

    # Moves that can be made

    @property
    def legal_moves(self) -> LegalMoves:
        """All legal moves; none after checkmate and after an end that needs no claim.

        >>> moves = Board().legal_moves
        >>> len(moves), moves[0], Move.from_uci("e2e2") in moves, bool(moves)
        (32, Move.from_uci('a1a2'), True, True)
        """
        return LegalMoves(self.packed_moves())

    @property
    def pass_move(self) -> Move:
        """The pass of the side to move, legal or not.

        >>> Board().pass_move.uci()
        'e2e2'
        """
        return MOVES[self.generals[self.turn] << 7 | self.generals[self.turn]]

    def is_legal(self, move: Move) -> bool:
        """Whether the move is one of `legal_moves`.

        >>> Board().is_legal(Move.from_uci("a1a9"))
        False
        """
        return move.from_square << 7 | move.to_square in self.packed_moves()

    def is_capture(self, move: Move) -> bool:
        """Whether the move captures; it is not asked whether it is legal.

        >>> Board("3k5/9/9/9/r4C3/9/9/9/9/5K3 b").is_capture(Move.from_uci("a6f6"))
        True
        """
        return not move.is_pass and bool(self.squares[move.to_square])

    def gives_check(self, move: Move) -> bool:
        """Whether the other side stands in check after the move. Raises `IllegalMove`.

        >>> Board("3k5/9/9/9/r4C3/9/9/9/9/5K3 b").gives_check(Move.from_uci("a6f6"))
        True
        """
        self.push(self._checked(move))
        check = self.is_check()
        self.pop()
        return check

    # The position

    def piece_at(self, square: int) -> str | None:
        """The FEN letter of the man on a point, upper case for Cho; None if it is empty.

        >>> Board().piece_at(0), Board().piece_at(89), Board().piece_at(45)
        ('R', 'r', None)
        """
        return LETTERS[self.squares[square]] if self.squares[square] else None

    def piece_map(self) -> dict[int, str]:
        """The FEN letters of all men by their points.

        >>> Board("3k5/9/9/9/9/9/9/9/4K4/9").piece_map()
        {13: 'K', 84: 'k'}
        """
        return {point: LETTERS[piece] for point, piece in enumerate(self.squares) if piece}

    def general(self, side: int) -> int:
        """The point of a side's general.

        >>> SQUARE_NAMES[Board().general(HAN)]
        'e9'
        """
        return self.generals[side]

    def attackers(self, side: int, square: int) -> list[int]:
        """Points of the men of `side` that could capture on `square`, sorted; on an empty point or
        one of their own, if a man that is no cannon stood there for the other side.

        Checks and facing generals do not matter.

        >>> [SQUARE_NAMES[point] for point in Board().attackers(CHO, 20)]  # c3
        ['b1']
        """
        points, piece = self.squares, self.squares[square]
        if not piece or piece >> 3 == side:
            points = points[:]
            points[square] = 8 * (1 - side) | SOLDIER
        men = self.men[side] - {square}
        moves = movegen.pseudo_legal(points, men, side)
        return sorted(move >> 7 for move in moves if move & 127 == square)

    def is_attacked_by(self, side: int, square: int) -> bool:
        """Whether `attackers` has any.

        >>> Board().is_attacked_by(CHO, 45)  # a6
        False
        """
        return bool(self.attackers(side, square))

    def checkers(self) -> list[int]:
        """Points of the men that give check to the side to move, sorted.

        >>> [SQUARE_NAMES[point] for point in Board("3k5/9/9/9/9/9/9/9/4K4/3R5 b").checkers()]
        ['d1']
        """
        return sorted(self._find_threats()[0])

    def is_check(self) -> bool:
        """Whether the side to move is in check. Facing generals give none.

        >>> Board("3k5/9/9/9/9/9/9/9/4K4/3R5 b").is_check()
        True
        """
        return bool(self._find_threats()[0])

    def is_checkmate(self) -> bool:
        """Whether the side to move is in check and has no legal move, nor a pass to bikjang.

        >>> Board("4k4/R8/1R7/9/9/9/9/9/5K3/9 b").is_checkmate()
        False
        >>> Board("R3k4/R8/1R7/9/9/9/9/9/5K3/9 b").is_checkmate()
        True
        """
        return self._ended is None and self.is_check() and not self.packed_moves()

    def is_bikjang(self) -> bool:
        """Whether the generals face each other, in any rule set.

        >>> Board("4k4/9/9/9/9/9/9/9/4K4/9").is_bikjang()
        True
        """
        return self._facing

    def points(self) -> dict[str, float]:
        """Both sides' totals, Han's compensation included.

        >>> Board().points()
        {'cho': 72, 'han': 73.5}
        """
        return {"cho": self.material[CHO], "han": self.material[HAN] + self.rules.komi}

    def status(self) -> Status:
        """What makes the position impossible, `Status.VALID` if nothing does.

        >>> Board("3k5/9/9/9/3R5/9/9/9/5K3/P8 w").status().names()
        ('soldier_behind_start', 'opposite_check')
        """
        return fen.status(self.squares, self.turn)

    def is_valid(self) -> bool:
        """Whether `status` finds nothing.

        >>> Board().is_valid()
        True
        """
        return not self.status()

    def ply(self) -> int:
        """Plies since the start of the game, by the move number.

        >>> Board("3k5/9/9/9/9/9/9/9/4K4/9 b - - 0 3").ply()
        5
        """
        return 2 * (self.fullmove_number - 1) + self.turn

    # How it ends

    def outcome(self, claim: bool = False) -> Outcome | None:
        """How the game has ended, or None. With `claim`, also by what a player has to claim.

        `winner` is `CHO`, `HAN` or None; `reason` is one of checkmate, bikjang, double_pass,
        ply_limit, and with `claim` repetition, perpetual_check, back_and_forth, no_capture_limit.
        `by_points` tells whether the points decided, `points` which.

        >>> board = Board()
        >>> board.push_uci("e2e2"), board.push_uci("e9e9")
        (Move.from_uci('e2e2'), Move.from_uci('e9e9'))
        >>> board.outcome()
        Outcome(winner=1, reason='double_pass', by_points=True, points=(72, 73.5))
        """
        if self.is_checkmate():
            return Outcome(1 - self.turn, "checkmate")
        if self._ended is not None:
            return ends.decide(self, ends.verdict(self.rules, self._ended), self._ended)
        return ends.claimable(self) if claim else None

    def is_game_over(self, claim: bool = False) -> bool:
        """Whether there is an `outcome`.

        >>> Board().is_game_over()
        False
        """
        return self.outcome(claim) is not None

    def result(self, claim: bool = False) -> str:
        """`1-0` if Cho has won, `0-1`, `1/2-1/2`, or `*` while the game goes on.

        >>> Board("R3k4/R8/1R7/9/9/9/9/9/5K3/9 b").result()
        '1-0'
        """
        outcome = self.outcome(claim)
        if outcome is None:
            return "*"
        return "1/2-1/2" if outcome.winner is None else ("1-0", "0-1")[outcome.winner]

    def can_claim_repetition(self) -> bool:
        """Whether the position stands for the third time (the fourth in `janggimodern`); where that
        came of checks, the side that gave them loses.

        >>> board = Board()
        >>> for uci in ["e2e1", "e9e10", "e1e2", "e10e9"] * 2:
        ...     _ = board.push_uci(uci)
        >>> board.can_claim_repetition()
        True
        """
        return not self.is_game_over() and ends.repetition(self) is not None

    def can_claim_back_and_forth(self) -> bool:
        """Whether the last mover has moved one man between two points for the fifth time, which
        loses in `janggimodern`.

        >>> Board(rules="janggimodern").can_claim_back_and_forth()
        False
        """
        return not self.is_game_over() and ends.back_and_forth(self) is not None

    def can_claim_no_capture(self) -> bool:
        """Whether the rule set ends the game after so many plies without a capture.

        >>> Board("3k5/9/9/9/9/9/9/9/4K4/9 w - - 100 80").can_claim_no_capture()
        True
        """
        return not self.is_game_over() and ends.no_capture(self)

    # Moves made

    @property
    def move_stack(self) -> list[Move]:
        """The moves pushed since the root, oldest first.

        >>> board = Board()
        >>> board.push_san("Hc3")
        Move.from_uci('b1c3')
        >>> board.move_stack
        [Move.from_uci('b1c3')]
        """
        return [MOVES[record.move] for record in self.history]

    def push(self, move: Move) -> None:
        """Play a move that is known to be legal. Only whether its man is the mover's is looked at;
        `push_uci` and the like ask for more. Raises `IllegalMove`.

        >>> board = Board()
        >>> board.push(Move.from_uci("a4a5"))
        >>> board.turn == HAN
        True
        """
        piece = self.squares[move.from_square]
        if not piece or piece >> 3 != self.turn or (move.is_pass and piece & 7 != GENERAL):
            man = "general" if move.is_pass else "man"
            raise IllegalMove(
                f"{move.uci()} cannot be played: {_SIDE_NAMES[self.turn]} is to move and has no "
                f"{man} on {SQUARE_NAMES[move.from_square]} in {self.fen()}."
            )
        self.make(move.from_square << 7 | move.to_square)

    def push_uci(self, uci: str) -> Move:
        """Play a legal move given in UCI. Raises `IllegalMove`, and then nothing has changed.

        >>> Board().push_uci("a4a5")
        Move.from_uci('a4a5')
        """
        return self._pushed(self.parse_uci(uci))

    def push_san(self, text: str) -> Move:
        """Play a move that `parse_san` reads. Raises `IllegalMove`, and then nothing has changed.

        >>> Board().push_san("Pab4")
        Move.from_uci('a4b4')
        """
        return self._pushed(self.parse_san(text))

    def push_korean(self, text: str) -> Move:
        """Play a move that `parse_korean` reads. Raises `IllegalMove`, and then nothing has changed.

        >>> Board().push_korean("79졸78")
        Move.from_uci('i4h4')
        """
        return self._pushed(self.parse_korean(text))

    def peek(self) -> Move:
        """The last move. Raises `IndexError` at the root.

        >>> board = Board()
        >>> board.push_uci("a4a5") == board.peek()
        True
        """
        return MOVES[self.history[-1].move]

    def pop(self) -> Move:
        """Take the last move back and return it. Raises `IndexError` at the root.

        >>> board = Board()
        >>> board.push_uci("a4a5") == board.pop()
        True
        >>> board == Board()
        True
        """
        return MOVES[self.unmake()]

    # Other boards

    def copy(self) -> Board:
        """An independent board with the same history.

        >>> board = Board()
        >>> board.copy().push_uci("a4a5")
        Move.from_uci('a4a5')
        >>> board.move_stack
        []
        """
        twin = Board.__new__(Board)
        twin.__dict__.update(self.__dict__)
        twin.squares = self.squares[:]
        twin.history = self.history[:]
        twin.men = (self.men[CHO].copy(), self.men[HAN].copy())
        twin.material = self.material[:]
        twin.generals = self.generals[:]
        return twin

    def root(self) -> Board:
        """The board before the first move of the history.

        >>> board = Board()
        >>> board.push_uci("a4a5")
        Move.from_uci('a4a5')
        >>> board.root() == Board()
        True
        """
        root = self.copy()
        while root.history:
            root.unmake()
        return root

    def mirror(self) -> Board:
        """The same position with the sides exchanged: ranks upside down, files as they are, the
        other side to move, no history. Han's compensation stays with Han.

        >>> Board("3k5/9/9/9/9/9/9/9/4K4/R8 w").mirror().fen()
        'r8/4k4/9/9/9/9/9/9/9/3K5 b - - 0 1'
        """
        rows = self.board_fen().swapcase().split("/")
        side = "b" if self.turn == CHO else "w"
        counters = f"{self.halfmove_clock} {self.fullmove_number}"
        return Board(f"{'/'.join(reversed(rows))} {side} - - {counters}", self.rules.name)

    def perft(self, depth: int) -> int:
        """Number of move sequences of `depth` plies; a pass is a move, an ended game has none.

        >>> [Board().perft(depth) for depth in range(3)]
        [1, 32, 1024]
        """
        if depth <= 0:
            return 1
        moves = self.packed_moves()
        if depth == 1:
            return len(moves)
        nodes = 0
        for move in moves:
            self.make(move)
            nodes += self.perft(depth - 1)
            self.unmake()
        return nodes

    def __eq__(self, other: object) -> bool:
        """Same position, counters and rule set; the history does not matter."""
        if not isinstance(other, Board):
            return NotImplemented
        return self.fen() == other.fen() and self.rules == other.rules

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Board({self.fen()!r}, {self.rules.name!r})"

    def __str__(self) -> str:
        return self.ascii()

    def _pushed(self, move: Move) -> Move:
        self.push(move)
        return move

    def _checked(self, move: Move) -> Move:
        if not self.is_legal(move):
            over = " (the game is over)" if self._ended is not None else ""
            side = _SIDE_NAMES[self.turn]
            raise IllegalMove(f"{move.uci()} is not a legal move of {side} in {self.fen()}{over}.")
        return move
