"""Flags of the command line that are made from the fields of `TournamentConfig`, with their names.

A flag that is not given is None, so that what the file says stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

import click

from arena.config import EngineSettings, TournamentConfig, parse_agents

Command = TypeVar("Command", bound=Callable[..., Any])

WHERE = ("concurrency", "model", "runtime", "workers", "ray_address")
"""Fields that say where and how fast games run; what games are played does not depend on them."""

_HELP = {
    "name": "Title of the tournament.",
    "game": "Game to play.",
    "rules": "Rule set of the game.",
    "setup": "Start setup of the game.",
    "start_fen": "Start position.",
    "openings": "balanced, or a PGN, GIB, EPD or FEN file; each pair plays one with both colours.",
    "opening_plies": "Plies of an opening, at most.",
    "agents": "How many of the roster, or names with commas between: random,greedy,Dragon.",
    "cycles": "How often everybody meets everybody, with both colours.",
    "max_plies": "A game that is longer is adjudicated.",
    "seed": "Decides every draw of the tournament.",
    "concurrency": "Games at once.",
    "model": "Model directory, GGUF file or Hugging Face id; tiny is the bundled one.",
    "runtime": "Ray actors, or everything in one process.",
    "workers": "Processes that play games.",
    "ray_address": "Ray cluster to join.",
    "move_time_limit": "Seconds for a move; who takes longer loses.",
    "engine.dtype": "Number format of the weights.",
    "engine.max_model_len": "Tokens of a prompt and its answer.",
    "engine.max_num_seqs": "Requests that are worked on at once.",
    "engine.max_num_batched_tokens": "Rows of one step over all requests.",
    "engine.num_threads": "Threads of the engine on CPU.",
    "engine.kv_cache_memory": "Bytes for cached keys and values.",
    "engine.kv_cache_dtype": "Their number format; int8 and fp8 hold nearly twice the tokens of bfloat16.",
    "engine.gpu_memory_utilization": "Share of a GPU's memory for weights and cache.",
    "engine.enforce_eager": "No CUDA graphs: less memory, slower.",
    "engine.deterministic": "The same answers in any batch and after resuming, a little slower.",
    "engine.quantization": "Number format of weights and activations, if smaller than dtype.",
}


def tournament_flags(only: Collection[str] | None = None) -> Callable[[Command], Command]:
    """Decorator: a flag for each field (or for those in `only`); nested ones as --engine-NAME."""

    def decorate(command: Command) -> Command:
        for name, annotation, default in reversed(_fields()):
            if only is None or name in only:
                shown = "" if default is None else f"  [default: {default}]"
                flag = "--" + name.replace(".", "-").replace("_", "-")
                option = click.option(
                    flag, _variable(name), type=_type(name, annotation), help=_HELP[name] + shown
                )
                command = option(command)
        return command

    return decorate


def given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that were given, as overrides for `load_config`.

    Raises ConfigError for a wrong --agents.
    """
    values: dict[str, Any] = {}
    for name, _, _ in _fields():
        value = flags.get(_variable(name))
        if value is None:
            continue
        if name == "agents":
            value = parse_agents(value)
        group, _, field = name.rpartition(".")
        (values.setdefault(group, {}) if group else values)[field] = value
    return values


def _fields() -> list[tuple[str, Any, Any]]:
    """(name, annotation, default) of every setting; nested ones as "engine.dtype"."""
    fields: list[tuple[str, Any, Any]] = []
    for name, field in TournamentConfig.model_fields.items():
        if field.annotation is EngineSettings:
            fields += [
                (f"{name}.{inner}", f.annotation, f.default)
                for inner, f in EngineSettings.model_fields.items()
            ]
        else:
            fields.append((name, field.annotation, field.default))
    return fields


def _variable(name: str) -> str:
    return name.replace(".", "_")


def _type(name: str, annotation: Any) -> click.ParamType[Any]:
    if name == "agents":
        return click.STRING
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    kind = kinds[0] if NoneType in get_args(annotation) else annotation
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    types: dict[Any, click.ParamType[Any]] = {
        int: click.INT,
        float: click.FLOAT,
        str: click.STRING,
        bool: click.BOOL,
    }
    return types[kind]
