"""Opening a database: migrations, and one clear sentence for each database that cannot be used."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from arena.store import DatabaseError, Store, queries
from arena.store.database import VERSION_TABLE
from arena.store.schema import Base
from tests.arena.recorded import new_run

ROOT = Path(__file__).parents[2]


def refusal(url: str, *, create: bool = True) -> str:
    with pytest.raises(DatabaseError) as refused:
        Store.open(url, create=create)
    sentence = str(refused.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def test_migrations_make_the_tables_of_the_schema(url: str) -> None:
    with Store.open(url) as store, store.read() as session:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(session.connection(), opts=options)
        assert compare_metadata(context, Base.metadata) == []


def test_opening_again_keeps_what_is_there(url: str) -> None:
    with Store.open(url) as store:
        new_run(store)
    for create in (True, False):
        with Store.open(url, create=create) as store:
            assert [run["name"] for run in queries.runs(store)] == ["A test"]


def test_many_open_a_new_database_at_once(url: str) -> None:
    failures: list[BaseException] = []

    def open_it() -> None:
        try:
            Store.open(url).close()
        except DatabaseError as error:
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_sqlite_is_in_wal_mode_and_takes_plain_paths(tmp_path: Path) -> None:
    path = tmp_path / "new directory 100%" / "arena.db"
    Store.open(str(path)).close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_newer_schema(url: str) -> None:
    with Store.open(url) as store, store.write() as session:
        session.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    for create in (True, False):
        assert "made by a newer arena (schema 9999)" in refusal(url, create=create)


def test_missing_and_empty_files(tmp_path: Path) -> None:
    path = tmp_path / "arena.db"
    sentence = refusal(str(path), create=False)
    assert sentence == f"There is no database at {path}: `arena run` makes one."
    assert not path.exists()
    path.touch()
    assert refusal(str(path), create=False).endswith("is not an arena database: name another one.")
    Store.open(str(path)).close()


def test_a_directory(tmp_path: Path) -> None:
    assert refusal(str(tmp_path)) == f"{tmp_path} is a directory: name a database file in it."


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sentence = refusal(f"{tmp_path}/file/deep/arena.db")
    assert sentence.startswith(f"Cannot make the directory {tmp_path}/file/deep for the database: ")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "arena.db"
    path.write_bytes(os.urandom(5000))
    for create in (True, False):
        sentence = refusal(str(path), create=create)
        assert sentence == f"{path} is not a database file: name another one."


def test_a_truncated_database(tmp_path: Path) -> None:
    path = tmp_path / "arena.db"
    with Store.open(str(path)) as store:
        new_run(store)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert refusal(str(path)).startswith(f"The database {path} is corrupt")


def test_corruption_that_is_met_later(tmp_path: Path) -> None:
    path = tmp_path / "arena.db"
    with Store.open(str(path)) as store:
        new_run(store)
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xa5" * (len(content) - 8192)  # the schema page stays
    path.write_bytes(content)
    with pytest.raises(DatabaseError, match="corrupt"), Store.open(str(path)) as store:
        queries.runs(store)


def test_the_database_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE runs (id INTEGER)")
    before = path.read_bytes()
    for create in (True, False):
        sentence = refusal(str(path), create=create)
        assert sentence == f"{path} is not an arena database: name another one."
    assert path.read_bytes() == before


def test_the_postgresql_database_of_another_program(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE other (id INTEGER)")
    assert refusal(postgres_url).endswith("is not an arena database: name another one.")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", ":memory:"])
def test_memory(url: str) -> None:
    assert refusal(url) == "The database has to be a file: several processes read it."


def test_other_urls() -> None:
    assert refusal("mysql://localhost/arena").startswith("mysql is not supported: give a path, ")
    assert "is not a database URL" in refusal("postgresql://host:port/name")


def test_postgresql_server_missing() -> None:
    sentence = refusal("postgresql://somebody:secret@127.0.0.1:1/arena")
    assert sentence.startswith("The database postgresql://somebody:***@127.0.0.1:1/arena")
    assert "refused" in sentence


def test_postgresql_database_missing(postgres_server: str) -> None:
    assert '"nowhere" does not exist' in refusal(f"{postgres_server}/nowhere")


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that an unprivileged user can reach (pytest's own is closed to others)."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.mark.parametrize("closed", ["file", "directory", "new file"])
def test_what_cannot_be_written(open_place: Path, closed: str) -> None:
    path = open_place / "arena.db"
    if closed != "new file":
        Store.open(str(path)).close()
    path.parent.chmod(0o555 if closed != "file" else 0o777)
    if closed != "new file":
        path.chmod(0o444 if closed == "file" else 0o666)
    code = (
        "import os, sys\n"
        "from arena.store import DatabaseError, Store\n"
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"  # root may write everywhere
        "try: Store.open(sys.argv[1])\n"
        "except DatabaseError as error: print(error)\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"The database {path} cannot be written: look at the rights of file and directory.\n"
    )
