"""Reads the move out of what a language model wrote.

A game says which stretches of a text spell moves (`Spelling`); this module decides which of them is the answer, and
knows no game. The rules, strongest first:

1. A *statement* is a move that is named as the answer (`Answer: Nf3`, `{"move": "Nf3"}`, `I play Nf3`), that
   stands alone on its line, or that opens the reply and is followed by a note. The last statement wins, and
   counts even if its move is illegal: no other is taken in its stead.
2. Without a statement, numbered moves (`1. e4 e5 2. Nf3`) answer if the number of the move to be made is there.
3. Else the one move that is mentioned, if only one is. Several different ones are AMBIGUOUS.

What stands between `<think>` tags is not part of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
_FEN = re.compile(r"(?:[a-zA-Z1-9]+/){7,9}[a-zA-Z1-9]+(?: [wb] \S+ \S+(?: \d+){0,2})?")
_RESIGN = re.compile(
    r"\b(?:I\s+)?resign(?:s|ing|ation)?\b|기권(?:합니다|하겠습니다|할게요)?|投了|투료", re.I
)

_I = r"\b(?:I(?:'ll|'d|'m| will| would| shall| am| must| can| therefore| now)?|let's|let us|let me|we(?:'ll| will)?)"
_NAMES = (
    r"answer|(?:(?:best|final|next|chosen|correct|selected|my)[\s_-]*)?move|bestmove|choice|decision|"
    r"action|reply|response|uci|san|boxed|착수|정답|답|수"
)
_VERBS = (
    r"play|playing|choose|choosing|pick|go|going|select|answer|respond|reply|move|moving|push|make"
)
_FILLER = (
    r"\b(?:is|are|be|would|will|should|the|a|now|here|to|with|for|therefore|thus|so|it|number|move|"
    r"pawn|my|then|text|by|playing)\b|\d+\s*\.+|[^\w\s]|\s|[은는]"
)
_NAMED_BEFORE = re.compile(
    rf"(?:(?<![a-z])(?:{_NAMES})|{_I}\s+(?:{_VERBS})|"
    rf"\b(?:actually|instead|rather|correction|wait|therefore|thus|hence)\s*[,:-]|\bnot\s+\S+,?\s+but)(?:{_FILLER}){{0,24}}$",
    re.I,
)
_NAMED_AFTER = re.compile(
    r"[\W_]{0,6}(?:\s(?:is|was|would be|will be|as)\s+(?:\w+\s+){0,2}?(?:answer|move|choice|decision)\b|"
    r"\s*(?:을|를)?\s*(?:두|둔|선택))",
    re.I,
)
# What is named is somebody else's move, or is not said to be made.
_OTHERS = (
    r"\b(?:opponent|enemy|last|previous|earlier|your|their|his|her|illegal|not|if|when|after{rival})"
    r"(?:'s)?\W+(?:\w+\W+)?$"
)
_DENIED = re.compile(
    r"(?:\b(?:not|never|cannot|avoid|instead of|rather than|without)|n't)\s+(?:(?!but\b)\w+\s+){0,2}$",
    re.I,
)
_OF_A_SQUARE = re.compile(
    r"\b(?:on|at|squares?|control\w*|attack\w*|towards?|weak|of|in|behind|eye\w*|cover\w*|defend\w*|"
    r"pressur\w*|via|through|from|against|guard\w*|protect\w*|occup\w+|the|over|around|for|near|"
    r"pins?|forks?|target\w*)\W+$",
    re.I,
)
_NUMBER = re.compile(r"(\d{1,3})\s*(\.{1,3}|…)\s*(?:\.\.\.?|…)?\s*[*_`\"'(]*$")
_BARE = r"[\s*_`~\"'()\[\]{}<>.,;:!?|=#+&$\\-]*"
_OPENING = re.compile(rf"{_BARE}(?:\d{{1,3}}\s*\.+{_BARE})?")
_ALONE_AFTER = re.compile(
    rf"(?:{_BARE}|\s*\(?(?:check|mate|checkmate|capture|장군|json|e\.p\.)\)?{_BARE})$", re.I
)
_NOTE_AFTER = re.compile(r"[*_`\"'\])}]*\s*(?:[,;:.(\n!?]|-\s|--|$)")


def read_reply(
    text: str,
    spellings: Callable[[str], Sequence[Spelling]],
    *,
    rival: str,
    number: tuple[int, int] | None = None,
    truncated: bool = False,
) -> ParseResult:
    """The move that `text` states, or why it states none.

    spellings: gives the moves spelled in a text, in order and not overlapping. rival: name of the side that is not
    to move. number: the full move and the side to move (0 or 1), for games whose moves are numbered in pairs.
    truncated: the text was cut off by a limit on its length.
    """
    plain = _blank(_THOUGHT, text.translate(_SAME_LENGTH))
    open_thought = any(not m[2] for m in _THOUGHT.finditer(text))
    plain = _blank(_FEN, plain)
    found = [s for s in spellings(plain) if not (truncated and s.end >= len(plain.rstrip()))]
    found = sorted(
        found
        + [Spelling(m.start(), m.end(), vague=True, resigns=True) for m in _RESIGN.finditer(plain)],
        key=lambda s: s.start,
    )
    answer, is_stated = _answer(plain, found, rival, number)
    unfinished = truncated or open_thought
    if isinstance(answer, Spelling):
        result = _verdict(text, answer)
        if unfinished and not (is_stated and result.move):
            return ParseResult(text, failure=ParseFailure.TRUNCATED, span=result.span)
        return result
    if unfinished or (answer is ParseFailure.UNPARSABLE and _is_cut_json(plain)):
        answer = ParseFailure.TRUNCATED
    return ParseResult(text, failure=answer)


def _answer(
    text: str, found: Sequence[Spelling], rival: str, number: tuple[int, int] | None
) -> tuple[Spelling | ParseFailure, bool]:
    """The spelling that answers, and whether it was stated as the answer."""
    if not any(c.isalnum() for c in text) and not found:
        return ParseFailure.EMPTY, False
    stated = _last_statement(text, found, rival)
    if stated is not None:
        return stated, True
    if number is not None and (numbered := _by_number(text, found, number)):
        return numbered, True
    mentioned = _mentioned(text, found)
    sure = [s for s in mentioned if not s.vague]
    if not sure or not _has_words(text, found):
        return _only(mentioned, text), False
    return _only(sure, text), False


def _only(mentioned: Sequence[Spelling], text: str) -> Spelling | ParseFailure:
    if not mentioned:
        return ParseFailure.UNPARSABLE
    meanings = {s.moves or _word(text, s) for s in mentioned}
    return mentioned[-1] if len(meanings) == 1 else ParseFailure.AMBIGUOUS


def _last_statement(
    text: str, found: Sequence[Spelling], rival: str
) -> Spelling | ParseFailure | None:
    last: Spelling | ParseFailure | None = None
    block: list[Spelling] = []  # moves alone on their lines, with nothing between
    for index, spelling in enumerate(found):
        before, after = _before(text, spelling), text[spelling.end : spelling.end + 80]
        if _DENIED.search(before):
            continue
        if _stands_alone(text, spelling):
            if block and text[block[-1].end : spelling.start].strip(" \t\n*_`\"'.,;:!?0123456789"):
                block = []
            block.append(spelling)
            last = _only(block, text)
        elif _is_named(before, after, rival) or _is_word_of_resignation(text, spelling):
            block = []
            last = spelling
        elif index == 0 and _opens(text, spelling, found[1] if len(found) > 1 else None):
            last = spelling
    return last


def _before(text: str, spelling: Spelling) -> str:
    return text[max(0, spelling.start - 80) : spelling.start]


def _word(text: str, spelling: Spelling) -> tuple[str, ...]:
    return (text[spelling.start : spelling.end],)


def _stands_alone(text: str, spelling: Spelling) -> bool:
    first = text.rfind("\n", 0, spelling.start) + 1
    last = text.find("\n", spelling.end)
    before, after = (
        text[first : spelling.start],
        text[spelling.end : len(text) if last < 0 else last],
    )
    bulleted = re.match(r"\s*(?:[-*+•]\s|\d+\)\s)", before)
    return not bulleted and bool(_OPENING.fullmatch(before) and _ALONE_AFTER.match(after))


def _is_named(before: str, after: str, rival: str) -> bool:
    named = _NAMED_BEFORE.search(before)
    others = _OTHERS.format(rival=f"|{re.escape(rival)}")
    if named and not re.search(others, before[: named.start()], re.I):
        return True
    return bool(_NAMED_AFTER.match(after))


def _is_word_of_resignation(text: str, spelling: Spelling) -> bool:
    return (
        spelling.resigns
        and text[spelling.start] in "Ii"
        and not text[spelling.end :].strip(" .!\n*_`\"'")
    )


def _opens(text: str, spelling: Spelling, following: Spelling | None) -> bool:
    if spelling.resigns or not _OPENING.fullmatch(text[: spelling.start]):
        return False
    note = _NOTE_AFTER.match(text, spelling.end)
    listed = following is not None and not re.search(r"\w", text[spelling.end : following.start])
    return bool(note) and not listed


def _by_number(text: str, found: Sequence[Spelling], number: tuple[int, int]) -> Spelling | None:
    """The one move that has the wanted place in numbered move text."""
    places: list[tuple[tuple[int, int] | None, Spelling]] = []
    for spelling in found:
        match = _NUMBER.search(_before(text, spelling))
        place = None
        if match:
            place = (int(match[1]), 0 if match[2] == "." and "..." not in match[0] else 1)
        elif places and (known := places[-1][0]) and known[1] == 0:
            between = text[places[-1][1].end : spelling.start]
            place = None if between.strip(" \t\n*_`") else (known[0], 1)
        places.append((place, spelling))
    wanted = [spelling for place, spelling in places if place == number]
    return wanted[0] if len(wanted) == 1 else None


def _has_words(text: str, found: Sequence[Spelling]) -> bool:
    """Whether there is more than moves and their numbers."""
    ends = [0, *(s.end for s in found)]
    starts = [*(s.start for s in found), len(text)]
    return any(re.search(r"[^\W\d]", text[a:b]) for a, b in zip(ends, starts, strict=True))


def _mentioned(text: str, found: Sequence[Spelling]) -> list[Spelling]:
    """What is spoken of as a move, and not as a square or a move that is not made."""
    mentioned: list[Spelling] = []
    left_out = False
    for spelling in found:
        before = _before(text, spelling)
        joined = re.search(r"(?:\band|\bor|,)\s+$", before)
        left_out = (
            spelling.resigns
            or bool(_DENIED.search(before))
            or (spelling.vague and bool(_OF_A_SQUARE.search(before) or (left_out and joined)))
        )
        if not left_out:
            mentioned.append(spelling)
    return mentioned


def _verdict(text: str, answer: Spelling) -> ParseResult:
    span = (answer.start, answer.end)
    if answer.resigns:
        return ParseResult(text, failure=ParseFailure.RESIGN, span=span)
    if len(set(answer.moves)) == 1:
        return ParseResult(text, move=answer.moves[0], span=span)
    failure = ParseFailure.AMBIGUOUS if answer.moves else ParseFailure.ILLEGAL
    return ParseResult(text, failure=failure, span=span)


def _is_cut_json(text: str) -> bool:
    return text.lstrip("`json \n").startswith("{") and text.count("{") > text.count("}")


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
