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
_UNKNOWN = {"Date": "????.??.??"}
# How files name the game that PGN is made for.
_PLAIN_VARIANTS = ("", "chess", "standard", "normal", "classical", "from position")

_TOKEN = re.compile(
    r"""
      \{(?P<comment>[^}]*)(?:\}|\Z)
    | ;(?P<line>[^\n]*)
    | ^%[^\n]*
    | ^[ \t]*\[[ \t]*(?P<tag>\w[\w+#=:-]*)[ \t]+"(?P<value>[^\n]*)"[ \t]*\][ \t]*$
    | (?P<bad_tag>^[ \t]*\[[^\n]*)
    | (?P<open>\() | (?P<close>\))
    | \$\d+ | <[^>\n]*>
    | (?P<result>1-0|0-1|1/2-1/2|1/2|½-½|½|\*)(?![\w/-])
    | \d+\.+ | \d+(?=\s|\Z) | \.+
    | (?: e\.p\. | [!?]+ | (?!--)[-+=±∓⩲⩱∞]+ )(?=\s|\Z)
    | (?P<move>[^\s{}()\[\];$<>]+)
    """,
    re.X | re.M,
)


def loads(data: str | bytes) -> Records:
    """The games of a PGN file.

    Bytes are UTF-8, or else Latin-1, as the standard says. Variations and glyphs ($1) are left out;
    comments are kept. A move that cannot be read ends its game, one whose game or start cannot be
    read is left out; both are among the problems. Never raises.
    """
    text = data if isinstance(data, str) else _decoded(data)
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    records = Records()
    raw = _Raw()
    depth = 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "value":
            if raw.has_begun:
                _finish(records, raw)
                raw = _Raw()
            depth = 0
            raw.tags[match["tag"]] = re.sub(r'\\(["\\])', r"\1", match["value"])
        elif kind == "bad_tag":
            raw.odd.append(match[kind].strip())
        elif kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        elif depth or kind is None:
            continue
        elif kind in ("comment", "line"):
            raw.has_begun = True
            raw.comments.setdefault(len(raw.tokens), []).append(match[kind])
        elif kind == "result":
            drawn = "½" in match[kind] or match[kind] == "1/2"
            raw.result = "1/2-1/2" if drawn else match[kind]
            _finish(records, raw)
            raw = _Raw()
        else:
            raw.has_begun = True
            raw.tokens.append(match["move"])
    if raw.tags or raw.has_begun:
        _finish(records, raw)
    return records


def dumps(records: Iterable[Record]) -> str:
    """The records as PGN. Raises `IllegalMove` for moves that the rules refuse."""
    return "\n".join(_game_text(record) for record in records)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


@dataclass
class _Raw:
    """A game as it stands in the file."""

    tags: dict[str, str] = field(default_factory=dict)
    tokens: list[str] = field(default_factory=list)
    comments: dict[int, list[str]] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)
    result: str | None = None
    has_begun: bool = False  # what is a tag now belongs to the next game


def _finish(records: Records, raw: _Raw) -> None:
    """Read a game's tags and moves, and add it to the records."""
    number = len(records) + records.skipped + 1
    problems = [
        Problem(number, None, text, 'is not a tag such as [White "Ann"]') for text in raw.odd
    ]

    def skip(tag: str, text: str) -> None:
        problems.append(Problem(number, None, tag, text, stops=True))
        records.problems += problems
        records.skipped += 1

    if not raw.tags and not raw.tokens:
        records.problems += problems  # a comment between games
        return
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
    if reason is not None:
        token = raw.tokens[best.ply]
        text = f"{_WHY.get(reason, 'is not a move')} here; the game is read up to this move"
        problems.append(Problem(number, best.ply + 1, token, text, stops=True))
    named = raw.tags.get("Result", "*").replace("½-½", "1/2-1/2")
    result = named if named in RESULTS else "*"
    written = raw.result or "*"
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
# that has more than single spaces, or a brace, is written with backslashes and marked `[%esc]`.

_COMMAND = re.compile(r"\[%(emt|clk|prob|tokens|cached|end|esc)(?: ([^\]]*))?\] ?")
_FRAGILE = re.compile(r"[}\x00-\x1f\x7f]|^ | $|  ")


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
    return re.sub(r"\[(?=%)", _code, text)


def _code(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _unescaped(text: str) -> str:
    return re.sub(
        r"\\(?:u([0-9a-f]{4})|(.))",
        lambda m: chr(int(m[1], 16)) if m[1] else "\n" if m[2] == "n" else m[2],
        text,
    )


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
