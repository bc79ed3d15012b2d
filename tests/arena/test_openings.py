"""Openings in tournaments: one index for all pairs, both colours, and moves nobody is asked for."""

from pathlib import Path

import pytest

from arena import match
from arena.config import ConfigError, load_config
from arena.pairing import game_specs
from arena.store import Store
from arena.tournament import create_runs, recorded_config
from games import get_game
from tests.arena.fakes import Scripted, game_spec, played


def test_a_pair_plays_one_opening_with_both_colours_and_pairs_follow_one_index() -> None:
    config = load_config(None, {"game": "janggi", "agents": 4, "openings": "balanced", "cycles": 2})
    specs = game_specs(config, 1)
    own = get_game("janggi").openings
    for first, second in zip(specs[::2], specs[1::2], strict=True):
        assert first.agents == second.agents[::-1]
        assert (first.setup, first.opening) == (second.setup, second.opening)
    assert [(s.setup, s.opening) for s in specs[::2]] == [(o.setup, o.moves) for o in own[:12]]


async def test_opening_moves_are_recorded_and_no_agent_is_asked_for_them() -> None:
    spec = game_spec(opening=("e2e4", "c7c5", "g1f3"), max_plies=6)
    agents = (Scripted(), Scripted())
    records, _ = await played(match.play(spec, agents))
    assert [r.choice.uci for r in records[:3]] == list(spec.opening)
    assert [r.notation for r in records[:3]] == ["e4", "c5", "Nf3"]
    assert (agents[0].calls, agents[1].calls) == (1, 2)
    assert [r.elapsed_s is None for r in records] == [True] * 3 + [False] * 3


async def test_a_game_resumed_inside_its_opening_goes_on_with_it() -> None:
    spec = game_spec(opening=("e2e4", "c7c5", "g1f3"), moves=("e2e4",), max_plies=4)
    records, _ = await played(match.play(spec, (Scripted(), Scripted())))
    assert [r.choice.uci for r in records[:2]] == ["c7c5", "g1f3"]


def test_a_recorded_run_keeps_its_openings_when_the_book_is_gone(
    tmp_path: Path, store: Store
) -> None:
    book = tmp_path / "book.pgn"
    book.write_text('[Event "?"]\n[Result "*"]\n\n1. e4 e5 *\n')
    config = load_config(
        None, {"game": "chess", "agents": ["random", "greedy"], "openings": str(book)}
    )
    [run] = create_runs([config], store)
    book.unlink()
    assert recorded_config(run.id, store).game == "chess"
    assert [spec.opening for spec in store.pending_specs(run.id)] == [("e2e4", "e7e5")] * 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"openings": "nowhere.pgn"}, "nowhere.pgn cannot be read"),
        ({"openings": "balanced", "setup": "NBBN-NBBN"}, "not both"),
        ({"openings": "balanced", "opening_plies": 0}, "opening_plies"),
        ({"opening_plies": 3}, "give openings too"),
    ],
)
def test_wrong_openings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, {"game": "janggi", "agents": 2} | settings)
