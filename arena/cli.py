"""The command `arena`. Exit codes: 0 finished, 1 failed, 2 wrong input, 130 interrupted.

What goes wrong is said in one sentence on standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
from rich.console import Console

from arena.config import ConfigError, LlmAgent, TournamentConfig, load_config, resolve_agents
from arena.export import FORMATS, ExportRefused, export_gib, export_pgn
from arena.flags import WHERE, given, tournament_flags
from arena.imports import ImportRefused, import_files
from arena.page import PORT, Page, PortInUse
from arena.runtime import RuntimeStartError, make_runtime
from arena.store import DatabaseError, RunBusy, Store, queries
from arena.tournament import Progress, TournamentFailed, host, recorded_config
from arena.view import print_results, watch_live, watch_plain
from engine import EngineError, ModelLoadError
from engine.files import resolve_model

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130
DATABASE = "runs/arena.db"
CLOSE_S = 1.5  # for the runtime after Ctrl-C; what is left then ends with this process

Command = TypeVar("Command", bound=Callable[..., Any])


class Interrupted(Exception):
    """The user stopped the command; the message says how to go on, if there is a way."""


def main() -> NoReturn:
    """Entry point of the console script."""
    code = run_command(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    if code == INTERRUPTED:
        os._exit(code)  # without waiting for threads that load a model or start Ray
    sys.exit(code)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        cli.main(list(arguments), prog_name="arena", standalone_mode=False)
        return 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        return _fail(WRONG_INPUT, error.format_message())
    except (TournamentFailed, RuntimeStartError, RunBusy) as error:
        return _fail(FAILED, str(error))
    except (
        *(ConfigError, DatabaseError, ExportRefused, ImportRefused),
        *(PortInUse, ModelLoadError),
    ) as error:
        return _fail(WRONG_INPUT, str(error))
    except EngineError as error:
        return _fail(FAILED, str(error))
    except Interrupted as stop:
        return _fail(INTERRUPTED, str(stop))
    except (KeyboardInterrupt, click.Abort):
        return _fail(INTERRUPTED, "Interrupted.")
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _fail(code: int, sentence: str) -> int:
    click.echo(f"arena: {' '.join(sentence.split())}", err=True)
    return code


def hosting_flags(command: Command) -> Command:
    """Flags of the commands that play: database, page and view."""
    for option in (
        click.option("--no-view", is_flag=True, help="Plain lines instead of the live table."),
        click.option("--no-web", is_flag=True, help="Do not serve the page."),
        port_flag,
        host_flag,
        database_flag,
    ):
        command = option(command)
    return command


database_flag = click.option(
    "--database", default=DATABASE, show_default=True, help="Path or URL of the match database."
)
host_flag = click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address that the page listens on."
)
port_flag = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port of the page.  [default: 8000, or the next free one]",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="arena")
def cli() -> None:
    """Language-model agents play chess and janggi against each other, and you watch."""


@cli.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--config", type=click.Path(path_type=Path), help="The same as FILE.")
@tournament_flags()
@hosting_flags
def run(file: Path | None, config: Path | None, **flags: Any) -> None:
    """Play a tournament of FILE (TOML), of flags, or of both.

    Flags override what the file says.
    """
    if file is not None and config is not None:
        raise click.UsageError("The tournament file is given twice; leave out FILE or --config.")
    _play_new([load_config(file or config, given(flags))], flags)


@cli.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@tournament_flags()
@hosting_flags
def batch(files: tuple[Path, ...], **flags: Any) -> None:
    """Play several tournament FILES at once on one shared engine. Flags override every file."""
    _play_new([load_config(file, given(flags)) for file in files], flags)


@cli.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1, type=int)
@tournament_flags(only=WHERE)
@hosting_flags
def resume(run_ids: tuple[int, ...], **flags: Any) -> None:
    """Go on with runs that were stopped (default: the newest)."""
    with Store.open(flags["database"], create=False) as store:
        wanted = list(dict.fromkeys(run_ids)) or [_newest(store, unfinished=True)]
        configs = [recorded_config(run_id, store, given(flags)) for run_id in wanted]
        _host(configs, store, flags, resumed=wanted)


@cli.command()
@database_flag
@host_flag
@port_flag
def serve(database: str, host: str, port: int | None) -> None:
    """Show what is recorded in the browser, until Ctrl-C."""
    Store.open(database, create=False).close()
    page = Page(database, host, port)
    _announce(page, port)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    page.start()
    stop.wait()
    page.stop()


@cli.command()
@click.argument("run_id", metavar="[RUN]", required=False, type=int)
@database_flag
def standings(run_id: int | None, database: str) -> None:
    """Print crosstable and ratings of a run (default: the newest)."""
    with Store.open(database, create=False) as store:
        print_results(_console(), store, _newest(store) if run_id is None else run_id)


@cli.command()
@click.argument("run_id", metavar="[RUN]", required=False, type=int)
@click.option("--game", "number", type=int, help="Only this game, also if it is not finished.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="gib is for janggi, in cp949.  [default: by the name of the file, else pgn]",
)
@database_flag
def export(
    run_id: int | None, number: int | None, output: Path | None, form: str | None, database: str
) -> None:
    """Write the games of a run (default: the newest) as PGN or GIB."""
    if form is None:
        form = "gib" if output is not None and output.suffix.lower() == ".gib" else "pgn"
    with Store.open(database, create=False) as store:
        wanted = _newest(store) if run_id is None else run_id
        buffer = io.BytesIO()
        if form == "gib":
            count = export_gib(store, wanted, buffer, number)
        else:
            text = io.TextIOWrapper(buffer, encoding="utf-8", newline="\n", write_through=True)
            count = export_pgn(store, wanted, text, number)
        if output is None:
            sys.stdout.buffer.write(buffer.getbuffer())
            return
        try:
            output.write_bytes(buffer.getbuffer())
        except OSError as error:
            raise click.UsageError(f"{output} cannot be written: {error.strerror}.") from None
        click.echo(f"{_counted(count, 'game')} in {output}")


@cli.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--name", help="Name of the run.  [default: that of its file]")
@database_flag
def import_(files: tuple[Path, ...], name: str | None, database: str) -> None:
    """Put the games of PGN and GIB FILES into the database.

    They become a run of chess and a run of janggi, with the players as agents, to be replayed in
    the browser and exported. Games that were imported before are left out. What cannot be read is
    reported on standard error, and the rest is imported.
    """
    with Store.open(database) as store:
        done = import_files(store, files, lambda text: click.echo(f"arena: {text}", err=True), name)
    for run_id, game, count, players in done.runs:
        click.echo(
            f"Run {run_id}: {_counted(count, 'game')} of {game}, {_counted(players, 'player')}"
        )
    parts = [f"{_counted(done.read, 'game')} read"]
    for count, what in (
        (done.cut, "of them only in part"),
        (done.known, "already there and left out"),
        (done.skipped, "that could not be read"),
    ):
        parts += [f"{count} {what}"] * bool(count)
    click.echo(", ".join(parts))
    if done.runs:
        flags = {"database": database}
        click.echo(f"To look at them: arena serve{_database_flag(flags)}")
    if not done.read:
        raise ImportRefused("No game could be read: give files in PGN or GIB.")


def _play_new(configs: Sequence[TournamentConfig], flags: dict[str, Any]) -> None:
    for config in configs:
        if any(isinstance(agent, LlmAgent) for agent in resolve_agents(config)):
            resolve_model(config.model_path)  # a wrong path is refused before anything starts
    with Store.open(flags["database"]) as store:
        _host(configs, store, flags)


def _host(
    configs: Sequence[TournamentConfig],
    store: Store,
    flags: dict[str, Any],
    resumed: Sequence[int] = (),
) -> None:
    """Play with page and view, then print the results. Raises Interrupted after Ctrl-C."""
    progress = Progress()
    console = _console()
    page = None
    if not flags["no_web"]:
        page = Page(flags["database"], flags["host"], flags["port"])
        page.start()

    async def show() -> None:
        if console.is_terminal and not flags["no_view"]:
            await watch_live(progress, store, console, page.address if page else "")
        else:
            await watch_plain(progress, console)

    async def session() -> None:
        shown = asyncio.create_task(show())
        closing: float | None = CLOSE_S
        try:
            await host(configs, store, runtime, progress, resumed)
            closing = None
        finally:
            shown.cancel()
            await asyncio.gather(shown, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(runtime.close(), closing)

    interrupts: list[int] = []

    def interrupt(number: int, _: object) -> None:
        interrupts.append(number)  # an exception that meets a destructor or a callback is ignored
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        if page is not None:
            _announce(page, flags["port"])
        runtime = make_runtime(configs)
        finished = asyncio.run(_until_stopped(session(), interrupts))
    except KeyboardInterrupt:  # before the session took the signals over
        finished = False
    except TournamentFailed as error:
        raise TournamentFailed(f"{error} {_how_to_go_on(progress, flags)}") from error
    finally:
        if page is not None:
            page.stop()
    if not finished:
        raise Interrupted(f"Interrupted. {_how_to_go_on(progress, flags)}")
    click.echo(f"To look at the games again: arena serve{_database_flag(flags)}")
    for run in progress.runs:
        print_results(console, store, run.id)


async def _until_stopped(session: Coroutine[Any, Any, None], interrupts: list[int]) -> bool:
    """Whether the session came to its end; Ctrl-C and SIGTERM cancel it, a second one kills.

    `interrupts` came before, and may have been lost on their way.
    """
    task = asyncio.ensure_future(session)

    def stop() -> None:
        if task.cancelling():
            os._exit(INTERRUPTED)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    if interrupts:
        task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return False
    return True


def _how_to_go_on(progress: Progress, flags: dict[str, Any]) -> str:
    if not progress.runs:
        return "No game was started."
    runs = " ".join(str(run.id) for run in progress.runs)
    return f"To go on: arena resume {runs}{_database_flag(flags)}"


def _database_flag(flags: dict[str, Any]) -> str:
    return "" if flags["database"] == DATABASE else f" --database {flags['database']}"


def _announce(page: Page, wanted: int | None) -> None:
    if wanted is None and page.port != PORT:
        click.echo(f"Port {PORT} is in use, so the page has another one.")
    click.echo(f"Watch at {page.address}")
    sys.stdout.flush()


def _newest(store: Store, *, unfinished: bool = False) -> int:
    """The newest run, or the newest that can be resumed. Raises DatabaseError.

    Where all that is unfinished is being played, it is the newest of those: claiming it says by whom.
    """
    runs = queries.runs(store)
    if unfinished:
        resumable = [r for r in runs if r["status"] in ("pending", "interrupted", "failed")]
        runs = resumable or [r for r in runs if r["status"] == "running"]
    if runs:
        return int(runs[0]["id"])
    kind = "unfinished run" if unfinished else "run"
    raise DatabaseError(f"There is no {kind} in {store.name}; `arena run` makes one.")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + "s" * (count != 1)


def _console() -> Console:
    return Console(highlight=False)
