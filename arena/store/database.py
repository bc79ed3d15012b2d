"""Opens the match database by URL, brings its schema up to date, and hands out transactions.

It knows engines, locks and the sentences for what can go wrong; it does not know what a run or a
game is.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

VERSION_TABLE = "arena_version"
LOCK_WAIT_S = 30  # how long one writer waits for another
_ADVISORY_LOCK = 0x6172656E61  # "arena": PostgreSQL's key for the one who migrates

_migrating = threading.Lock()  # alembic's `context` is a module global


class DatabaseError(Exception):
    """The database cannot be used; the message is one sentence."""


class Database:
    """Transactions on one database. Safe to share between threads; each transaction belongs to one
    thread.
    """

    def __init__(self, url: str, *, create: bool = True) -> None:
        """Open `url` (`sqlite:///path`, a plain path, or `postgresql://...`) and migrate it to the
        newest schema.

        With `create` a missing or empty database is made, and one that cannot be written is
        refused. Raises DatabaseError.
        """
        self._url = _parse(url)
        self.name = (
            self._url.database or ""
            if self._is_sqlite
            else self._url.set(drivername="postgresql").render_as_string(hide_password=True)
        )
        if self._is_sqlite:
            self._check_path(create)
        self._engine = self._make_engine()
        self._reading: sa.Engine = self._engine
        self._writing: sa.Engine = self._engine
        if self._is_sqlite:
            self._writing = self._engine.execution_options(arena_begin="BEGIN IMMEDIATE")
        else:
            self._reading = self._engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        try:
            self._bring_up_to_date(create)
        except BaseException:
            self.close()
            raise

    @property
    def _is_sqlite(self) -> bool:
        return self._url.drivername.startswith("sqlite")

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A read transaction: everything read in it is of one moment."""
        with self._sentences(), Session(self._reading) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A write transaction: committed at the end of the block, rolled back when it raises."""
        with self._sentences(), Session(self._writing) as session, session.begin():
            yield session

    def close(self) -> None:
        self._engine.dispose()

    def _make_engine(self) -> sa.Engine:
        options = {"timeout": LOCK_WAIT_S} if self._is_sqlite else {"connect_timeout": 10}
        try:
            engine = sa.create_engine(
                self._url,
                connect_args=options,
                json_serializer=json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode,
                pool_pre_ping=not self._is_sqlite,
            )
        except ImportError as error:
            raise DatabaseError(
                "PostgreSQL needs psycopg: install it with `pip install 'arena[postgres]'`."
            ) from error
        if self._is_sqlite:
            sa.event.listen(engine, "connect", _on_sqlite_connect)
            sa.event.listen(engine, "begin", _on_sqlite_begin)
        return engine

    def _check_path(self, create: bool) -> None:
        path = Path(self.name)
        if path.is_dir():
            raise DatabaseError(f"{self.name} is a directory: name a database file in it.")
        if path.exists():
            # SQLite would open a file of others for reading, and fail only at the first write.
            if create and not os.access(path, os.W_OK):
                raise DatabaseError(_sentence(self.name, "readonly"))
            return
        if not create:
            raise DatabaseError(f"There is no database at {self.name}: `arena run` makes one.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DatabaseError(
                f"Cannot make the directory {path.parent} for the database: {error.strerror}."
            ) from error

    def _bring_up_to_date(self, create: bool) -> None:
        script = ScriptDirectory(str(Path(__file__).parent / "migrations"))
        with self.read() as session:
            up_to_date = self._revision(session, script, create) == script.get_current_head()
        if up_to_date and not create:
            return
        with _migrating, self.write() as session:
            # Two processes may open a new database at once: look again, now with the lock.
            if not self._is_sqlite:
                session.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            if self._revision(session, script, create) != script.get_current_head():
                config = Config()
                config.set_main_option("script_location", script.dir.replace("%", "%%"))
                config.attributes["connection"] = session.connection()
                config.attributes["version_table"] = VERSION_TABLE
                command.upgrade(config, "head")
        if self._is_sqlite:
            with self._sentences(), self._engine.connect() as connection:
                raw = connection.connection.driver_connection
                assert raw is not None
                # The file keeps it; it is not allowed in a transaction.
                raw.execute("PRAGMA journal_mode=WAL")

    def _revision(self, session: Session, script: ScriptDirectory, create: bool) -> str | None:
        """The schema revision that the database has; None for an empty one."""
        tables = sa.inspect(session.connection()).get_table_names()
        if VERSION_TABLE in tables:
            revision = session.scalar(
                sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE))
            )
            if revision not in {r.revision for r in script.walk_revisions()}:
                raise DatabaseError(
                    f"{self.name} was made by a newer arena (schema {revision}): upgrade this one."
                )
            return str(revision)
        if tables or not create:
            raise DatabaseError(f"{self.name} is not an arena database: name another one.")
        return None

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """Turn the drivers' errors into DatabaseError with one sentence."""
        try:
            yield
        except SQLAlchemyError as error:
            cause = str(getattr(error, "orig", None) or error).strip().splitlines()[0].rstrip(".")
            raise DatabaseError(_sentence(self.name, cause)) from error


def _sentence(name: str, cause: str) -> str:
    if "file is not a database" in cause:
        return f"{name} is not a database file: name another one."
    if "malformed" in cause:
        return f"The database {name} is corrupt ({cause}): restore a copy or name another file."
    if "readonly" in cause or "unable to open" in cause:
        return f"The database {name} cannot be written: look at the rights of file and directory."
    if "is locked" in cause:
        return f"The database {name} was locked by another process for more than {LOCK_WAIT_S} s."
    return f"The database {name} failed: {cause}."


def _parse(url: str) -> sa.URL:
    if "://" not in url:
        url = f"sqlite:///{url}"
    try:
        parsed = sa.make_url(url)
    except (SQLAlchemyError, ValueError) as error:
        raise DatabaseError(
            f"{url} is not a database URL: give a path, sqlite:///path or postgresql://..."
        ) from error
    kind = parsed.get_backend_name()
    if kind in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if kind != "sqlite":
        raise DatabaseError(
            f"{kind} is not supported: give a path, sqlite:///path or postgresql://..."
        )
    if parsed.database in (None, "", ":memory:"):
        raise DatabaseError("The database has to be a file: several processes read it.")
    return parsed.set(drivername="sqlite+pysqlite")


def _on_sqlite_connect(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where `_on_sqlite_begin` says
    connection.execute("PRAGMA foreign_keys=ON")
    # With WAL a killed process loses nothing; a power cut may lose the last commits, no more.
    connection.execute("PRAGMA synchronous=NORMAL")


def _on_sqlite_begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("arena_begin", "BEGIN"))
