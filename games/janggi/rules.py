"""Rule sets and starting arrangements of janggi as data; `ends` and `board` act on them."""

from __future__ import annotations

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

# Horses and elephants on the files b, c, g and h as seen from Cho's side.
_WINGS = ("NBBN", "BNNB", "BNBN", "NBNB")
# Cho's arrangement, then Han's.
SETUPS = tuple(f"{cho}-{han}" for cho in _WINGS for han in _WINGS)


def get_rules(name: str) -> Rules:
    """A rule set by name. Raises `UnknownRules`."""
    try:
        return RULE_SETS[name]
    except KeyError:
        known = ", ".join(RULE_SETS)
        raise UnknownRules(f"Janggi has no rule set {name!r}; choose one of {known}.") from None


def setup_fen(setup: str) -> str:
    """The start FEN of an arrangement such as `NBBN-BNNB`. Raises `UnknownSetup`."""
    if setup not in SETUPS:
        raise UnknownSetup(f"Janggi has no setup {setup!r}; choose one of {', '.join(SETUPS)}.")
    cho, han = setup.split("-")
    han = han.lower()
    return (
        f"r{han[:2]}a1a{han[2:]}r/4k4/1c5c1/p1p1p1p1p/9/9/P1P1P1P1P/1C5C1/4K4/"
        f"R{cho[:2]}A1A{cho[2:]}R w - - 0 1"
    )


START_FEN = setup_fen(SETUPS[0])
