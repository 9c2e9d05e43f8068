"""Connectors are killed while a database changes: every change must arrive exactly once.

Writers change rows in overlapping transactions, and roll some back. `ottla connect run` captures
the table into a topic, and copies the topic into a second table; all its processes are killed with
SIGKILL, again and again. Each row counts its changes, so a gap or a repetition shows.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from json import loads
from pathlib import Path
from typing import Any

import psycopg

from examples.local_postgres import LocalPostgres
from ottla import Admin, Consumer

TOPIC = "shop.public.accounts"
KEYS = 40
WAIT_S = 600
TABLES = (
    "CREATE TABLE accounts (id int PRIMARY KEY, n bigint, words text, price numeric)",
    "ALTER TABLE accounts REPLICA IDENTITY FULL",
    "CREATE TABLE copies (LIKE accounts INCLUDING ALL)",
    "CREATE TABLE versions AS SELECT id, 0::bigint AS n FROM generate_series(1, 40) id",
    "CREATE UNIQUE INDEX ON versions (id)",
)
DECLARATION = """
bootstrap.servers = "{servers}"
connection.url = "{url}"
poll.interval.ms = 100

[[connectors]]
name = "capture"
connector.class = "postgres-source"
topic.prefix = "shop"
table.include.list = ["public.accounts"]
topic.creation.default.partitions = 3
max.batch.size = 2000

[[connectors]]
name = "copy"
connector.class = "postgres-sink"
topics = ["shop.public.accounts"]
table.name.format = "copies"
max.batch.records = 5000
transforms = "unwrap"
"transforms.unwrap.type" = "unwrap"
"""


class Writer(threading.Thread):
    """Changes random rows, a few in each transaction, until it is stopped."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._random = random.Random(seed)
        self._done = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self._url) as connection:
                while not self._done.is_set():
                    self._transaction(connection)
        except Exception as error:  # noqa: BLE001 - raised again in the waiting thread
            self.error = error

    def end(self) -> None:
        self._done.set()
        self.join(WAIT_S)
        assert self.error is None, self.error

    def _transaction(self, connection: "psycopg.Connection[Any]") -> None:
        keys = sorted(self._random.sample(range(1, KEYS + 1), self._random.randint(1, 4)))
        for key in keys:  # in order, so that writers do not wait for each other in a circle
            connection.execute("SELECT n FROM versions WHERE id = %s FOR UPDATE", (key,))
            self._change(connection, key)
        if self._random.random() < 0.15:
            connection.rollback()
        else:
            connection.commit()
        time.sleep(self._random.random() * 0.1)

    def _change(self, connection: "psycopg.Connection[Any]", key: int) -> None:
        if self._random.random() < 0.2:
            connection.execute("DELETE FROM accounts WHERE id = %s", (key,))
            return
        connection.execute(
            "WITH next AS (UPDATE versions SET n = n + 1 WHERE id = %(key)s RETURNING n)"
            " INSERT INTO accounts SELECT %(key)s, n, %(words)s, n * 1.01 FROM next"
            " ON CONFLICT (id) DO UPDATE SET n = excluded.n, words = excluded.words,"
            " price = excluded.price",
            {"key": key, "words": "w" * self._random.randint(0, 50)},
        )


@contextmanager
def connectors(file: Path, *options: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Run the connectors of a file in processes of their own, which are gone in the end."""
    with (file.parent / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", "connect", "run", str(file), *options],
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and all that it has started: the JVM, and Python's workers under it."""
    for pid in [process.pid, *descendants(process.pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(WAIT_S)


def descendants(pid: int) -> Iterator[int]:
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text(encoding="utf-8").split():
                yield int(child)
                yield from descendants(int(child))


def wait_until(what: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert process.poll() is None, log.read_text(encoding="utf-8")[-4000:]
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8")[-4000:]
        time.sleep(0.1)


def events_of(servers: str) -> dict[int, list[tuple[str | None, dict[str, Any] | None]]]:
    """Return op and row of each committed event, by key, in order; a delete has its old row."""
    found = defaultdict(list)
    with Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        partitions = [(TOPIC, number) for number in range(3)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(part) < ends[part] for part in ends):
            for record in consumer.poll(timeout=1):
                key = loads(record.key)["id"]
                value = None if record.value is None else loads(record.value)
                op = value and value["op"]
                found[key].append((op, value and (value["after"] or value["before"])))
    return dict(found)


def check_events(found: dict[int, list[tuple[str | None, Any]]]) -> dict[int, dict[str, Any]]:
    """Hold the events of each key to be without gap or repetition; return the rows they lead to."""
    rows = {}
    for key, events in found.items():
        n, is_there, last_op = None, False, ""
        for op, row in events:
            assert (op is None) == (last_op == "d"), (key, op, last_op)
            if op in {"r", "c"}:
                assert not is_there, (key, op, row)
            elif op is not None:
                assert is_there, (key, op, row)
            if op in {"r", "c", "u"}:
                assert n is None or row["n"] == n + 1, (key, op, row, n)
                n, rows[key] = row["n"], row
            elif op == "d":
                assert row["n"] == n, (key, row, n)
                del rows[key]
            is_there = key in rows
            last_op = op
    return rows


def end_of(servers: str) -> int:
    with Admin(bootstrap_servers=servers) as admin:
        if all(topic.name != TOPIC for topic in admin.topics.list()):
            return 0
    with Consumer(bootstrap_servers=servers) as consumer:
        return sum(consumer.end_offsets([(TOPIC, number) for number in range(3)]).values())


def killed_rounds(
    postgres: LocalPostgres, servers: str, folder: Path, rounds: int, seed: int
) -> int:
    """Run the whole story with this many kills; return the number of events."""
    dice = random.Random(seed)
    name = f"killed_{seed}_{os.getpid()}"
    with postgres.database(name) as connection:
        for statement in TABLES:
            connection.execute(statement)  # type: ignore[arg-type]
        url = postgres.url_of(name)
        file = folder / "connectors.toml"
        file.write_text(DECLARATION.format(servers=servers, url=url), encoding="utf-8")
        writers = [Writer(url, seed + number) for number in range(2)]
        for writer in writers:
            writer.start()
        try:
            for _ in range(rounds):
                _run_and_kill(servers, file, dice)
        finally:
            for writer in writers:
                writer.end()
        with connectors(file, "--once") as process:
            assert process.wait(WAIT_S) == 0, (folder / "log").read_text(encoding="utf-8")
        return _compare(connection, servers)


def _run_and_kill(servers: str, file: Path, dice: random.Random) -> None:
    before = end_of(servers)
    enough = before + dice.randint(1, 400)
    with connectors(file) as process:
        wait_until(lambda: end_of(servers) > enough, process, file.parent / "log")
        time.sleep(dice.random() * 2)
        if dice.random() < 0.3:  # the driver alone: its JVM and workers may run for a moment
            process.kill()
            process.wait(WAIT_S)


def _compare(connection: "psycopg.Connection[Any]", servers: str) -> int:
    found = events_of(servers)
    told = {key: (row["n"], row["words"], row["price"]) for key, row in check_events(found).items()}
    query = "SELECT id, n, words, price::text FROM {} ORDER BY id"
    table = {row[0]: row[1:] for row in connection.execute(query.format("accounts"))}  # type: ignore[arg-type]
    copy = {row[0]: row[1:] for row in connection.execute(query.format("copies"))}  # type: ignore[arg-type]
    assert told == table
    assert copy == table
    return sum(map(len, found.values()))
