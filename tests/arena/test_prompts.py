import games
from arena.config import ROSTER
from arena.prompts import STRENGTHS, move_text, persona_text, prompt_text, start_text, system_text


def test_prompt_is_the_layers_in_order_of_sharing() -> None:
    game = games.get_game("janggi")
    rules = game.rules_text() + " Answer with one legal move in this notation and nothing else."
    prompt = prompt_text(system_text(game), "Heron", "club", "You attack.", None, ["a4a5", "e9e9"])
    assert prompt == f"{rules}\n\nYou are Heron. Strength: club. You attack.\n\nGame: a4a5 e9e9"
    assert prompt == (
        system_text(game)
        + persona_text("Heron", "club", "You attack.")
        + start_text(None)
        + move_text("a4a5")
        + move_text("e9e9")
    )


def test_start_is_named_only_when_it_is_not_the_usual_one() -> None:
    assert start_text(None) == "\n\nGame:"
    assert start_text("NBNB-BNBN") == "\n\nStart: NBNB-BNBN\n\nGame:"


def test_persona_without_style_has_no_space_at_its_end() -> None:
    assert persona_text("Heron", "club", "") == "\n\nYou are Heron. Strength: club."


def test_roster_uses_known_strengths_weakest_first() -> None:
    order = [STRENGTHS.index(agent.strength) for agent in ROSTER]
    assert order == sorted(order)
    assert len({agent.name for agent in ROSTER}) == len(ROSTER) == 8
