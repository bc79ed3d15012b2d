import games
from arena.config import ROSTER, LlmAgent
from arena.prompts import (
    STRENGTHS,
    board_text,
    move_text,
    persona_text,
    prompt_text,
    start_text,
    system_text,
)

HERON = LlmAgent(name="Heron", strength="club", style="You attack.", board_plies=2)


def test_prompt_is_the_layers_in_order_of_sharing() -> None:
    game = games.get_game("janggi")
    rules = game.rules_text() + " Answer with one legal move in this notation and nothing else."
    position = game.position()
    start = board_text(position)
    for move in ("a4a5", "e9e9"):
        position.push(move)
    now = board_text(position)
    position.push("e2e2")
    prompt = prompt_text(system_text(game), HERON, None, position)
    assert prompt == (
        f"{rules}\n\nYou are Heron. Strength: club. You attack.{start} Pa4a5 Ke9e9{now} Ke2e2"
    )
    assert prompt == (
        system_text(game)
        + persona_text("Heron", "club", "You attack.")
        + start_text(None)
        + start
        + move_text("Pa4a5")
        + move_text("Ke9e9")
        + now
        + move_text("Ke2e2")
    )


def test_without_lists_of_pieces_the_moves_follow_the_start() -> None:
    position = games.get_game("chess").position()
    position.push("e2e4")
    blind = HERON.model_copy(update={"board_plies": 0, "notation": "uci"})
    assert prompt_text("", blind, None, position).endswith("You attack.\n\nGame: e2e4")


def test_pieces_are_listed_for_the_side_to_move_first() -> None:
    position = games.get_game("chess").position("4k3/8/8/3q4/8/2N5/PP6/4K3 b - - 0 1")
    assert board_text(position) == ("\n\nBlack: Qd5 Ke8\nWhite: Pa2 Pb2 Nc3 Ke1\n\nGame:")


def test_start_is_named_only_when_it_is_not_the_usual_one() -> None:
    assert start_text(None) == ""
    assert start_text("NBNB-BNBN") == "\n\nStart: NBNB-BNBN"


def test_persona_without_style_has_no_space_at_its_end() -> None:
    assert persona_text("Heron", "club", "") == "\n\nYou are Heron. Strength: club."


def test_roster_uses_known_strengths_weakest_first() -> None:
    order = [STRENGTHS.index(agent.strength) for agent in ROSTER]
    assert order == sorted(order)
    assert len({agent.name for agent in ROSTER}) == len(ROSTER) == 8
