import json
import re
from pathlib import Path
from typing import Any

import pytest

from arena.config import (
    ROSTER,
    ConfigError,
    LlmAgent,
    TournamentConfig,
    bundled_model,
    load_config,
    parse_agents,
    resolve_agents,
)

BOT = {"type": "random", "name": "Dice"}


def names(values: dict[str, Any]) -> list[str]:
    return [agent.name for agent in resolve_agents(load_config(None, values))]


def test_file_and_flags_have_the_same_names(tmp_path: Path) -> None:
    path = tmp_path / "cup.toml"
    path.write_text(
        """
        name = "Winter cup"
        game = "chess"
        seed = 3
        max_plies = 120

        [engine]
        num_threads = 1
        dtype = "float32"

        [[agents]]
        type = "llm"
        name = "Rook lifter"
        strength = "expert"

        [[agents]]
        type = "alphabeta"
        name = "Searcher"
        depth = 2
        """
    )
    config = load_config(path, {"seed": 4, "engine": {"num_threads": 2}})
    assert (config.name, config.game, config.seed, config.max_plies) == (
        "Winter cup",
        "chess",
        4,
        120,
    )
    assert config.engine.given() == {"num_threads": 2, "dtype": "float32"}
    rook, searcher = resolve_agents(config)
    assert isinstance(rook, LlmAgent)
    assert (rook.strength, rook.temperature) == ("expert", 1.0)
    assert searcher.type == "alphabeta"


@pytest.mark.parametrize(
    "values",
    [{}, {"agents": 3, "engine": {"num_threads": 1}}, {"agents": ["greedy", BOT, "Dragon"]}],
)
def test_config_survives_json(values: dict[str, Any]) -> None:
    config = load_config(None, values)
    assert TournamentConfig.model_validate(json.loads(config.model_dump_json())) == config


def test_bundled_model_is_the_default() -> None:
    assert load_config().model_path == bundled_model()
    assert load_config(None, {"model": "some/dir"}).model_path == "some/dir"


def test_number_of_agents_takes_the_roster_and_then_repeats_it() -> None:
    assert names({}) == [agent.name for agent in ROSTER]
    assert names({"agents": 2}) == ["Pebble", "Sparrow"]
    many = names({"agents": 20})
    assert many[8:10] == ["Pebble 2", "Sparrow 2"]
    assert many[16:] == ["Pebble 3", "Sparrow 3", "Badger 3", "Willow 3"]


def test_agents_by_name() -> None:
    assert parse_agents("8") == 8
    assert parse_agents("-1") == -1
    assert parse_agents(" random, Dragon,") == ["random", "Dragon"]
    assert names({"agents": parse_agents("random,greedy,alphabeta,dragon,random,Dragon")}) == [
        "random",
        "greedy",
        "alphabeta",
        "Dragon",
        "random 2",
        "Dragon 2",
    ]
    assert names({"agents": ["random", {"type": "greedy", "name": "random"}]}) == [
        "random 2",
        "random",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("game = 'chess'\nseed = = 3\n", 2),
        ("game = 'chess'\nagents = [\n  'random',\n", 4),
        ("seed = 1\n\n\nseed = 2", 4),
        ('game = "chess\nseed = 2', 1),
    ],
)
def test_malformed_toml_names_file_and_line(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "cup.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(f"cup.toml, line {line}: not valid TOML: ")):
        load_config(path)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read \(No such file"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)
    latin = tmp_path / "latin.toml"
    latin.write_bytes("name = 'Größe'".encode("latin-1"))
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(latin)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"game": "shogi"}, "There is no game 'shogi'; choose one of chess, janggi"),
        ({"rules": "casual"}, "has no rule set 'casual'; choose one of janggi, janggitraditional"),
        (
            {"setup": "left"},
            "has no setup 'left'; give Cho's and Han's arrangement, such as NBBN-BNNB or 마상",
        ),
        ({"game": "chess", "setup": "NBBN-NBBN"}, "has no setup"),
        ({"start_fen": "x"}, "Cannot read the janggi FEN 'x'"),
        ({"setup": "NBBN-NBBN", "start_fen": "4k4/9/9/9/9/9/9/9/9/4K4 w"}, "not both"),
        (
            {"game": "chess", "start_fen": "7k/6Q1/6K1/8/8/8/8/8 b - - 0 1"},
            "already over at start_fen (checkmate)",
        ),
        ({"agents": 0}, "agents: a tournament needs at least 2 agents, not 0"),
        ({"agents": []}, "at least 2 agents, not 0"),
        ({"agents": [BOT]}, "at least 2 agents, not 1"),
        ({"agents": 1000}, "1000 agents are too many; 256 is the most"),
        ({"agents": True}, "agents: give a number or a list of agents, not True"),
        ({"agents": "random"}, "agents: give a number or a list of agents, not 'random'"),
        ({"agents": [BOT, BOT]}, "two agents are called 'Dice'"),
        ({"agents": ["random", "drago"]}, "there is no agent 'drago'; did you mean 'Dragon'?"),
        ({"agents": ["random", "llm"]}, "there is no agent 'llm'; "),
        (
            {"agents": [BOT, {"type": "mcts", "name": "M"}]},
            "agents[1]: unknown type 'mcts'; choose one",
        ),
        ({"agents": [BOT, {"name": "M"}]}, "agents[1]: has no type; add type = one of llm, random"),
        ({"agents": [BOT, {"type": "llm"}]}, "agents[1].name: is missing"),
        (
            {"agents": [BOT, {"type": "alphabeta", "name": "S", "depth": 9}]},
            "agents[1].depth: input should be less than or equal to 4, not 9",
        ),
        (
            {"agents": [BOT, {"type": "llm", "name": "S", "temprature": 1}]},
            "agents[1]: unknown key 'temprature'; did you mean 'temperature'?",
        ),
        ({"agent": 8}, "unknown key 'agent'; did you mean 'agents'?"),
        ({"engine": {"dtpye": "auto"}}, "engine: unknown key 'dtpye'; did you mean 'dtype'?"),
        ({"engine": {"zzz": 1}}, "engine: unknown key 'zzz'; choose one of dtype, max_model_len"),
        ({"engine": {"dtype": "int3"}}, "engine.dtype: input should be 'auto', 'float32'"),
        ({"engine": 3}, "engine: "),
        (
            {"cycles": 0, "seed": "x"},
            "cycles: input should be greater than or equal to 1, not 0; seed:",
        ),
        ({"agents": [BOT, BOT | {"name": "a\nb"}]}, "agents[1].name: a name is one line of text"),
        ({"agents": [BOT, BOT | {"name": " "}]}, "agents[1].name: a name is one line of text"),
        ({"seed": -1}, "seed: input should be greater than or equal to 0, not -1"),
        ({"move_time_limit": float("inf")}, "move_time_limit: input should be a finite number"),
        ({"move_time_limit": 0}, "move_time_limit: input should be greater than 0"),
        ({"runtime": "dask"}, "runtime: input should be 'ray' or 'local', not 'dask'"),
    ],
)
def test_wrong_values_get_a_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_message_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cup.toml"
    path.write_text("agents = 1")
    with pytest.raises(ConfigError, match=r"cup\.toml: agents: a tournament needs"):
        load_config(path)
