"""Janggi's rules and notations as language models are told them."""

from __future__ import annotations

from games.janggi.rules import RULE_SETS, Rules

NOTATIONS = {
    "uci": (
        "as the point a piece leaves and the point it goes to, like a4a5; where pieces are listed, K is the general, A "
        "the guard, N the horse, B the elephant, R the chariot, C the cannon and P the soldier; a pass is the "
        "general's own point twice, like e2e2"
    ),
    "san": (
        "as the piece's letter and the point it goes to, like Hc3 or Rxe9, with the file or rank it leaves where "
        "two can go there, like Pab4; K is the general, A the guard, H the horse, E the elephant, R the chariot, C "
        "the cannon and P the soldier; a pass is the general's own point, like Ke2"
    ),
    "lan": (
        "as the piece's letter and both points, like Hb1-c3 or Ra1xa7; K is the general, A the guard, H the horse, "
        "E the elephant, R the chariot, C the cannon and P the soldier; a pass is the general's own point twice, like "
        "Ke2-e2"
    ),
    "janggi": (
        "as the piece's letter and both points in digits, the rank counted from Han's side with 0 for the tenth and "
        "then the file, like H02-83; K is the general, A the guard, H the horse, E the elephant, R the chariot, C "
        "the cannon and P the soldier; a pass is the general's own point twice, like K95-95"
    ),
    "korean": (
        "as in Korean records, like 02마83: the point a piece leaves, the piece and the point it goes to; a point is "
        "two digits, the rank counted from Han's side with 0 for the tenth and then the file; a pass is 한수쉼"
    ),
}
"""How a move is written in each notation; the first is the default."""

_POINTS = "chariot 13, cannon 7, horse 5, elephant 3, guard 3, soldier 2, and Han has 1.5 more"
_COUNTS = {3: "three", 4: "four", 100: "a hundred", 200: "two hundred"}


def describe(rules: str, notation: str) -> str:
    """The rules as language models are told them; the bundled model was trained on those of `janggi` with `uci`."""
    return (
        "You play janggi, Korean chess, in a tournament. Cho and Han move in turn; Cho moves "
        "first. The board has files a to i and ranks 1 to 10. A move is written "
        f"{NOTATIONS[notation]}. Checkmate wins. {_ends(RULE_SETS[rules])}"
    )


def _ends(rules: Rules) -> str:
    """Every rule set decides its other ends in one way, by points or as draws."""
    verdict = rules.double_pass
    ends = []
    if rules.bikjang != "off":
        ends.append("when the generals face each other and the side to move passes")
    ends.append("when both sides pass")
    if rules.repetition != "off":
        ends.append(f"when a position comes {_COUNTS[rules.repetition_count]} times")
    if rules.no_capture != "off":
        ends.append(f"after {_COUNTS[rules.no_capture_limit]} plies without a capture")
    if rules.ply_cap != "off":
        ends.append(f"after {_COUNTS[rules.ply_cap_limit]} plies")
    text = ", ".join(ends[:-1]) + (", or " if len(ends) > 2 else " or ") + ends[-1]
    text = text[0].upper() + text[1:]
    text += f", the points decide: {_POINTS}." if verdict == "points" else ", the game is a draw."
    if rules.back_and_forth:
        text += " Who moves one piece back and forth between two points loses at the fifth move."
    return text
