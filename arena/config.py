"""What a tournament is made of: one pydantic model, from a TOML file or flags with the same names.

Nothing here imports torch, Ray or the database, so that a wrong file is refused within a blink.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

import games
from games.openings import load_openings

MAX_AGENTS = 256  # 65,280 games a cycle


class ConfigError(ValueError):
    """A tournament file or a flag is wrong; the message says what to change."""


def bundled_model() -> str:
    """Path of the model `tiny` that the package contains."""
    return str(files("arena") / "models" / "tiny")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _know_every_key(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    raise ValueError(f"unknown key {key!r}; {_nearest(key, cls.model_fields)}")
        return data


class _Agent(_Model):
    name: str = Field(min_length=1, max_length=60)

    @field_validator("name")
    @classmethod
    def _is_one_line(cls, name: str) -> str:
        if not name.isprintable() or name != name.strip():
            raise ValueError("a name is one line of text without spaces at its ends")
        return name


class LlmAgent(_Agent):
    """A language model.

    mode "choose" picks among the legal moves in one pass; "think" writes up to `max_tokens` first; "free"
    writes its move, which is read from the text, and may be asked `retries` times more.
    """

    type: Literal["llm"] = "llm"
    mode: Literal["choose", "think", "free"] = "choose"
    notation: str | None = (
        None  # of the game's; None is UCI, which the bundled model was trained on
    )
    show_position: bool = False  # a FEN and a text board
    show_legal_moves: bool = True  # with what each does; the bundled model needs them
    max_tokens: int = Field(default=128, ge=1)  # of a thought or a free reply
    retries: int = Field(default=2, ge=0)
    scoring: Literal["likelihood", "masked"] = "likelihood"
    strength: Literal["beginner", "novice", "club", "expert", "master"] = "club"
    style: str = Field(default="", max_length=500)
    temperature: float = Field(default=1.0, ge=0, le=10)
    top_p: float = Field(default=1.0, gt=0, le=1)
    min_p: float = Field(default=0.0, ge=0, lt=1)


class RandomAgent(_Agent):
    """Draws a legal move."""

    type: Literal["random"] = "random"


class GreedyAgent(_Agent):
    """Takes the most valuable piece it can, else draws a legal move."""

    type: Literal["greedy"] = "greedy"


class AlphaBetaAgent(_Agent):
    """Searches `depth` plies over material."""

    type: Literal["alphabeta"] = "alphabeta"
    depth: int = Field(default=1, ge=1, le=4)


AgentConfig = Annotated[
    LlmAgent | RandomAgent | GreedyAgent | AlphaBetaAgent, Field(discriminator="type")
]
AGENT_TYPES: dict[str, type[_Agent]] = {
    "llm": LlmAgent,
    "random": RandomAgent,
    "greedy": GreedyAgent,
    "alphabeta": AlphaBetaAgent,
}

ROSTER: tuple[LlmAgent, ...] = tuple(
    LlmAgent(name=name, strength=strength, style=style, temperature=temperature)  # type: ignore[arg-type]
    for name, strength, temperature, style in (
        ("Pebble", "beginner", 1.0, "You move on impulse and trust to luck."),
        ("Sparrow", "novice", 0.9, "You like to give check."),
        ("Badger", "novice", 0.8, "You keep your pieces close together."),
        ("Willow", "club", 0.7, "You avoid trades and wait for mistakes."),
        ("Heron", "club", 0.6, "You bring out every piece before you attack."),
        ("Falcon", "expert", 0.5, "You attack whenever you can."),
        ("Tortoise", "expert", 0.4, "You defend first and count your material."),
        ("Dragon", "master", 0.3, "You look at every capture and every check before you move."),
    )
)
"""The default eight: one model, different personas, temperatures and strengths, weakest first."""


class EngineSettings(_Model):
    """Settings for `engine.EngineConfig`; one that is not given keeps the engine's own default."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None
    max_model_len: int | None = Field(default=None, ge=1)  # tokens
    max_num_seqs: int | None = Field(default=None, ge=1)
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    num_threads: int | None = Field(default=None, ge=1)
    kv_cache_memory: int | None = Field(default=None, ge=1)  # bytes
    kv_cache_dtype: Literal["auto", "int8", "fp8"] | None = None
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    enforce_eager: bool | None = None
    deterministic: bool | None = None
    quantization: Literal["int8", "int8_weight_only", "int4_weight_only"] | None = None

    def given(self) -> dict[str, Any]:
        """The settings to pass to `engine.EngineConfig` by name."""
        return self.model_dump(exclude_none=True)


class TournamentConfig(_Model):
    """A round-robin tournament. `agents` is a list, or how many of the default roster take part."""

    name: str | None = Field(default=None, min_length=1, max_length=200)
    game: str = "janggi"
    rules: str | None = None
    setup: str | None = None
    start_fen: str | None = None
    openings: str | None = (
        None  # "balanced", or a PGN, GIB, EPD or FEN file; each pair plays one with both colours
    )
    opening_plies: int | None = Field(default=None, ge=1)  # of an opening, at most
    agents: Annotated[
        Annotated[int, Tag("count")] | Annotated[tuple[AgentConfig, ...], Tag("list")],
        Discriminator(lambda value: "count" if type(value) is int else "list"),
    ] = 8
    cycles: int = Field(default=1, ge=1)  # in one cycle everybody meets everybody with both colours
    max_plies: int = Field(default=200, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**63)
    concurrency: int = Field(default=32, ge=1)  # games at once
    model: str = Field(default="tiny", min_length=1)
    engine: EngineSettings = EngineSettings()
    runtime: Literal["ray", "local"] = "ray"
    workers: int | None = Field(default=None, ge=1)  # match actors
    ray_address: str | None = None
    move_time_limit: float | None = Field(default=None, gt=0)  # seconds

    @property
    def model_path(self) -> str:
        """What the engine loads: `model`, or the bundled model's path for "tiny"."""
        return bundled_model() if self.model == "tiny" else self.model

    def load_openings(self) -> list[games.Opening]:
        """The openings in their order; the start alone if none were asked for. Raises `GameError`."""
        if self.openings is None:
            return [games.Opening(start_fen=self.start_fen, setup=self.setup)]
        game = games.get_game(self.game)
        return load_openings(game, self.openings, self.rules, self.opening_plies)

    @field_validator("agents", mode="before")
    @classmethod
    def _expand_names(cls, agents: Any) -> Any:
        """Agents given by a bot's type or a roster name; the second of a name is then "NAME 2"."""
        if not isinstance(agents, list | tuple) or not any(isinstance(a, str) for a in agents):
            return agents
        taken = [name for a in agents if (name := _name_of(a))]
        expanded = []
        for agent in agents:
            if isinstance(agent, str):
                named = _by_name(agent)
                agent = named.model_copy(update={"name": _free_name(named.name, taken)})
                taken.append(agent.name)
            expanded.append(agent)
        return expanded

    @field_validator("agents")
    @classmethod
    def _enough_and_distinct(
        cls, agents: int | tuple[AgentConfig, ...]
    ) -> int | tuple[AgentConfig, ...]:
        count = agents if isinstance(agents, int) else len(agents)
        if count < 2:
            raise ValueError(f"a tournament needs at least 2 agents, not {count}")
        if count > MAX_AGENTS:
            raise ValueError(f"{count} agents are too many; {MAX_AGENTS} is the most")
        if not isinstance(agents, int):
            names = [agent.name for agent in agents]
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"two agents are called {name!r}; give each its own name")
        return agents

    @model_validator(mode="after")
    def _start_is_playable(self) -> TournamentConfig:
        start = games.get_game(self.game).position(self.start_fen, self.rules, self.setup)
        if self.openings is not None and (self.start_fen is not None or self.setup is not None):
            raise ValueError("give openings, or a start_fen or setup for all games, not both")
        if self.openings is None and self.opening_plies is not None:
            raise ValueError("opening_plies cuts the lines of openings: give openings too")
        self.load_openings()
        for index, agent in enumerate(() if isinstance(self.agents, int) else self.agents):
            notation = getattr(agent, "notation", None)
            if notation is not None and notation not in start.game.notations:
                known = ", ".join(start.game.notations)
                raise ValueError(f"agents[{index}].notation is {notation!r}; choose one of {known}")
        if outcome := start.outcome():
            raise ValueError(f"the game is already over at start_fen ({outcome.reason})")
        return self


def load_config(
    path: str | Path | None = None, overrides: Mapping[str, Any] | None = None
) -> TournamentConfig:
    """The tournament of a TOML file (none: all defaults), with `overrides` from flags laid over it.

    `overrides` has the names of `TournamentConfig`; an `engine` mapping there is merged key by key.
    Raises `ConfigError`: with file and line for malformed TOML, else with the key and what it may
    be.
    """
    values = {} if path is None else _read_toml(Path(path))
    merged = values | dict(overrides or {})
    settings = values.get("engine"), merged.get("engine")
    if isinstance(settings[0], dict) and isinstance(settings[1], dict):
        merged["engine"] = settings[0] | settings[1]
    try:
        return TournamentConfig.model_validate(merged)
    except ValidationError as error:
        where = "" if path is None else f"{path}: "
        raise ConfigError(where + "; ".join(_sentence(e) for e in error.errors())) from None


def parse_agents(text: str) -> int | list[str]:
    """The value of the flag `--agents`: a number, or bot types and roster names with commas."""
    if re.fullmatch(r"[+-]?\d+", text.strip()):
        return int(text)
    return [part.strip() for part in text.split(",") if part.strip()]


def resolve_agents(config: TournamentConfig) -> list[AgentConfig]:
    """The agents that take part, each with a name of its own."""
    if not isinstance(config.agents, int):
        return list(config.agents)
    agents: list[AgentConfig] = []
    for index in range(config.agents):
        agent = ROSTER[index % len(ROSTER)]
        name = _free_name(agent.name, [a.name for a in agents])
        agents.append(agent.model_copy(update={"name": name}))
    return agents


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # "... (at line 3, column 8)" or "... (at end of document)"
        found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        line = found[1] if found and found[1] else text.count("\n") + 1
        what = str(error)[: found.start()] if found else str(error)
        raise ConfigError(f"{path}, line {line}: not valid TOML: {what}") from None


def _by_name(text: str) -> _Agent:
    if text in AGENT_TYPES and text != "llm":
        return AGENT_TYPES[text](name=text)
    for agent in ROSTER:
        if agent.name.casefold() == text.casefold():
            return agent
    bots = [name for name in AGENT_TYPES if name != "llm"]
    raise ValueError(
        f"there is no agent {text!r}; {_nearest(text, [*bots, *(a.name for a in ROSTER)])}"
    )


def _name_of(agent: Any) -> str | None:
    return agent.get("name") if isinstance(agent, dict) else getattr(agent, "name", None)


def _free_name(name: str, taken: Sequence[str]) -> str:
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name} {count}"
    return candidate


def _nearest(word: str, known: Iterable[str]) -> str:
    """What to write instead of `word`."""
    known = list(known)
    by_folded = {k.casefold(): k for k in known}
    close = difflib.get_close_matches(word.casefold(), by_folded, n=1)
    return (
        f"did you mean {by_folded[close[0]]!r}?" if close else f"choose one of {', '.join(known)}"
    )


_TAGS = {"count", "list", *AGENT_TYPES}  # pydantic puts the branch of a union into the path


def _sentence(error: Any) -> str:
    """One error of pydantic with the path of its key, as `agents[2].temperature: ...`."""
    path = ""
    for part in error["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part not in _TAGS:
            path += f".{part}" if path else part
    match error["type"]:
        case "value_error":
            text = str(error["ctx"]["error"]).rstrip(".")
        case "missing":
            text = "is missing"
        case "union_tag_not_found":
            text = f"has no type; add type = one of {', '.join(AGENT_TYPES)}"
        case "union_tag_invalid":
            text = f"unknown type {error['ctx']['tag']!r}; choose one of {', '.join(AGENT_TYPES)}"
        case "tuple_type":
            text = f"give a number or a list of agents, not {error['input']!r}"
        case _:
            text = f"{error['msg'][:1].lower()}{error['msg'][1:]}, not {error['input']!r}"
    return f"{path}: {text}" if path else text
