"""Both databases for the tests: a SQLite file, and a throwaway PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from arena.store import Store


def _postgres_binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a PostgreSQL server that ends with the tests, without a database name."""
    binaries = _postgres_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed")
    # PostgreSQL refuses to run as root.
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    home = Path(tempfile.mkdtemp(prefix="arena-postgres-"))
    if as_user:
        shutil.chown(home, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = str(home / "data")
    control = [*as_user, str(binaries / "pg_ctl"), "-D", data]
    options = f"-p {port} -k {home} -c listen_addresses=127.0.0.1 -c fsync=off"
    try:
        initdb = [
            str(binaries / "initdb"),
            "-D",
            data,
            "-A",
            "trust",
            "-U",
            "postgres",
            "-E",
            "UTF8",
        ]
        subprocess.run([*as_user, *initdb], check=True, capture_output=True, cwd=home)
        start = [*control, "-w", "-l", str(home / "log"), "-o", options, "start"]
        subprocess.run(start, check=True, cwd=home, stdout=subprocess.DEVNULL)
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True)
    finally:
        shutil.rmtree(home)


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """URL of an empty PostgreSQL database."""
    url = f"{postgres_server}/postgres"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = 'postgres' AND pid <> pg_backend_pid()"
        )
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a database that does not exist yet (SQLite) or is empty (PostgreSQL)."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/arena.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as opened:
        yield opened
