"""Reads and writes PGN (the Portable Game Notation standard) of every game.

Games other than chess have the tag `Variant`, games with several rule sets the tag `RuleSet`. Moves
are read and written by the rules, so that a reader accepts what is written. What is known of a move
stands in its comment as `[%emt]`, `[%clk]` (as other programs write them), `[%prob]`, `[%tokens]`
and `[%cached]`, before its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import games
from games.core import Game, GameError, ParseFailure, Position
from games.records import Note, Problem, Record, Records, one_line

LINE = 80  # PGN standard, 4.3: lines of export format are shorter than this
RESULTS = ("1-0", "0-1", "1/2-1/2", "*")
_ROSTER = ("Event", "Site", "Date", "Round", "White", "Black", "Result")  # 8.1.1
_SHOWN = 60  # characters of what is wrong
_UNKNOWN = {"Date": "????.??.??"}
# How files name the game that PGN is made for.
_PLAIN_VARIANTS = ("", "chess", "standard", "normal", "classical", "from position")

_TOKEN = re.compile(
    r"""
      \{(?P<comment>(?:[^}\n]|\n(?![ \t]*\[Event[ \t]+"))*)\}?
    | ;(?P<line>[^\n]*)
    | ^%[^\n]*
    | ^[ \t]*\[[ \t]*(?P<tag>\w[\w+#=:-]*)[ \t]+"(?P<value>[^\n]*)"[ \t]*\][ \t]*$
    | (?P<bad_tag>^[ \t]*\[[^\n]*)
    | (?P<open>\() | (?P<close>\))
    | \$\d+ | <[^>\n]*>
    | (?P<result>1-0|0-1|1/2-1/2|1/2|½-½|½|\*)(?![\w/-])
    | (?P<number>\d+\.+) | \d+(?=\s|\Z) | \.+
    | (?: e\.p\. | [!?]+ | (?!--)[-+=±∓⩲⩱∞]+ )(?=\s|\Z)
    | (?P<move>[^\s{}()\[\];$<>]+)
    """,
    re.X | re.M,
)
_STRICT_TAG = r'\[[ \t]*(\w[\w+#=:-]*)[ \t]+"((?:[^"\\\n]|\\.)*)"[ \t]*\][ \t]*'
_MOVES = re.compile(r"(?:^|\s)\d+\s*\.")  # what in an open comment may be moves


def loads(data: str | bytes) -> Records:
    """The games of a PGN file.

    Bytes are UTF-8, or else Latin-1, as the standard says. Variations and glyphs ($1) are left out;
    comments are kept; one that is not closed ends before the next line that begins with `[Event`,
    a variation before the next tag. A move that cannot be read ends its game, one whose game or
    start cannot be read is left out; all that is among the problems. Text without a tag is a game
    if it has a number or a result, and begins with a move. Never raises.
    """
    text = data if isinstance(data, str) else _decoded(data)
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    records = Records()
    raw = _Raw()
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "value":
            if raw.has_begun:
                _finish(records, raw, text)
                raw = _Raw()
            for tag, value in _tags(match[0].strip(), match["tag"], match["value"]):
                raw.tags[tag] = re.sub(r'\\(["\\])', r"\1", value)
        elif kind == "bad_tag":
            raw.tell(match[kind].strip(), 'is not a tag such as [White "Ann"]')
        elif kind == "open":
            raw.open.append(match.start())
        elif kind == "close":
            if raw.open:
                raw.open.pop()
        elif kind == "comment" and not match[0].endswith("}"):
            raw.comment(match[kind])
            has_moves = _MOVES.search(match[kind]) is not None
            raw.tell("{" + match[kind], "is a comment without its }", stops=has_moves)
        elif raw.open and kind == "result":
            raw.result_inside = match[kind]
        elif raw.open or kind is None:
            continue
        elif kind == "number":
            raw.is_numbered = True
        elif kind in ("comment", "line"):
            raw.comment(match[kind])
        elif kind == "result":
            raw.result = match[kind]
            _finish(records, raw, text)
            raw = _Raw()
        else:
            raw.has_begun = True
            raw.tokens.append(match["move"])
    if raw.tags or raw.has_begun:
        _finish(records, raw, text)
    return records


def dumps(records: Iterable[Record]) -> str:
    """The records as PGN. Raises `IllegalMove` for moves that the rules refuse."""
    return "\n".join(_game_text(record) for record in records)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _tags(line: str, tag: str, value: str) -> list[tuple[str, str]]:
    """The tags of a line: several, or one whose value need not be quoted as it should."""
    if re.fullmatch(f"(?:{_STRICT_TAG})+", line):
        return re.findall(_STRICT_TAG, line)
    return [(tag, value)]


@dataclass
class _Raw:
    """A game as it stands in the file."""

    tags: dict[str, str] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)
    comments: dict[int, list[str]] = field(default_factory=dict)
    odd: list[tuple[int | None, str, str, bool]] = field(default_factory=list)
    result: str | None = None
    result_inside: str | None = None  # of an open variation
    open: list[int] = field(default_factory=list)  # where the variations that are open begin
    is_numbered: bool = False
    has_begun: bool = False  # what is a tag now belongs to the next game

    def comment(self, text: str) -> None:
        self.has_begun = True
        if not self.open:
            self.comments.setdefault(len(self.tokens), []).append(text)

    def tell(self, token: str, text: str, *, stops: bool = False) -> None:
        """Add a problem; one that stops the game is about its next move."""
        ply = len(self.tokens) + 1 if stops else None
        text += "; the moves in it are left out" * stops
        self.odd.append((ply, one_line(token)[:_SHOWN], text, stops))


def _finish(records: Records, raw: _Raw, file: str) -> None:
    """Read a game's tags and moves, and add it to the records."""
    number = len(records) + records.skipped + 1
    if raw.open:
        start = raw.open[0]
        raw.tell(file[start : start + _SHOWN], "is a variation without its )", stops=True)
        raw.result = raw.result_inside
    problems = [Problem(number, *odd) for odd in raw.odd]

    def skip(tag: str, text: str) -> None:
        problems.append(Problem(number, None, tag, text, stops=True))
        records.problems += problems
        records.skipped += 1

    is_untagged = not raw.tags
    if is_untagged and not raw.tokens:
        records.problems += problems  # a comment between games
        return
    is_prose = is_untagged and not raw.is_numbered and raw.result is None
    variant = raw.tags.get("Variant", "")
    game = _game_of(variant)
    if game is None:
        skip(variant, f"is not a game that can be read: {', '.join(games.list_games())}")
        return
    rules = raw.tags.get("RuleSet", raw.tags.get("Rules"))
    if rules is not None and rules not in game.rule_sets:
        known = ", ".join(game.rule_sets)
        problems.append(Problem(number, None, rules, f"is not a known rule set: {known}"))
        rules = None
    fen = raw.tags.get("FEN")
    best: Position | None = None
    for candidate in (rules,) if rules else game.rule_sets:
        try:
            position = game.position(fen, candidate)
        except GameError as error:
            skip(fen or "", str(error).rstrip("."))
            return
        failure = _replay(position, raw.tokens)
        if best is None or position.ply > best.ply:
            best, reason = position, failure
        if failure is None:
            break
    assert best is not None
    if is_prose or (is_untagged and best.ply == 0 and reason not in _WHY):
        text = "is text between games"
        records.problems += [*problems, Problem(number, None, raw.tokens[0], text)]
        return
    if reason is not None:
        token = raw.tokens[best.ply]
        text = f"{_WHY.get(reason, 'is not a move')} here; the game is read up to this move"
        problems.append(Problem(number, best.ply + 1, token, text, stops=True))
    named = raw.tags.get("Result", "*").replace("½-½", "1/2-1/2")
    result = named if named in RESULTS else "*"
    written = raw.result or "*"
    if "½" in written or written == "1/2":
        written = "1/2-1/2"
    if result == "*":
        result = written
    elif written not in ("*", result):
        problems.append(Problem(number, None, written, f"ends a game whose tag says {result}"))
    record = Record(
        game.name,
        best.start_fen,
        best.moves(),
        raw.tags,
        result,
        best.rules,
        problems=problems,
        number=number,
    )
    for ply, texts in raw.comments.items():
        if ply <= len(record.moves):
            note, record.ending = _read_note(" ".join(texts), record.ending)
            if note:
                record.notes[ply] = note
    records.append(record)
    records.problems += problems


_WHY = {
    ParseFailure.ILLEGAL: "is not a legal move",
    ParseFailure.AMBIGUOUS: "may mean several moves",
}


def _replay(position: Position, tokens: Iterable[str]) -> ParseFailure | None:
    """Play the moves; what is wrong with the first that cannot be read."""
    for token in tokens:
        read = position.parse(token)
        if read.move is None:
            return read.failure
        if read.span and re.search(r"\w", token[: read.span[0]] + token[read.span[1] :]):
            return ParseFailure.UNPARSABLE  # a move within something else
        position.push(read.move)
    return None


def move_notation(game: Game) -> str:
    """The notation in which moves are written: SAN where the game has it."""
    return "san" if "san" in game.notations else game.notations[0]


def _game_of(variant: str) -> Game | None:
    wanted = variant.strip().lower()
    for name in games.list_games():
        game = games.get_game(name)
        if game.pgn_variant is None:
            if wanted in _PLAIN_VARIANTS:
                return game
        elif wanted == game.pgn_variant.lower():
            return game
    return None


def _game_text(record: Record) -> str:
    game = games.get_game(record.game)
    position = game.position(record.start_fen, record.rules)
    tags = {name: _UNKNOWN.get(name, "?") for name in _ROSTER} | {"Variant": "", "RuleSet": ""}
    tags |= dict.fromkeys(("SetUp", "FEN"), "") | record.headers | {"Result": record.result}
    tags.pop("Rules", None)
    tags["Variant"] = game.pgn_variant or ""
    tags["RuleSet"] = position.rules if len(game.rule_sets) > 1 else ""
    is_usual = position.start_fen == game.start_fen
    tags |= {"SetUp": "", "FEN": ""} if is_usual else {"SetUp": "1", "FEN": position.start_fen}
    head = "".join(f'[{name} "{_quoted(value)}"]\n' for name, value in tags.items() if value)

    style = move_notation(game)
    tokens = _comment(record.notes.get(0))
    is_numbered = False
    for ply, uci in enumerate(record.moves, 1):
        if position.turn == 0 or not is_numbered:
            # The number of a move is the last field of a FEN, in all games.
            tokens.append(position.fen().split()[-1] + ("." if position.turn == 0 else "..."))
        tokens.append(position.notation(uci, style))
        position.push(uci)
        comment = _comment(record.notes.get(ply))
        tokens += comment
        is_numbered = not comment
    if record.ending:
        tokens.append("{[%end " + _escaped(record.ending, "]") + "]}")
    tokens.append(record.result)
    return head + "\n" + "\n".join(_lines(tokens)) + "\n"


def _quoted(value: str) -> str:
    return one_line(value).replace("\\", "\\\\").replace('"', '\\"')


def _lines(tokens: Iterable[str]) -> list[str]:
    """Tokens joined by spaces, broken before the line is full; a longer comment is broken at its
    spaces.
    """
    lines = [""]
    for token in tokens:
        for word in [token] if len(token) < LINE else token.split(" "):
            if lines[-1] and len(lines[-1]) + 1 + len(word) >= LINE:
                lines.append(word)
            else:
                lines[-1] += " " * bool(lines[-1]) + word
    return lines


# Comments. White space in one is written anew by everybody who breaks lines, and `}` ends it: text
# that has more than single spaces, a brace or `[Event`, is written with backslashes and marked `[%esc]`.

_COMMAND = re.compile(r"\[%(emt|clk|prob|tokens|cached|end|esc)(?: ([^\]]*))?\] ?")
_FRAGILE = re.compile(r"[}\x00-\x1f\x7f]|^ | $|  |\[Event")


def _comment(note: Note | None) -> list[str]:
    """The comment as a token of the movetext, if there is anything to say."""
    if not note:
        return []
    parts = []
    if note.elapsed_s is not None:
        parts.append(f"[%emt {_clock(note.elapsed_s)}]")
    if note.clock_s is not None:
        parts.append(f"[%clk {_clock(note.clock_s)}]")
    if note.probability is not None:
        parts.append(f"[%prob {note.probability:.6g}]")
    if note.prompt_tokens is not None:
        parts.append(f"[%tokens {note.prompt_tokens}]")
    if note.cached_tokens is not None:
        parts.append(f"[%cached {note.cached_tokens}]")
    if _FRAGILE.search(note.text) or _COMMAND.search(note.text):
        parts += ["[%esc]", _escaped(note.text, "")]
    elif note.text:
        parts.append(note.text)
    return ["{" + " ".join(parts) + "}"]


def _read_note(comment: str, ending: str) -> tuple[Note, str]:
    """A comment's note, and the ending that it states (else the one given)."""
    note = Note()
    is_escaped = False
    text = one_line(comment)
    for command, value in _COMMAND.findall(text):
        try:
            match command:
                case "emt":
                    note.elapsed_s = _seconds(value)
                case "clk":
                    note.clock_s = _seconds(value)
                case "prob":
                    note.probability = float(value)
                case "tokens":
                    note.prompt_tokens = int(value)
                case "cached":
                    note.cached_tokens = int(value)
                case "end":
                    ending = _unescaped(value)
                case "esc":
                    is_escaped = True
        except ValueError:
            pass  # another program's command of the same name
    text = _COMMAND.sub("", text).strip(" ")
    note.text = _unescaped(text) if is_escaped else text
    return note, ending


def _escaped(text: str, more: str) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    text = re.sub(rf"[}}\x00-\x1f\x7f{re.escape(more)}]|^ | $|(?<= ) ", _code, text)
    return re.sub(r"\[(?=%|Event)", _code, text)


def _code(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _unescaped(text: str) -> str:
    return re.sub(
        r"\\(?:u([0-9a-f]{4})|(.))",
        lambda m: chr(int(m[1], 16)) if m[1] else "\n" if m[2] == "n" else m[2],
        text,
    )


_CLOCK = re.compile(r"\[%clk (\d+:\d+:\d+(?:\.\d+)?)\] ?")


def with_clock(text: str, seconds: float) -> str:
    """The text of a comment with the time left before it, as `[%clk 0:01:00.000] text`."""
    return f"[%clk {_clock(seconds)}] {text}".strip(" ")


def without_clock(text: str) -> tuple[str, float | None]:
    """What `with_clock` was made of; None where the text begins with no clock."""
    match = _CLOCK.match(text)
    return (text[match.end() :], _seconds(match[1])) if match else (text, None)


def _clock(seconds: float) -> str:
    """`h:mm:ss.mmm`, to the millisecond."""
    millis = round(max(0.0, seconds) * 1000)
    minutes, rest = divmod(millis, 60_000)
    return f"{minutes // 60}:{minutes % 60:02}:{rest / 1000:06.3f}"


def _seconds(text: str) -> float:
    hours, minutes, seconds = text.split(":")
    return round(int(hours) * 3600 + int(minutes) * 60 + float(seconds), 3)


def time_control(headers: Mapping[str, str]) -> tuple[float, float] | None:
    """Seconds on the clock at first and added for each move, of a tag such as "600+5"."""
    match = re.fullmatch(r"(\d+)(?:\+(\d+))?", headers.get("TimeControl", "").strip())
    return (float(match[1]), float(match[2] or 0)) if match else None
