import games
from arena.config import ROSTER, LlmAgent
from arena.prompts import (
    ANSWER,
    MOVES,
    STRENGTHS,
    move_text,
    persona_text,
    pieces_text,
    prompt_text,
    shown_text,
    start_text,
    system_text,
)

HERON = LlmAgent(name="Heron", strength="club", style="You attack.")


def test_prompt_is_the_layers_in_order_of_sharing() -> None:
    game = games.get_game("janggi")
    rules = game.rules_text() + " Answer with one legal move in this notation and nothing else."
    position = game.position()
    for move in ("a4a5", "e9e9", "e2e2"):
        position.push(move)
    prompt = prompt_text(system_text(game), HERON, None, position)
    assert prompt == (
        f"{rules}\n\nYou are Heron. Strength: club. You attack.\n\nGame: a4a5 e9e9 e2e2"
        f"\n\n{pieces_text(position)}\n\nAnswer:"
    )
    assert prompt == (
        system_text(game)
        + persona_text("Heron", "club", "You attack.")
        + start_text(None)
        + MOVES
        + move_text("a4a5")
        + move_text("e9e9")
        + move_text("e2e2")
        + shown_text(HERON, position)
        + ANSWER
    )


def test_the_next_ply_shares_all_but_what_was_shown_of_the_position() -> None:
    position = games.get_game("chess").position()
    for move in ("e2e4", "e7e5", "g1f3"):
        before = prompt_text("", HERON, None, position).removesuffix(
            shown_text(HERON, position) + ANSWER
        )
        position.push(move)
        assert prompt_text("", HERON, None, position).startswith(before + " ")


def test_an_agent_may_be_shown_the_moves_alone() -> None:
    position = games.get_game("chess").position()
    position.push("e2e4")
    blind = HERON.model_copy(update={"show_pieces": False})
    assert prompt_text("", blind, None, position).endswith("You attack.\n\nGame: e2e4")


def test_pieces_are_shown_cheapest_first_and_the_side_to_move_last() -> None:
    position = games.get_game("chess").position("4k3/8/8/3q4/8/2N5/PP6/R3K3 b - - 0 1")
    assert pieces_text(position) == "White: ke1 pa2 pb2 nc3 ra1\nBlack: Ke8 Qd5"


def test_start_is_named_only_when_it_is_not_the_usual_one() -> None:
    assert start_text(None) == ""
    assert start_text("NBNB-BNBN") == "\n\nStart: NBNB-BNBN"


def test_persona_without_style_has_no_space_at_its_end() -> None:
    assert persona_text("Heron", "club", "") == "\n\nYou are Heron. Strength: club."


def test_roster_uses_known_strengths_weakest_first() -> None:
    order = [STRENGTHS.index(agent.strength) for agent in ROSTER]
    assert order == sorted(order)
    assert len({agent.name for agent in ROSTER}) == len(ROSTER) == 8
