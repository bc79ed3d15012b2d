"""GIB: Korean game records of janggi, as programs and servers in Korea write them.

A file holds many games, each with headers such as `[초대국자 "..."]` and moves in Korean notation
numbered by plies. Files are cp949, sometimes UTF-8 (or games of both), and dirty: whatever cannot be
read is told with game, ply and token, and reading goes on. Moves are read by the rules of pieces and check alone:
servers differ in all that ends a game.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from games.core import IllegalMove, InvalidFen
from games.janggi.board import Board
from games.janggi.fen import board_fen
from games.janggi.geometry import CHO
from games.janggi.korean import HANGUL, HANJA, KOREAN_FORM, PASS_FORM, korean
from games.janggi.move import Move
from games.janggi.rules import SETUPS, START_FEN, Rules, setup_fen
from games.records import Note, Problem, Record, Records, one_line

_NO_ENDS = Rules("record", bikjang="off", double_pass="off", repetition="off")
_PER_LINE = 6

# GIB's headers and the PGN tags that mean the same.
_TAGS = {
    "대회명": "Event",
    "대국장소": "Site",
    "대국일자": "Date",
    "회전": "Round",
    "초대국자": "White",
    "한대국자": "Black",
    "제한시간": "TimeControl",
}
_ORDER = ("대회명", "회전", "대국일자", "대국장소", "초대국자", "한대국자")
_SETUP_KEYS = (("초차림", "초포진"), ("한차림", "한포진"))
_PLIES, _RESULT, _POSITION = "총수", "대국결과", "판"
_SETUP_LETTERS = {"마": "N", "馬": "N", "상": "B", "象": "B"}
_SETUP_NAMES = {"원앙마": "NBBN", "안상": "NBBN", "양귀마": "BNNB", "바깥상": "BNNB"}
_HANDICAP = "접장기"

# By character, a piece of `판`: hangul is Cho's, hanja Han's.
_MEN = {char: HANGUL.index(char) for char in HANGUL[1:8]} | {
    char: HANJA.index(char, 8) for char in HANJA[9:]
}
_MEN |= {"초": _MEN["장"], "궁": _MEN["장"], "병": _MEN["졸"]}
_MEN |= {"漢": _MEN["將"], "楚": _MEN["將"], "卒": _MEN["兵"], "砲": _MEN["包"], "炮": _MEN["包"]}

_HEADER = re.compile(r"^\s*\[\s*([^\s\"\]]+)\s+\"(.*)\"\s*\]?\s*$")
# A comment that is not closed ends before the next header.
_COMMENT = re.compile(r"\{((?:[^}\n]|\n(?![ \t]*\[[^\n]*\"))*)(\}?)")
_BAD_BYTES = "has bytes that are no characters"
_MARK = re.compile(r"<[^<>\n]*>")
# A number with what stands behind it, up to the next number.
_MOVE = re.compile(r"(?:^|(?<=\s))(\d{1,4})\s*\.\s*(.*?)(?=\s+\d{1,4}\s*\.|\s*\Z)", re.S)
_TAIL = re.compile(r"(?:\s*(?:장군|멍군|외통수?|빅장|[!?+#]))+$")
_NOTE_SIGN = "\x00"  # with the number of a comment between two, stands where the comment was
_KEPT = re.compile(f"{_NOTE_SIGN}(\\d+){_NOTE_SIGN}")


@dataclass(frozen=True)
class Spelling:
    """How the moves of a game are written: `75상43병`, with hanja `75象43兵`, with side `75楚象43兵`,
    with 타 `75상43타병`.
    """

    hanja: bool = False
    side: bool = False
    take: bool = False


@dataclass(frozen=True)
class _Comment:
    text: str
    is_open: bool  # without its }


@dataclass
class GibRecord(Record):
    """A game of a GIB file; `headers` are as they stand there."""

    spelling: Spelling = Spelling()

    @property
    def winner(self) -> str | None:
        """`cho`, `han`, `draw`, or None where the record does not tell."""
        return {"1-0": "cho", "0-1": "han", "1/2-1/2": "draw"}.get(self.result)


def loads(data: bytes) -> Records:
    """The games of a file, of type `GibRecord`; never raises.

    A move that cannot be read ends its game. What contradicts itself (`총수`, numbers, the name of
    what was captured) is among the problems too, and changes nothing.
    """
    text, encoding = _decoded(data)
    records = Records(encoding=encoding, newline="\r\n" if "\r\n" in text else "\n")
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))
    comments: list[_Comment] = []

    def keep(match: re.Match[str]) -> str:
        comments.append(_Comment(one_line(match[1]), is_open=not match[2]))
        return f" {_NOTE_SIGN}{len(comments) - 1}{_NOTE_SIGN} "

    text = _MARK.sub(" ", _COMMENT.sub(keep, text.replace(_NOTE_SIGN, "")))
    headers: dict[str, str] = {}
    odd: list[str] = []
    body: list[str] = []

    def finish() -> None:
        if headers or re.search(r"\d\s*\.", "\n".join(body)):
            _add(records, dict(headers), "\n".join(body), list(odd), comments)
        headers.clear()
        odd.clear()
        body.clear()

    for line in text.split("\n"):
        header = _HEADER.match(line)
        if header:
            if any(part.strip() for part in body):
                finish()
            headers[header[1]] = header[2]
        elif line.lstrip().startswith("["):
            odd.append(line.strip())
        else:
            # A file without headers: each game begins with its first move.
            if re.match(r"\s*1\s*\.", line) and re.search(r"\d\s*\.", "\n".join(body)):
                finish()
            body.append(line)
    finish()
    return records


def dumps(
    records: Iterable[Record], *, encoding: str | None = None, newline: str | None = None
) -> bytes:
    """The records as a GIB file: cp949 and LF, or as the file was that they were read from.

    What a file by the rules holds is written as it was read, byte for byte; dirt is not. Records
    with PGN's tags get GIB's headers. Characters that cp949 has not become `?`. Raises
    `IllegalMove` for moves that the rules of pieces refuse.
    """
    was = records if isinstance(records, Records) else Records(encoding="cp949")
    text = "\n".join(_game_text(record) for record in records)
    text = text.replace("\n", newline or was.newline)
    return text.encode(encoding or was.encoding, "replace")


def pgn_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a GIB record as PGN tags: the names of players and event, date, place."""
    tags = {tag: headers[key] for key, tag in _TAGS.items() if headers.get(key)}
    if date := re.fullmatch(r"(\d{4})\D+(\d{1,2})\D+(\d{1,2})\D*", tags.get("Date", "")):
        tags["Date"] = f"{date[1]}.{int(date[2]):02}.{int(date[3]):02}"
    if headers.get(_RESULT):
        tags["Termination"] = headers[_RESULT]
    return tags


def gib_headers(record: Record) -> dict[str, str]:
    """Headers for a record that has PGN's tags."""
    tags = record.headers
    known = {key: tags.get(tag, "").strip() for key, tag in _TAGS.items()}
    headers = {key: known[key] if known[key] not in ("", "?") else "미상" for key in _ORDER}
    date = re.fullmatch(r"(\d{4})\.(\d\d)\.(\d\d)", known["대국일자"])
    headers["대국일자"] = "-".join(date.groups()) if date else "미상"
    headers |= _start_headers(record.start_fen)
    if known["제한시간"]:
        headers["제한시간"] = known["제한시간"]
    headers[_PLIES] = str(len(record.moves))
    headers[_RESULT] = _result_text(record)
    return headers


def parse_result(text: str) -> str:
    """The result of PGN for the text of `대국결과`: `초 완승` is "1-0"."""
    text = unicodedata.normalize("NFKC", text).strip()
    if text[:1] in "초楚" and text:
        return "1-0"
    if text[:1] in "한漢" and text:
        return "0-1"
    return "1/2-1/2" if re.match("무|빅|비[김긴]", text) else "*"


def _decoded(data: bytes) -> tuple[str, str]:
    """Text and encoding, which each game has of its own: UTF-8, or cp949 where that reads more bytes.

    Bytes FF and 1A (DOS's end of file) belong to no character.
    """
    data = data.removeprefix(codecs.BOM_UTF8).replace(b"\xff", b"").replace(b"\x1a", b"")
    chunks: list[list[bytes]] = [[]]
    in_headers = True
    for line in data.splitlines(keepends=True):
        is_header = line.lstrip().startswith(b"[")
        if is_header and not in_headers:
            chunks.append([])
        in_headers = is_header or (in_headers and not line.strip())
        chunks[-1].append(line)
    texts, encodings = [], set()
    for lines in chunks:
        chunk = b"".join(lines)
        utf8, cp949 = chunk.decode("utf-8", "replace"), chunk.decode("cp949", "replace")
        is_utf8 = utf8.count("\ufffd") <= cp949.count("\ufffd")
        texts.append(utf8 if is_utf8 else cp949)
        if not chunk.isascii():
            encodings.add("utf-8" if is_utf8 else "cp949")
    return "".join(texts), "utf-8" if "utf-8" in encodings else "cp949"


def _add(
    records: Records, headers: dict[str, str], body: str, odd: list[str], comments: list[_Comment]
) -> None:
    """Read one game and add it to the records."""
    number = len(records) + 1
    problems = [Problem(number, None, line, "is not a header") for line in odd]

    def warn(token: str, text: str, *, of_move: bool = False, stops: bool = False) -> None:
        ply = len(record.moves) + 1 if of_move else None
        problems.append(Problem(number, ply, token, text, stops))

    record = GibRecord("janggi", "", headers=headers, problems=problems, number=number)
    for key, value in headers.items():
        if "\ufffd" in key + value:
            warn(f"{key} {value}", _BAD_BYTES)
    board = _free_board(_start_fen(headers, warn))
    record.start_fen = board.fen()
    record.result = parse_result(headers.get(_RESULT, ""))
    found = list(_MOVE.finditer(body))
    before = body[: found[0].start()] if found else body
    _add_comments(record, before, comments, warn)
    if stray := one_line(_KEPT.sub(" ", before)):
        has_move = KOREAN_FORM.search(stray) is not None
        warn(stray, "has no number such as 1. and is left out", of_move=has_move, stops=has_move)
    votes: Counter[str] = Counter()
    for index, match in enumerate(found):
        token = one_line(_KEPT.sub(" ", match[2]))
        if not token and index == len(found) - 1:
            _add_comments(record, match[2], comments, warn)
            break  # a number behind the last move
        if int(match[1]) != index + 1:
            warn(f"{match[1]}.", f"is the number of move {index + 1}", of_move=True)
        try:
            move, note = _read_move(board, token)
        except IllegalMove as error:
            text = str(error).rstrip(".").removeprefix(f"{token!r} ").removeprefix(f"{token} ")
            left = len(found) - index
            left_out = f"from here on {left} {'ply is' if left == 1 else 'plies are'} left out"
            warn(token, f"{text}; {left_out}", of_move=True, stops=True)
            break
        if note:
            warn(token, note, of_move=True)
        _vote(votes, token)
        board.push(move)
        record.moves.append(move.uci())
        _add_comments(record, match[2], comments, warn)
    total = headers.get(_PLIES, "").strip()
    if total and total != str(len(record.moves)) and not record.is_cut:
        warn(f"{_PLIES} {total}", f"but the game has {len(record.moves)} plies")
    record.spelling = Spelling(
        hanja=2 * votes["hanja"] > votes["moves"],
        side=2 * votes["side"] > votes["moves"],
        take=votes["take"] > 0,
    )
    records.append(record)
    records.problems += problems


def _free_board(fen: str) -> Board:
    """A board on which nothing but mate ends the game."""
    board = Board(fen)
    board.rules = _NO_ENDS
    return board


def _read_move(board: Board, token: str) -> tuple[Move, str]:
    """The move, and what is odd about its text. Raises `IllegalMove`."""
    plain = _TAIL.sub("", unicodedata.normalize("NFKC", token))
    if (match := PASS_FORM.fullmatch(plain)) or plain == "쉼":
        is_other = match and match[1] and (match[1] in "초楚") != (board.turn == CHO)
        return _checked(board, board.pass_move), "names the other side" if is_other else ""
    try:
        return board.parse_korean(plain), ""
    except IllegalMove:
        match = KOREAN_FORM.fullmatch(plain)
        if match is None or not match[6]:
            raise
        move = board.parse_korean("".join(part or "" for part in match.groups()[:4]))
        return move, "names another man as captured than stands there"


def _checked(board: Board, move: Move) -> Move:
    """A pass is let through in check too where the generals face each other, as bikjang."""
    if not board.is_legal(move) and not (move.is_pass and board.is_bikjang()):
        raise IllegalMove(f"{move.uci()} is not a legal move in {board.fen()}.")
    return move


def _vote(votes: Counter[str], token: str) -> None:
    match = KOREAN_FORM.match(unicodedata.normalize("NFKC", token))
    if match is None:
        return  # a pass is written in one way
    votes["moves"] += 1
    votes["hanja"] += (match[3] or match[2]) in HANJA
    votes["side"] += bool(match[2] and match[3])
    votes["take"] += "타" in token


def _add_comments(
    record: Record, text: str, comments: list[_Comment], warn: Callable[..., None]
) -> None:
    kept = [comments[int(match[1])] for match in _KEPT.finditer(text)]
    for comment in kept:
        if "\ufffd" in comment.text:
            warn(comment.text, _BAD_BYTES)
        if comment.is_open:
            left_out = re.search(r"(?:^|\s)\d{1,4}\s*\.", comment.text) is not None
            text = "is a comment without its }" + "; the moves in it are left out" * left_out
            warn("{" + comment.text, text, of_move=left_out, stops=left_out)
    if joined := " ".join(comment.text for comment in kept if comment.text):
        record.notes[len(record.moves)] = Note(joined)


def _start_fen(headers: Mapping[str, str], warn: Callable[[str, str], None]) -> str:
    if _POSITION in headers:
        try:
            return Board(_read_position(headers[_POSITION])).fen()
        except InvalidFen as error:
            warn(headers[_POSITION], f"is not a position: {str(error).rstrip('.')}")
            return START_FEN
    wings = []
    for keys in _SETUP_KEYS:
        name = next((headers[key].strip() for key in keys if key in headers), "")
        letters = "".join(
            _SETUP_LETTERS.get(char, "?") for char in unicodedata.normalize("NFKC", name)
        )
        wing = _SETUP_NAMES.get(name, letters)
        if f"{wing}-{wing}" not in SETUPS:
            text = "is not a setup such as 마상상마" if name else "is missing"
            warn(f"{keys[0]} {name}".strip(), f"{text}; 마상상마 is taken")
            wing = SETUPS[0][:4]
        wings.append(wing)
    return setup_fen("-".join(wings))


def _read_position(text: str) -> str:
    """The FEN of `판`. Raises `InvalidFen`."""
    board, _, rest = unicodedata.normalize("NFKC", text).strip().partition(" ")
    points: list[int] = []
    rows = board.split("/")
    for row in rows:
        line: list[int] = []
        for char in row:
            if char not in _MEN and not char.isdecimal():
                raise InvalidFen(f"{char} is not a piece")
            line += [_MEN[char]] if char in _MEN else [0] * int(char)
        points += (line + [0] * 9)[: max(9, len(line))]
    if len(rows) != 10 or len(points) != 90:
        raise InvalidFen("it has not ten rows of nine points")
    side = "b" if rest.strip()[:1] in ("한", "漢") else "w"
    return f"{board_fen(points)} {side} - - 0 1"


def _start_headers(fen: str) -> dict[str, str]:
    board = Board(fen)
    for setup in SETUPS:
        if setup_fen(setup).split()[:2] == fen.split()[:2]:
            spelled = setup.replace("N", "마").replace("B", "상").split("-")
            return {keys[0]: name for keys, name in zip(_SETUP_KEYS, spelled, strict=True)}
    rows = []
    for low in range(0, 90, 9):
        row = "".join(
            "." if not piece else (HANJA if piece & 8 else HANGUL)[piece]
            for piece in board.squares[low : low + 9]
        )
        rows.append(re.sub(r"\.+", lambda gap: str(len(gap[0])), row.rstrip(".")))
    return {_POSITION: f"{'/'.join(rows)} {'초한'[board.turn]} {_HANDICAP}"}


def _result_text(record: Record) -> str:
    if record.result in ("1-0", "0-1"):
        if record.headers.get("Termination", "").lower() == "time forfeit":
            kind = "시간승"
        else:
            kind = "점수승" if re.search(r" [\d.]+-[\d.]+$", record.ending) else "완승"
        return f"{'초' if record.result == '1-0' else '한'} {kind}"
    if record.result == "1/2-1/2":
        return "무승부 (빅장)" if record.ending.startswith("bikjang") else "무승부"
    return "미상"


def _game_text(record: Record) -> str:
    is_gib = any("가" <= key[:1] <= "힣" for key in record.headers)
    headers = dict(record.headers) if is_gib else gib_headers(record)
    start = record.start_fen.split()[:2]
    if _start_fen(headers, lambda *_: None).split()[:2] != start:
        for key in (_POSITION, *_SETUP_KEYS[0], *_SETUP_KEYS[1]):
            headers.pop(key, None)
        headers |= _start_headers(record.start_fen)
    lines = [f'[{key} "{one_line(value)}"]' for key, value in headers.items()]
    lines += ["", *_comment_lines(record, 0)]
    spelling = record.spelling if isinstance(record, GibRecord) else Spelling()
    board = _free_board(record.start_fen)
    row: list[str] = []
    for ply, uci in enumerate(record.moves, 1):
        move = _checked(board, Move.from_uci(uci))
        text = korean(board, move, hanja=spelling.hanja, side=spelling.side, take=spelling.take)
        board.push(move)
        row.append(f"{ply}. {text}")
        comment = _comment_lines(record, ply)
        if comment or len(row) == _PER_LINE or ply == len(record.moves):
            lines += [" ".join(row), *comment]
            row = []
    return "\n".join(lines) + "\n\n"


def _comment_lines(record: Record, ply: int) -> list[str]:
    note = record.notes.get(ply)
    text = one_line(note.text).translate({ord("{"): "(", ord("}"): ")"}) if note else ""
    return [f"{{ {text} }}"] if text else []
