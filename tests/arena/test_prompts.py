import games
from arena.config import ROSTER, LlmAgent
from arena.prompts import (
    MOVES,
    STRENGTHS,
    answer_text,
    legal_moves_text,
    move_text,
    persona_text,
    prompt_text,
    shown_text,
    start_text,
    system_text,
)

HERON = LlmAgent(name="Heron", strength="club", style="You attack.")


def test_prompt_is_the_layers_in_order_of_sharing() -> None:
    game = games.get_game("janggi")
    rules = (
        game.rules_text()
        + " Your legal moves are listed by piece. Before a move may stand what it does: x and what "
        "it takes, + a check, # a win, = a draw, - a loss, ? and which of your pieces it leaves to be taken. Answer "
        "with one legal move in this notation and nothing else."
    )
    position = game.position()
    for move in ("a4a5", "e9e9", "e2e2"):
        position.push(move)
    prompt = prompt_text(HERON, None, position)
    assert prompt == (
        f"{rules}\n\nYou are Heron. Strength: club. You attack.\n\nGame: a4a5 e9e9 e2e2"
        f"\n\nLegal moves:\n{legal_moves_text(position, 'uci')}\n\nAnswer as club:"
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
        + answer_text("club")
    )


def test_the_next_ply_shares_all_but_what_was_shown_of_the_position() -> None:
    position = games.get_game("chess").position()
    for move in ("e2e4", "e7e5", "g1f3"):
        before = prompt_text(HERON, None, position).removesuffix(
            shown_text(HERON, position) + answer_text("club")
        )
        position.push(move)
        assert prompt_text(HERON, None, position).startswith(before + " ")


def test_an_agent_may_be_shown_the_moves_alone() -> None:
    position = games.get_game("chess").position()
    position.push("e2e4")
    blind = HERON.model_copy(update={"show_legal_moves": False})
    text = prompt_text(blind, None, position)
    assert text.endswith("You attack.\n\nGame: e2e4")
    assert text.startswith(system_text(position.game, legal_moves=False))
    assert "listed" not in text


def test_legal_moves_stand_by_piece_after_what_they_do() -> None:
    position = games.get_game("chess").position("6k1/5ppp/8/3q4/8/4N3/5PPP/4K2R w K - 0 1")
    assert legal_moves_text(position, "san") == (
        "K Ke2 Kf1 O-O\nN ?P Nc2 ?N Nc4 ?P Nd1 xq Nxd5 ?P Nf1 ?N Nf5 ?P Ng4\nP f3 f4\nP ?R g3 ?R g4\nR Rf1 Rg1\nP h3 h4"
    )
    position = games.get_game("janggi").position("3k5/9/9/9/4r4/4P4/9/9/5K3/9 b - - 0 1")
    assert legal_moves_text(position, "uci").splitlines()[-1] == (
        "R e6a6 e6b6 e6c6 e6d6 e6e10 xp e6e5 e6e7 e6e8 e6e9 + e6f6 e6g6 e6h6 e6i6"
    )


def test_the_end_that_a_move_brings_is_shown() -> None:
    chess, janggi = games.get_game("chess"), games.get_game("janggi")
    mate = chess.position("6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1")
    assert " # a1a8" in legal_moves_text(mate, "uci")
    stalemate = chess.position("7k/8/6K1/8/8/8/8/5Q2 w - - 0 1")
    assert " = f1f7" in legal_moves_text(stalemate, "uci")
    assert " # f1f8" in legal_moves_text(stalemate, "uci")
    position = janggi.position()
    position.push("e2e2")  # two passes end the game: Han, who moved second, wins by points
    assert " # e9e9" in legal_moves_text(position, "uci")
    position.push("a7a6")
    position.push("e2e2")
    assert " # e9e9" in legal_moves_text(position, "uci")


def test_start_is_named_only_when_it_is_not_the_usual_one() -> None:
    assert start_text(None) == ""
    assert start_text("NBNB-BNBN") == "\n\nStart: NBNB-BNBN"


def test_persona_without_style_has_no_space_at_its_end() -> None:
    assert persona_text("Heron", "club", "") == "\n\nYou are Heron. Strength: club."


def test_roster_uses_known_strengths_weakest_first() -> None:
    order = [STRENGTHS.index(agent.strength) for agent in ROSTER]
    assert order == sorted(order)
    assert len({agent.name for agent in ROSTER}) == len(ROSTER) == 8
