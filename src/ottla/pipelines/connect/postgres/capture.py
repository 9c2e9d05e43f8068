"""Sets up change capture: a publication, a slot, and a snapshot that ends where the slot begins.

PostgreSQL exports the snapshot with the slot, so that a transaction is either in the snapshot or
comes from the slot, never both. The snapshot lives only as long as its connection; so its rows are
copied to files before the first event is sent, and a repeated read after a crash gives the same.

    nothing ──► started.json ──► slot and files ──► ready.json

A crash before `ready.json` starts again, with a new slot. After it the slot is never replaced.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.pipelines.connect.declaring.errors import ConnectorError
from ottla.pipelines.connect.postgres.database import (
    CatalogueTable,
    connected,
    published_tables,
    table_of,
    tables_like,
)
from ottla.pipelines.connect.postgres.events import Naming
from ottla.pipelines.connect.postgres.snapshot import copy_table, quoted
from ottla.runtime.small_files import write_atomically

if TYPE_CHECKING:
    import psycopg

STARTED: Final = "started.json"
READY: Final = "ready.json"


@dataclass(frozen=True, slots=True)
class Capture:
    """The captured tables, and the names of publication and slot."""

    conninfo: str
    slot: str
    publication: str
    tables: tuple[str, ...]
    prefix: str
    folder: str
    with_snapshot: bool
    creates_publication: bool


@dataclass(frozen=True, slots=True)
class Beginning:
    """The start of capture: the files of the snapshot, and the slot's first position after it."""

    files: tuple[str, ...]
    lsn: int


def lsn_number(text: str) -> int:
    """Return a position in PostgreSQL's log, such as `16/B374D848`, as a number."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(number: int) -> str:
    """Return a position in PostgreSQL's log in PostgreSQL's own notation."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def beginning(folder: str) -> Beginning | None:
    """Return the start of capture, or None if the preparation is not complete."""
    ready = Path(folder, READY)
    if not ready.exists():
        return None
    said = json.loads(ready.read_text(encoding="utf-8"))
    return Beginning(tuple(said["files"]), said["lsn"])


def prepare(capture: Capture) -> Beginning:
    """Create the publication, the slot and the snapshot, if they do not exist."""
    begun = beginning(capture.folder)
    with connected(capture.conninfo) as connection:
        check(connection, capture)
        if begun is not None:
            _slot_must_be_there(connection, capture, begun)
            return begun
        _make_publication(connection, capture)
        _drop_unfinished_slot(connection, capture)
        if not capture.with_snapshot:
            return _begin_without_snapshot(connection, capture)
    return _begin_with_snapshot(capture)


def check(connection: "psycopg.Connection[Any]", capture: Capture) -> None:
    """Raise ConnectorError, with a remedy, if PostgreSQL cannot capture changes."""
    level = _one(connection, "SHOW wal_level")
    if level != "logical":
        raise ConnectorError(
            f"wal_level is {level!r}: change capture needs"
            " `ALTER SYSTEM SET wal_level = 'logical'` and a restart of PostgreSQL"
        )
    role = connection.execute(
        "SELECT rolname, rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"
    ).fetchone()
    if role is not None and not role[1]:
        raise ConnectorError(
            f"the role {role[0]!r} may not replicate: `ALTER ROLE {quoted(role[0])} REPLICATION`"
        )
    for table in captured_tables(connection, capture):
        _check_table(connection, table)


def _check_table(connection: "psycopg.Connection[Any]", table: CatalogueTable) -> None:
    if not table.key and table.replica_identity != "f":
        raise ConnectorError(
            f"{table.full_name} has no primary key, so its updates and deletes cannot be told:"
            " add one, or `ALTER TABLE … REPLICA IDENTITY FULL` for events without a key"
        )
    name = f"{quoted(table.schema)}.{quoted(table.name)}"
    if not _one(connection, "SELECT has_table_privilege(%s, 'SELECT')", name):
        raise ConnectorError(f"the role may not read {table.full_name}: `GRANT SELECT ON {name}`")


def captured_tables(
    connection: "psycopg.Connection[Any]", capture: Capture
) -> list[CatalogueTable]:
    """Return the tables of the publication, or of `table.include.list` while there is none."""
    if _has_publication(connection, capture.publication):
        names: Sequence[tuple[str, str]] = published_tables(connection, capture.publication)
    else:
        names = tables_like(connection, capture.tables or (".*",))
    if not names:
        raise ConnectorError(
            f"no table is captured: neither the publication {capture.publication!r}"
            f" nor table.include.list ({', '.join(capture.tables)}) has one"
        )
    return [table_of(connection, schema, name) for schema, name in names]


def _make_publication(connection: "psycopg.Connection[Any]", capture: Capture) -> None:
    if _has_publication(connection, capture.publication):
        return
    tables = captured_tables(connection, capture)
    listed = ", ".join(f"{quoted(table.schema)}.{quoted(table.name)}" for table in tables)
    statement = (
        f"CREATE PUBLICATION {quoted(capture.publication)} FOR TABLE {listed}"
        " WITH (publish_via_partition_root = true)"
    )
    if not capture.creates_publication:
        raise ConnectorError(
            f"there is no publication {capture.publication!r}: `{statement}`,"
            " or set publication.autocreate.mode to filtered"
        )
    connection.execute(statement)


def _drop_unfinished_slot(connection: "psycopg.Connection[Any]", capture: Capture) -> None:
    """Drop our slot of an attempt without `ready.json`: no event of it was sent."""
    started = Path(capture.folder, STARTED)
    exists = _slot(connection, capture.slot) is not None
    if exists and started.exists():
        connection.execute("SELECT pg_drop_replication_slot(%s)", (capture.slot,))
    elif exists and capture.with_snapshot:
        raise ConnectorError(
            f"the slot {capture.slot!r} is there, but this connector did not make it: its"
            " checkpoint may be lost, or another connector reads it. Set another slot.name, or"
            f" `SELECT pg_drop_replication_slot('{capture.slot}')` to begin with a new snapshot"
        )
    if not exists or started.exists():
        write_atomically(started, json.dumps({"slot": capture.slot}), is_durable=True)


def _begin_without_snapshot(connection: "psycopg.Connection[Any]", capture: Capture) -> Beginning:
    slot = _slot(connection, capture.slot)
    if slot is None:
        created = connection.execute(
            "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')",
            (capture.slot,),
        ).fetchone()
        assert created is not None
        slot = created[0]
    return _begun(capture, (), lsn_number(slot))


def _begin_with_snapshot(capture: Capture) -> Beginning:
    with connected(capture.conninfo, replication=True) as walsender:
        # psycopg's own execute would prepare; a walsender takes plain queries only.
        statement = (
            f"CREATE_REPLICATION_SLOT {quoted(capture.slot)} LOGICAL pgoutput EXPORT_SNAPSHOT"
        )
        result = walsender.pgconn.exec_(statement.encode())
        if result.ntuples != 1:
            raise ConnectorError(f"no slot was made: {result.error_message.decode().strip()}")
        lsn_bytes, snapshot_bytes = result.get_value(0, 1), result.get_value(0, 2)
        assert lsn_bytes is not None
        assert snapshot_bytes is not None
        lsn = lsn_number(lsn_bytes.decode())
        files = tuple(_copied(capture, snapshot_bytes.decode(), lsn))
    return _begun(capture, files, lsn)


def _copied(capture: Capture, snapshot: str, lsn: int) -> Iterator[str]:
    with connected(capture.conninfo) as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        naming = Naming(capture.prefix, connection.info.dbname)
        for table in captured_tables(connection, capture):
            yield from copy_table(connection, table, naming, lsn, Path(capture.folder))


def _begun(capture: Capture, files: tuple[str, ...], lsn: int) -> Beginning:
    begun = Beginning(files, lsn)
    ready = Path(capture.folder, READY)
    write_atomically(ready, json.dumps(asdict(begun)), is_durable=True)
    return begun


def _slot_must_be_there(
    connection: "psycopg.Connection[Any]", capture: Capture, begun: Beginning
) -> None:
    if _slot(connection, capture.slot) is None:
        raise ConnectorError(
            f"the slot {capture.slot!r}, which began at {lsn_text(begun.lsn)}, is gone, and with it"
            " the changes that were not read yet. Remove the connector's checkpoint directory"
            " to begin again with a snapshot"
        )


def _slot(connection: "psycopg.Connection[Any]", slot: str) -> str | None:
    """Return the confirmed position of a slot, or None if there is no usable one."""
    row = connection.execute(
        "SELECT confirmed_flush_lsn::text, plugin, wal_status FROM pg_replication_slots"
        " WHERE slot_name = %s",
        (slot,),
    ).fetchone()
    if row is None:
        return None
    if row[1] != "pgoutput" or row[2] == "lost":
        raise ConnectorError(
            f"the slot {slot!r} cannot be used: its plugin is {row[1]}, its log is {row[2]}"
        )
    return str(row[0])


def _has_publication(connection: "psycopg.Connection[Any]", name: str) -> bool:
    return bool(_one(connection, "SELECT count(*) FROM pg_publication WHERE pubname = %s", name))


def _one(connection: "psycopg.Connection[Any]", query: str, *arguments: str) -> Any:
    row = connection.execute(query, arguments or None).fetchone()
    assert row is not None
    return row[0]
