"""The pages in a real browser, while a tournament goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

import games
from arena.imports import import_files
from arena.store import Store
from arena.types import Termination
from tests.web.conftest import PATIENCE_S, Served
from tests.web.played import PlayedRun
from web.build import build

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# The pieces as drawn: {square: FEN letter}, read back from where each node is going to.
DRAWN = """
([selector, files, ranks]) => {
  const found = {};
  for (const piece of document.querySelectorAll(selector + ' .piece')) {
    const [x, y] = piece.style.transform.match(/-?[\\d.]+/g).map(Number);
    found['abcdefghi'[Math.floor(x / 100)] + (ranks - Math.floor(y / 100))] = true;
  }
  return Object.keys(found).sort();
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    build()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in which no script fails."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    expect.set_options(timeout=PATIENCE_S * 1000)
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    yield page
    context.close()
    assert failures == []


def card(number: int) -> str:
    return f'[data-game="{number}"]'


def expect_position(page: Page, selector: str, run: PlayedRun, number: int) -> None:
    """Wait until the board shows the game's position."""
    position = run.positions[number]
    squares = sorted(position.pieces())
    page.wait_for_function(
        f"([args, squares]) => JSON.stringify(({DRAWN})(args)) === JSON.stringify(squares)",
        arg=[[selector, position.game.files, position.game.ranks], squares],
    )


def test_boards_move_and_after_a_restart_catch_up_without_a_reload(
    page: Page, served: Served, run: PlayedRun
) -> None:
    page.goto(f"{served.url}/runs/{run.id}")
    expect(page.locator(".board-card")).to_have_count(6)
    expect(page.locator(".link")).to_have_text("Live")
    page.evaluate("window.sameDocument = true")
    for number in (2, 3):
        run.move(number)
        expect_position(page, card(number), run, number)
    expect(page.locator(f"{card(2)} .foot")).to_contain_text("6 moves")

    served.stop()
    expect(page.locator(".link")).to_have_text("Reconnecting")
    for _ in range(4):
        run.move(2)
    run.start(4)
    run.move(4)
    run.finish(3)
    served.start()

    expect(page.locator(".link")).to_have_text("Live")
    expect_position(page, card(2), run, 2)
    expect_position(page, card(4), run, 4)
    expect(page.locator(f"{card(3)}.finished")).to_be_visible()
    run.move(2)
    expect_position(page, card(2), run, 2)
    assert page.evaluate("window.sameDocument") is True


def test_games_being_played_come_first_and_move_on_when_they_end(
    page: Page, served: Served, run: PlayedRun
) -> None:
    page.goto(f"{served.url}/runs/{run.id}")
    numbers = "cards => cards.map(card => Number(card.dataset.game))"
    cards = page.locator(".board-card")
    expect(cards).to_have_count(6)
    assert cards.evaluate_all(numbers) == [2, 3, 1, 4, 5, 6]
    run.finish(2)
    expect(page.locator(f"{card(2)}.finished")).to_be_visible()
    assert cards.evaluate_all(numbers) == [3, 1, 2, 4, 5, 6]
    expect(page.locator(".mini li b").first).to_have_text("1")
    run.end("interrupted")
    expect(page.locator(".chip").first).to_have_text("Interrupted")


def test_a_voided_game_is_shown_from_its_start_again(
    page: Page, served: Served, run: PlayedRun
) -> None:
    page.goto(f"{served.url}/runs/{run.id}/games/2")
    expect(page.locator(".moves [data-ply='4']")).to_be_visible()
    run.finish(2, Termination.INFRASTRUCTURE)
    expect(page.locator(".moves [data-ply='0']")).to_have_count(0)
    run.start(2)
    uci = run.move(2)
    expect(page.locator(".moves [data-ply='0']")).to_contain_text(uci)
    expect_position(page, ".game", run, 2)

    run.finish(2, Termination.INFRASTRUCTURE)
    run.start(2)
    run.play(2, 8)  # at once longer than what was known
    expect(page.locator(".moves [data-ply='7']")).to_be_visible()
    expect_position(page, ".game", run, 2)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".odds h2")).to_contain_text(run.positions[2].moves()[0])


def test_only_the_board_whose_game_changed_is_touched(
    page: Page, served: Served, run: PlayedRun
) -> None:
    page.goto(f"{served.url}/runs/{run.id}")
    expect(page.locator(".board-card")).to_have_count(6)
    expect(page.locator(".link")).to_have_text("Live")
    page.evaluate("""() => {
      window.touched = new Set();
      window.added = 0;
      const observer = new MutationObserver(changes => changes.forEach(change => {
        window.touched.add(change.target.closest('[data-game]')?.dataset.game);
        window.added += [...change.addedNodes].filter(node => node.matches?.('.piece')).length;
      }));
      for (const board of document.querySelectorAll('.board')) {
        observer.observe(board, { subtree: true, childList: true, attributes: true });
      }
    }""")
    run.move(3)
    expect_position(page, card(3), run, 3)
    assert page.evaluate("[...window.touched]") == ["3"]
    assert page.evaluate("window.added") == 0  # the piece that moved kept its node


def test_a_refused_stream_is_opened_again(page: Page, served: Served, run: PlayedRun) -> None:
    refused: list[str] = []

    def refuse_twice(route: Route) -> None:
        if len(refused) < 2:
            refused.append(route.request.url)
            route.fulfill(status=503, json={"error": "The database is locked."})
        else:
            route.continue_()

    page.route("**/events?*", refuse_twice)
    page.goto(f"{served.url}/runs/{run.id}")
    expect(page.locator(".link")).to_have_text("Live")
    assert len(refused) == 2
    run.move(2)
    expect_position(page, card(2), run, 2)


def test_the_follower_follows_and_the_reader_stays(
    page: Page, served: Served, run: PlayedRun
) -> None:
    page.goto(f"{served.url}/runs/{run.id}/games/2")
    current = page.locator(".moves [aria-current]")
    expect(current).to_have_attribute("data-ply", "4")
    run.move(2)
    expect(current).to_have_attribute("data-ply", "5")
    expect_position(page, ".game", run, 2)
    expect(page.locator("[aria-live]")).to_contain_text("plays")

    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(current).to_have_attribute("data-ply", "3")
    run.move(2)
    expect(page.locator(".moves [data-ply='6']")).to_be_visible()
    expect(current).to_have_attribute("data-ply", "3")

    page.get_by_role("button", name="Follow the game").click()
    expect(current).to_have_attribute("data-ply", "6")
    page.keyboard.press("Home")
    expect(current).to_have_attribute("data-ply", "-1")
    page.locator(".moves [data-ply='2']").click()
    expect(current).to_have_attribute("data-ply", "2")
    page.keyboard.press("End")
    expect_position(page, ".game", run, 2)
    expect(page.get_by_text("Following")).to_be_visible()


def test_a_game_shows_its_own_moves_only(page: Page, served: Served, run: PlayedRun) -> None:
    page.goto(f"{served.url}/runs/{run.id}/games/2")
    expect(page.locator(".moves [data-ply='4']")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    page.get_by_role("link", name="Next game").click()
    expect(page.locator(".moves [aria-current]")).to_have_attribute("data-ply", "3")
    expect_position(page, ".game", run, 3)
    page.go_back()
    expect(page.locator(".moves [aria-current]")).to_have_attribute("data-ply", "4")
    expect_position(page, ".game", run, 2)


def test_a_move_shows_its_probabilities_and_times(
    page: Page, served: Served, run: PlayedRun
) -> None:
    uci = run.move(2)
    page.goto(f"{served.url}/runs/{run.id}/games/2")
    played = page.locator(".bars .played")
    expect(played).to_contain_text(uci)
    page.get_by_role("button", name="Show all").click()
    run.positions[2].pop()
    expect(page.locator(".bars li")).to_have_count(len(run.positions[2].legal_moves()))
    run.positions[2].push(uci)
    expect(page.locator(".facts")).to_contain_text("Legal mass")
    expect(page.locator(".facts")).to_contain_text("queue 4 ms")


def test_last_move_and_pass_are_marked_by_shape(page: Page, served: Served, run: PlayedRun) -> None:
    page.goto(f"{served.url}/runs/{run.id}/games/2")
    expect(page.locator(".last .from")).to_have_count(1)
    expect(page.locator(".last .to")).to_have_count(1)
    side = run.positions[2].turn
    pieces = run.positions[2].pieces()
    general = next(square for square, letter in pieces.items() if letter == "Kk"[side])
    run.move(2, general + general)
    expect(page.locator(".last .pass")).to_have_count(1)
    expect(page.locator(".last .pass-label")).to_have_text("pass")
    expect(page.locator(".moves [aria-current]")).to_contain_text("pass")


def test_janggi_counts_points(page: Page, served: Served, run: PlayedRun) -> None:
    page.goto(f"{served.url}/runs/{run.id}/games/3")
    page.keyboard.press("Home")
    expect(page.locator(".count")).to_have_text(["73.5 points", "72 points"])


def test_the_board_can_be_turned_and_read_as_text(
    page: Page, served: Served, run: PlayedRun
) -> None:
    page.goto(f"{served.url}/runs/{run.id}/games/2")
    first = page.locator(".coordinates text").first
    before = first.bounding_box()
    assert before
    page.keyboard.press("f")
    page.wait_for_function(
        "before => document.querySelector('.coordinates text').getBoundingClientRect().x > before",
        arg=before["x"] + 50,
    )
    page.get_by_text("Text board").click()
    expect(page.locator(".text-board pre")).to_have_text(run.positions[2].ascii())
    expect(page.get_by_role("img", name="after 5 moves")).to_be_visible()


def test_text_of_models_and_agents_stays_text(
    page: Page, played: Callable[..., PlayedRun], served: Served
) -> None:
    evil = "<img src=x onerror='window.owned=1'>"
    agents = [{"type": "random", "name": evil}, {"type": "greedy", "name": "B"}]
    run = played(game="chess", agents=agents)
    run.start(1)
    run.move(1, thoughts=f"{evil} & <b>bold</b>")
    page.goto(f"{served.url}/runs/{run.id}/games/1")
    expect(page.locator(".thoughts")).to_have_text(f"{evil} & <b>bold</b>")
    expect(page.locator("h1")).to_contain_text(evil)
    assert page.evaluate("window.owned") is None


def test_a_record_shows_its_comments_and_leaves_blank_what_it_does_not_tell(
    page: Page, served: Served, tmp_path: Path
) -> None:
    record = tmp_path / "record.pgn"
    record.write_text(
        '[White "Ann"]\n[Black "Bo"]\n[Result "1-0"]\n\n1. e4 {<i>quick</i> & sound} e5 1-0\n'
    )
    with Store.open(str(tmp_path / "arena.db")) as store:
        [(run_id, _, _, _)] = import_files(store, [record], print).runs
    page.goto(f"{served.url}/runs/{run_id}")
    expect(page.locator(".chip").first).to_have_text("Imported")
    expect(page.locator(".head p")).to_have_text("Chess · 2 players · 1 game")
    page.goto(f"{served.url}/runs/{run_id}/games/1")
    expect(page.locator(".head p")).to_have_text("Ann wins · as recorded")
    expect(page.locator(".moves [data-ply='1']")).to_have_text("e5")
    expect(page.locator(".clock, .times, .facts, .bars")).to_have_count(0)
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".odds h3")).to_have_text("Comment")
    expect(page.locator(".thoughts")).to_have_text("<i>quick</i> & sound")


def test_a_move_of_the_opening_has_no_figures(
    page: Page, played: Callable[..., PlayedRun], served: Served
) -> None:
    run = played(game="janggi", agents=["random", "greedy"], openings="balanced")
    run.start(1)
    run.open(1)
    run.move(1)
    page.goto(f"{served.url}/runs/{run.id}/games/1")
    current = page.locator(".moves [aria-current]")
    expect(current).to_have_attribute("data-ply", str(len(run.specs[1].opening)))
    expect(current.locator("small")).to_contain_text("s")
    page.keyboard.press("ArrowLeft")
    expect(current.locator("small")).to_have_text("")
    expect(page.locator(".odds")).to_contain_text("nobody was asked")
    expect(page.locator(".odds .facts")).to_have_count(0)


def test_a_game_from_another_package_shows_stones_turn_and_last_move(
    page: Page,
    played: Callable[..., PlayedRun],
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = EntryPoint("connect4", "tests.games.connect_four:GAME", games.ENTRY_POINTS)
    monkeypatch.setattr(games, "entry_points", lambda **_: [entry])
    run = played(game="connect4", agents=["random", "greedy"])
    run.start(1)
    run.move(1, "d1")
    page.goto(served.url)
    expect(page.locator(".run p").first).to_contain_text("Connect four")
    page.goto(f"{served.url}/runs/{run.id}/games/1")
    expect(page.locator(".head p")).to_have_text("Round 1 · Yellow to move")
    expect(page.locator(".to-move .persona")).to_contain_text("Yellow")
    run.move(1, "d2")
    expect(page.locator(".piece")).to_have_count(2)
    expect(page.locator(".last .to")).to_have_count(1)
    expect(page.locator(".last .from")).to_have_count(0)
    colour = "stone => getComputedStyle(stone).fill"
    stones = page.locator(".piece .stone")
    assert [stone.evaluate(colour) for stone in stones.all()] == [
        "rgb(255, 0, 0)",
        "rgb(255, 255, 0)",
    ]
    expect(page.locator(".head p")).to_have_text("Round 1 · Red to move")


def test_a_reply_without_a_move_is_told_in_its_own_words(
    page: Page, served: Served, run: PlayedRun
) -> None:
    run.finish(2, Termination.NO_MOVE, "no legal move in one reply; the last was empty: ''")
    page.goto(f"{served.url}/runs/{run.id}")
    expect(page.locator(f"{card(2)} .foot")).to_contain_text("no readable move")
    page.goto(f"{served.url}/runs/{run.id}/games/2")
    expect(page.locator(".head p")).to_contain_text(
        " · no legal move in one reply; the last was empty: ''"
    )


def test_wrong_addresses_say_so_until_they_are_right(
    page: Page, played: Callable[..., PlayedRun], served: Served
) -> None:
    page.goto(f"{served.url}/runs/2")
    expect(page.locator(".notice")).to_contain_text("There is no run 2 in the database.")
    played(game="chess", agents=2)
    expect(page.locator(".board-card")).to_have_count(2)
    page.goto(f"{served.url}/runs/1/games/77")
    expect(page.locator(".notice")).to_contain_text("Run 1 has no game 77.")
    page.goto(f"{served.url}/elsewhere")
    expect(page.locator(".notice")).to_contain_text("There is no such page.")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("game", ["janggi", "chess"])
def test_no_page_scrolls_sideways(
    page: Page, played: Callable[..., PlayedRun], served: Served, game: str, width: int
) -> None:
    run = played(game=game, agents=8)
    run.start(1, 2, 3)
    for number in (1, 2, 3):
        run.play(number, 12)
    run.finish(1)
    run.sample()
    page.set_viewport_size({"width": width, "height": 844})
    addresses: list[tuple[str, Any]] = [
        ("/", ".run"),
        (f"/runs/{run.id}", ".board-card"),
        (f"/runs/{run.id}/standings", ".cross"),
        (f"/runs/{run.id}/engine", "canvas"),
        (f"/runs/{run.id}/games/2", ".bars"),
    ]
    for address, shows in addresses:
        page.goto(served.url + address)
        expect(page.locator(shows).first).to_be_visible()
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, address


def test_the_front_page_shows_new_runs_by_itself(
    page: Page, played: Callable[..., PlayedRun], served: Served
) -> None:
    page.goto(served.url)
    expect(page.locator(".run")).to_have_count(1)
    played(game="chess", agents=2, name="A second cup")
    expect(page.locator(".run h2").first).to_have_text("A second cup")
    page.locator(".run").first.click()
    expect(page.locator("h1")).to_have_text("A second cup")
    expect(page.locator(".board-card")).to_have_count(2)
    assert Path(page.url).name.isdigit()
