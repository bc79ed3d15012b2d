"""Reads the move out of what a language model wrote.

A game says which stretches of a text spell moves (`Spelling`); this module decides which of them is the answer, and
knows no game. It would rather find no answer than one that was not given:

1. A JSON object answers by its key `move`, `answer` or the like, and by nothing else.
2. A *statement* is a move that is named as the answer (`Answer: Nf3`, `I play Nf3`, `Nf3 is my move`), that stands
   alone on its line or in its sentence, or that opens the reply and is followed by a note. Sentences that deny, ask,
   compare, plan ahead or speak of somebody else's moves state nothing. The last statement wins, and counts even if
   its move is illegal: no other is taken in its stead.
3. Numbered moves alone (`1. e4 e5 2. Nf3`) answer if the number of the move to be made is there.
4. Else the only move of the reply answers if it is recommended or comes first.

Several answers at once, or one that is taken back, are AMBIGUOUS. What stands between `<think>` tags is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from games import phrases
from games.core import ParseFailure, ParseResult


@dataclass(frozen=True)
class Spelling:
    """A stretch of a text that has the form of a move.

    start, end: where it stands. moves: the legal moves, in UCI, that it can mean. vague: it may as well be something
    else, such as the name of a square. resigns: it is a word of resignation and no move.
    """

    start: int
    end: int
    moves: tuple[str, ...] = ()
    vague: bool = False
    resigns: bool = False


# Lengths must not change, so that spans stay those of the text that was given.
_SAME_LENGTH = str.maketrans(
    {chr(0xFF01 + i): chr(0x21 + i) for i in range(94)}  # full-width forms of ASCII
    | dict.fromkeys("‐‑‒–—―−⁃→➔➜⇒⟶", "-")
    | dict.fromkeys("“”„«»「」『』", '"')
    | dict.fromkeys("‘’", "'")
    | {"Ο": "O", "О": "O", "ο": "o", "о": "o"}
    | {"×": "x", "✕": "x", "✖": "x", "\u00a0": " ", "\u3000": " ", "\u202f": " "}
)
_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>.*?(</\1>|\Z)", re.I | re.S)
_STRUCK = re.compile(r"~~.*?~~", re.S)
_FEN = re.compile(r"(?:[a-zA-Z1-9]+/){7,9}[a-zA-Z1-9]+(?: [wb] \S+ \S+(?: \d+){0,2})?")
_RESIGN = re.compile(
    r"\bresign(?:s|ing|ation)?\b(?! myself)|기권(?:합니다|하겠습니다|할게요)?|投了|투료", re.I
)
_JSON = re.compile(r'\{\s*"')
_KEYS = (
    "final_answer",
    "answer",
    "final_move",
    "best_move",
    "bestmove",
    "my_move",
    "move",
    "uci",
    "san",
    "choice",
    "action",
)


def read_reply(
    text: str,
    spellings: Callable[[str], Sequence[Spelling]],
    *,
    rival: str,
    side: str = "",
    number: tuple[int, int] | None = None,
    truncated: bool = False,
) -> ParseResult:
    """The move that `text` states, or why it states none.

    spellings: gives the moves spelled in a text, in order and not overlapping. side, rival: names of the side to move
    and of the other. number: the full move and the side to move (0 or 1), for games whose moves are numbered
    in pairs. truncated: the text was cut off by a limit on its length.
    """
    plain = _blank(_THOUGHT, text.translate(_SAME_LENGTH))
    unfinished = truncated or any(not m[2] for m in _THOUGHT.finditer(text))
    plain = _blank(_FEN, _blank(_STRUCK, plain))
    answer: Spelling | ParseFailure
    if _JSON.search(plain):
        answer, sure = _from_json(plain, spellings), True
        if answer is ParseFailure.TRUNCATED:
            unfinished = True
    else:
        reply = _Reply(plain, spellings, side, rival)
        answer, sure = reply.answer(number, unfinished)
    if isinstance(answer, ParseFailure):
        return ParseResult(text, failure=ParseFailure.TRUNCATED if unfinished else answer)
    result = _verdict(text, answer)
    if unfinished and not (sure and result.move):
        return ParseResult(text, failure=ParseFailure.TRUNCATED, span=result.span)
    return result


_MOST = 300  # spelled moves that are looked at
_MARGIN = 100  # characters before a line's first word at most


class _Reply:
    """A text without thoughts, and the moves that it spells."""

    def __init__(
        self, text: str, spellings: Callable[[str], Sequence[Spelling]], side: str, rival: str
    ) -> None:
        self.text = text
        resigned = [
            Spelling(m.start(), m.end(), vague=True, resigns=True) for m in _RESIGN.finditer(text)
        ]
        found = sorted([*spellings(text), *resigned], key=lambda s: s.start)
        # A reply that goes on and on is read by its beginning and its end.
        self.found = found if len(found) <= _MOST else [found[0], *found[1 - _MOST :]]
        own = re.escape(side.lower() or "i")
        self._naming = re.compile(phrases.NAMING.replace("{side}", own))
        self._castling = re.compile(phrases.DOING.replace("{side}", own))
        self._rival = re.compile(rf"\b{re.escape(rival)}\b", re.I)

    def answer(
        self, number: tuple[int, int] | None, unfinished: bool
    ) -> tuple[Spelling | ParseFailure, bool]:
        """The spelling that answers, or why none does; and whether more text could hardly change that."""
        if not any(c.isalnum() for c in self.text) and not self.found:
            return ParseFailure.EMPTY, False
        if unfinished:  # what the text ends with may go on
            self.found = [s for s in self.found if s.end < len(self.text.rstrip())]
        stated, named = self._statement()
        if stated is not None:
            return stated, named
        if not self._has_words():
            if number is not None and (numbered := self._by_number(number)):
                return numbered, True
            return self._only(self.found), False
        return self._mention(), False

    def _statement(self) -> tuple[Spelling | ParseFailure | None, bool]:
        last: Spelling | ParseFailure | None = None
        named = False
        block: list[Spelling] = []  # moves alone, with nothing between
        at = 0
        openers = [s for s in self.found if self._opens_line(s)]
        for index, spelling in enumerate(self.found):
            following = self.found[index + 1] if index + 1 < len(self.found) else None
            before, after, is_question = self._sentence(spelling)
            if self._is_denied(spelling, before, after) or is_question:
                continue
            if self._is_alone(spelling, before, after):
                if named and not phrases.TAKES_BACK.search(self.text, at, spelling.start):
                    continue  # a line of what follows, or of an alternative
                if block and re.search(r"[^\W\d]", self.text[block[-1].end : spelling.start]):
                    block = []
                block = [*block[-1:], spelling]
                unclear = len(block) > 1 and last is ParseFailure.AMBIGUOUS
                last = ParseFailure.AMBIGUOUS if unclear else self._only(block)
                named, at = False, spelling.end
            elif self._is_named(spelling, before, after):
                block = []
                again = not named or bool(
                    phrases.TAKES_BACK.search(self.text, at, spelling.start)
                    or phrases.FINAL.search(before)
                )
                last = spelling if again else self._agree(last, spelling)
                named, at = True, spelling.end
                if following and self._is_joined(spelling, following):
                    last = self._only([spelling, following])
            elif index == 0 and self._opens(spelling, following):
                last, named, at = self._only(openers or [spelling]), False, spelling.end
        if isinstance(last, Spelling) and self._is_taken_back(last, at, named):
            return ParseFailure.AMBIGUOUS, False
        return last, named

    def _sentence(self, spelling: Spelling) -> tuple[str, str, bool]:
        """What stands before and after a move in its sentence, and whether that is a question."""
        text = self.text
        first = max(0, spelling.start - 400)
        for match in phrases.SENTENCE_END.finditer(text, first, spelling.start):
            first = match.end()
        end = phrases.SENTENCE_END.search(text, spelling.end)
        last = min(end.start() if end else len(text), spelling.end + 400)
        return text[first : spelling.start], text[spelling.end : last], bool(end and end[0] == "?")

    def _is_denied(self, spelling: Spelling, before: str, after: str) -> bool:
        plain = phrases.BENIGN.sub("", phrases.MARKS.sub(" ", before).strip())
        turn = phrases.TURN.split(plain)[-1]
        named = self._naming.search(_clean(turn)) or phrases.NAMED_AFTER.match(after)
        if turn != plain and named:
            plain = turn  # what was weighed before does not matter
        if phrases.NOT_STATED.search(plain) or self._rival.search(plain):
            return True
        if phrases.WISHED_BEFORE.search(before) and phrases.WISHED_AFTER.match(after):
            return True
        return bool(phrases.DENIED_AFTER.search(after)) or self.text[
            spelling.start : spelling.end
        ].endswith("??")

    def _is_alone(self, spelling: Spelling, before: str, after: str) -> bool:
        if phrases.BULLET.match(before) or not phrases.ALONE_AFTER.match(after):
            return False
        heading = self._heading(spelling)
        if heading.endswith(":") and not self._naming.search(heading):
            return False  # of moves that are something else than the answer
        return not _clean(before)

    def _heading(self, spelling: Spelling) -> str:
        """The last line with words above the line of a move."""
        first = self.text.rfind("\n", 0, spelling.start)
        above = self.text[max(0, first - 200) : max(0, first)].rstrip(" \t\n*_`-")
        return _clean(re.split(r"\n|[.!?]\s", above)[-1])

    def _is_named(self, spelling: Spelling, before: str, after: str) -> bool:
        if self._is_square(spelling, before, after):
            return False
        plain = _clean(phrases.BENIGN.sub("", before))
        word = self.text[spelling.start : spelling.end].lower()
        if self._naming.search(plain):
            return True
        if (spelling.resigns or word.startswith(("castl", "pass"))) and self._castling.search(
            plain
        ):
            return True
        corrects = re.fullmatch(rf"(?:{phrases.TAKEN_BACK}[ ,:-]*)+", plain)
        if corrects and phrases.RECOMMENDED_AFTER.match(after):
            return True
        plain = phrases.TURN.split(plain)[-1].strip()
        leads = rf"(?:(?:{phrases.LEAD}|{phrases.KOREAN_LEAD}),? ?)*"
        is_first = not re.search(r"[^\W\d]", plain) or bool(re.fullmatch(leads, plain))
        return is_first and bool(phrases.NAMED_AFTER.match(after))

    @staticmethod
    def _is_square(spelling: Spelling, before: str, after: str) -> bool:
        """Whether a bare square is part of another piece's move, or of no move at all."""
        if not spelling.vague or spelling.resigns:
            return False
        piece = phrases.PIECE_NAME.search(before) or phrases.PIECE_AFTER.match(after)
        return bool(piece and not phrases.PAWN_BEFORE.search(before)) or bool(
            phrases.OF_A_SQUARE.search(before)
        )

    def _is_joined(self, spelling: Spelling, following: Spelling) -> bool:
        return bool(phrases.JOINED.fullmatch(self.text, spelling.end, following.start))

    def _opens_line(self, spelling: Spelling) -> bool:
        first = self.text.rfind("\n", 0, spelling.start) + 1
        if spelling.start - first > _MARGIN:
            return False
        return not _clean(self.text[first : spelling.start])

    def _opens(self, spelling: Spelling, following: Spelling | None) -> bool:
        if spelling.resigns or _clean(self.text[: spelling.start]):
            return False
        if following and not re.search(r"\w", self.text[spelling.end : following.start]):
            return False
        return bool(phrases.NOTE.match(self.text, spelling.end))

    def _is_taken_back(self, answer: Spelling, at: int, named: bool) -> bool:
        """Whether another move comes later, after a word that takes the answer back."""
        pattern = phrases.TAKES_BACK if named else phrases.DOUBTS
        for spelling in self.found:
            if spelling.start >= at and spelling.moves != answer.moves:
                before = self._sentence(spelling)[0]
                if pattern.search(
                    self.text, max(at, spelling.start - len(before) - 12), spelling.start
                ):
                    return True
        return False

    def _by_number(self, number: tuple[int, int]) -> Spelling | None:
        """The one move that has the wanted place in numbered move text."""
        places: list[tuple[tuple[int, int] | None, Spelling]] = []
        for spelling in self.found:
            before = self.text[max(0, spelling.start - 20) : spelling.start]
            match = phrases.MOVE_NUMBER.search(phrases.MARKS.sub(" ", before))
            place = None
            if match:
                place = (int(match[1]), 0 if match[2] == "." and "..." not in match[0] else 1)
            elif places and (known := places[-1][0]) and known[1] == 0:
                between = self.text[places[-1][1].end : spelling.start]
                place = None if between.strip(" \t\n*_`") else (known[0], 1)
            places.append((place, spelling))
        wanted = [spelling for place, spelling in places if place == number]
        return wanted[0] if len(wanted) == 1 else None

    def _mention(self) -> Spelling | ParseFailure:
        """The only move that a reply speaks of, if it is recommended or comes first."""
        mentioned = [
            s
            for s in self.found
            if not s.resigns and not self._is_square(s, *self._sentence(s)[:2])
        ]
        answer = self._only(mentioned)
        if isinstance(answer, ParseFailure):
            return answer
        for spelling in mentioned:
            before, after, is_question = self._sentence(spelling)
            if is_question or self._is_denied(spelling, before, after):
                return ParseFailure.UNPARSABLE
            if (
                spelling.vague
                and self.text[spelling.start].isalpha()
                and not re.search(r"\d", self.text[spelling.start : spelling.end])
            ):
                continue  # a word of every day
            is_first = spelling is self.found[0] and not _clean(self.text[: spelling.start])
            if (
                is_first
                or phrases.RECOMMENDED_AFTER.match(after)
                or phrases.RECOMMENDED_BEFORE.search(_clean(before))
            ):
                return spelling
        return ParseFailure.UNPARSABLE

    def _only(self, spellings: Sequence[Spelling]) -> Spelling | ParseFailure:
        if not spellings:
            return ParseFailure.UNPARSABLE
        meanings = {s.moves or (self.text[s.start : s.end],) for s in spellings}
        return spellings[-1] if len(meanings) == 1 else ParseFailure.AMBIGUOUS

    def _agree(
        self, first: Spelling | ParseFailure | None, second: Spelling
    ) -> Spelling | ParseFailure:
        return self._only([first, second]) if isinstance(first, Spelling) else first or second

    def _has_words(self) -> bool:
        """Whether there is more than moves and their numbers."""
        ends = [0, *(s.end for s in self.found)]
        starts = [*(s.start for s in self.found), len(self.text)]
        return any(re.search(r"[^\W\d]", self.text[a:b]) for a, b in zip(ends, starts, strict=True))


def _from_json(
    text: str, spellings: Callable[[str], Sequence[Spelling]]
) -> Spelling | ParseFailure:
    """What the JSON objects with a key for the answer say, if they agree; TRUNCATED if one is not complete."""
    answers: list[Spelling | ParseFailure] = []
    decoder = json.JSONDecoder(strict=False)
    at = 0
    while match := _JSON.search(text, at):
        try:
            value, length = decoder.raw_decode(text[match.start() :])
        except (json.JSONDecodeError, RecursionError):
            return ParseFailure.TRUNCATED
        at = match.start() + length
        given = [value[key] for key in _KEYS if key in value]
        if {"from", "to"} <= set(value):
            given.append(value)
        answers += [_of_value(v, text, match.start(), at, spellings) for v in given]
    if not answers:
        return ParseFailure.UNPARSABLE
    meanings = {a if isinstance(a, ParseFailure) else (a.moves, a.resigns) for a in answers}
    return answers[-1] if len(meanings) == 1 else ParseFailure.AMBIGUOUS


def _of_value(
    given: Any, text: str, start: int, end: int, spellings: Callable[[str], Sequence[Spelling]]
) -> Spelling | ParseFailure:
    if isinstance(given, list) and len(given) == 1:
        given = given[0]
    if isinstance(given, list):
        return ParseFailure.AMBIGUOUS
    if isinstance(given, dict):
        squares = [given.get("from"), given.get("to")]
        if all(isinstance(square, str) for square in squares):
            found = spellings(f"{squares[0]}-{squares[1]}")
            first, last = (
                text.find(str(squares[0]), start, end),
                text.rfind(str(squares[1]), start, end),
            )
            if len(found) == 1 and first >= 0 and last >= 0:
                stretch = sorted((first, last))
                return Spelling(stretch[0], stretch[1] + 2, found[0].moves)
            return ParseFailure.UNPARSABLE
        inner = next((given[k] for k in _KEYS if k in given), None)
        return (
            _of_value(inner, text, start, end, spellings)
            if inner is not None
            else ParseFailure.UNPARSABLE
        )
    if not isinstance(given, str):
        return ParseFailure.UNPARSABLE
    if not given.strip():
        return ParseFailure.EMPTY
    at = text.rfind(given, start, end)
    if at < 0:
        return ParseFailure.UNPARSABLE
    if _RESIGN.fullmatch(given.strip()):
        return Spelling(at, at + len(given), resigns=True)
    found = spellings(given)
    if len(found) == 1 and not re.search(
        r"[^\W\d]", given[: found[0].start] + given[found[0].end :]
    ):
        return Spelling(at + found[0].start, at + found[0].end, found[0].moves)
    return ParseFailure.AMBIGUOUS if len(found) > 1 else ParseFailure.UNPARSABLE


def _clean(text: str) -> str:
    """Lower case, without marks, with single spaces; what is left of a list's or a quotation's sign goes."""
    text = phrases.MOVE_NUMBER.sub("", phrases.MARKS.sub(" ", text).lower())
    return re.sub(r"\s+", " ", text).strip(" -=>.,:;!?+~") + (
        ":" if text.rstrip().endswith((":", "=")) and re.search(r"\w", text) else ""
    )


def _verdict(text: str, answer: Spelling) -> ParseResult:
    span = (answer.start, answer.end)
    if answer.resigns:
        return ParseResult(text, failure=ParseFailure.RESIGN, span=span)
    if len(set(answer.moves)) == 1:
        return ParseResult(text, move=answer.moves[0], span=span)
    failure = ParseFailure.AMBIGUOUS if answer.moves else ParseFailure.ILLEGAL
    return ParseResult(text, failure=failure, span=span)


def _blank(pattern: re.Pattern[str], text: str) -> str:
    """The text with every match replaced by as many spaces."""
    return pattern.sub(lambda m: " " * len(m[0]), text)


class LegalMoves:
    """The legal moves of a position, found by what a notation tells of them."""

    def __init__(self, legal: Sequence[str], pieces: Mapping[str, str]) -> None:
        """legal: UCI. pieces: square name -> letter, as `Position.pieces` gives them."""
        self._moves = []
        for uci in legal:
            if match := _UCI.fullmatch(uci):
                origin, target, promotion = match.groups()
                self._moves.append((uci, pieces[origin].upper(), origin, target, promotion))

    def find(
        self, *, piece: str = "", file: str = "", rank: str = "", target: str, promotion: str = ""
    ) -> tuple[str, ...]:
        """All that fit; an empty string says nothing of its part."""
        return tuple(
            uci
            for uci, letter, origin, to, promoted in self._moves
            if to == target
            and piece in ("", letter)
            and file in ("", origin[0])
            and rank in ("", origin[1:])
            and promotion in ("", promoted)
        )


def capital(square: str, target: str, letters: str) -> tuple[bool, bool]:
    """How `B1c3` may be read: as the piece B from rank 1, as the square b1. Capitals throughout leave both open."""
    is_piece = square[0] in letters
    return is_piece, not is_piece or target[0].isupper()


_UCI = re.compile(r"([a-z]\d+)([a-z]\d+)([a-z]?)")
