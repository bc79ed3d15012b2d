"""Rule sets and starting arrangements of janggi as data; `ends` and `board` act on them."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Literal

from games.core import UnknownRules, UnknownSetup

# How an end that is not a mate is decided; "off" means that it does not exist in the rule set.
Verdict = Literal["off", "draw", "points"]


@dataclass(frozen=True)
class Rules:
    """One rule set; limits are in plies.

    `bikjang`, `double_pass` and `ply_cap` end the game at once; `repetition`, `back_and_forth` and
    `no_capture` when a player claims them. Perpetual check loses wherever repetition counts.
    """

    name: str
    bikjang: Verdict  # the generals face each other and the player to move passes
    double_pass: Verdict
    repetition: Verdict  # the same position for the `repetition_count`-th time
    repetition_count: int = 3
    back_and_forth: bool = False  # shuttling one piece between two points loses at the fifth move
    no_capture: Verdict = "off"
    no_capture_limit: int = 100
    ply_cap: Verdict = "off"
    ply_cap_limit: int = 200
    adjudication: Verdict = "draw"  # when a game is stopped from outside
    komi: float = 1.5  # Han's compensation for moving second


# The first four are Fairy-Stockfish's variants of the same names. `kakao` follows the most used
# app: facing generals mean nothing, and 200 plies or two passes are counted out.
RULE_SETS: dict[str, Rules] = {
    rules.name: rules
    for rules in (
        Rules(
            "janggi",
            bikjang="points",
            double_pass="points",
            repetition="points",
            no_capture="points",
            adjudication="points",
        ),
        Rules(
            "janggitraditional",
            bikjang="draw",
            double_pass="draw",
            repetition="draw",
            no_capture="draw",
        ),
        Rules(
            "janggimodern",
            bikjang="off",
            double_pass="points",
            repetition="points",
            repetition_count=4,
            back_and_forth=True,
            no_capture="points",
            no_capture_limit=200,
            adjudication="points",
        ),
        Rules(
            "janggicasual",
            bikjang="off",
            double_pass="draw",
            repetition="draw",
            no_capture="draw",
        ),
        Rules(
            "kakao",
            bikjang="off",
            double_pass="points",
            repetition="off",
            ply_cap="points",
            adjudication="points",
        ),
    )
}

# Horses and elephants on the files b, c, g and h as seen from Cho's side, and the Korean name, which
# records use for both sides in this order. "Left" and "right" mean different things to different
# people and are not read.
WINGS = {"NBBN": "마상상마", "BNNB": "상마마상", "BNBN": "상마상마", "NBNB": "마상마상"}
# Cho's arrangement, then Han's.
SETUPS = tuple(f"{cho}-{han}" for cho in WINGS for han in WINGS)
_ALIASES = {"안상": "NBBN", "원앙마": "NBBN", "바깥상": "BNNB", "양귀마": "BNNB"}
_SIGNS = str.maketrans("HE마상馬象", "NBNBNB")


def get_rules(name: str) -> Rules:
    """A rule set by name. Raises `UnknownRules`.

    >>> get_rules("kakao").ply_cap_limit
    200
    """
    try:
        return RULE_SETS[name]
    except KeyError:
        known = ", ".join(RULE_SETS)
        raise UnknownRules(f"Janggi has no rule set {name!r}; choose one of {known}.") from None


def setup_name(text: str) -> str:
    """The name in `SETUPS` of an arrangement in any spelling: Cho's, then Han's, each by letters
    (also with H and E), in hangul or in hanja. Raises `UnknownSetup`.

    >>> setup_name("마상상마-상마마상"), setup_name("heeh-ehhe"), setup_name("원앙마-바깥상")
    ('NBBN-BNNB', 'NBBN-BNNB', 'NBBN-BNNB')
    """
    wings = unicodedata.normalize("NFKC", text).split("-")
    name = "-".join(_ALIASES.get(w.strip(), w.strip().upper().translate(_SIGNS)) for w in wings)
    if name not in SETUPS:
        raise UnknownSetup(
            f"Janggi has no setup {text!r}; give Cho's and Han's arrangement, such as NBBN-BNNB or "
            f"마상상마-상마마상, of {', '.join(f'{w} ({k})' for w, k in WINGS.items())}."
        )
    return name


def setup_fen(setup: str) -> str:
    """The start FEN of an arrangement in any spelling. Raises `UnknownSetup`.

    >>> setup_fen("NBBN-BNNB")
    'rbna1anbr/4k4/1c5c1/p1p1p1p1p/9/9/P1P1P1P1P/1C5C1/4K4/RNBA1ABNR w - - 0 1'
    """
    cho, han = setup_name(setup).split("-")
    han = han.lower()
    return (
        f"r{han[:2]}a1a{han[2:]}r/4k4/1c5c1/p1p1p1p1p/9/9/P1P1P1P1P/1C5C1/4K4/"
        f"R{cho[:2]}A1A{cho[2:]}R w - - 0 1"
    )


START_FEN = setup_fen(SETUPS[0])
_SETUP_OF = {setup_fen(setup).split()[0]: setup for setup in SETUPS}


def setup_of(board_fen: str) -> str | None:
    """The arrangement of which this is the board at the start, if any.

    >>> setup_of(START_FEN.split()[0])
    'NBBN-NBBN'
    """
    return _SETUP_OF.get(board_fen)
