"""The messages of pgoutput, PostgreSQL's own output plugin, as values: protocol version 1.

A transaction comes as `Begin`, its changes, `Commit`. Before the first change of a table in a
decoding session comes its `Relation`, and again after every change of its columns.
https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from ottla.pipelines.connect.declaring.errors import ConnectorError

POSTGRES_EPOCH_US: Final = 946_684_800_000_000
"""Midnight of 2000-01-01 in UTC, from which PostgreSQL counts, in microseconds since 1970."""

KEY_FLAG: Final = 1


class UnchangedToast:
    """Stands for a long value that an update left unchanged, and that is therefore not sent."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = UnchangedToast()
Cell = bytes | UnchangedToast | None
"""A value as PostgreSQL writes it in text, null, or not sent."""

Cells = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins; it was committed at `commit_lsn`."""

    commit_lsn: int
    timestamp_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction; the next transaction begins in the log at `end_lsn`."""

    commit_lsn: int
    end_lsn: int
    timestamp_us: int


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    type_oid: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """The definition of a table for the changes that follow."""

    oid: int
    schema: str
    table: str
    replica_identity: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    """A row was inserted."""

    relation_oid: int
    new: Cells


@dataclass(frozen=True, slots=True)
class Update:
    """A row was updated; `old` is set if its key changed, or if the table sends whole rows."""

    relation_oid: int
    old: Cells | None
    new: Cells


@dataclass(frozen=True, slots=True)
class Delete:
    """A row was deleted; `old` has at least its key."""

    relation_oid: int
    old: Cells


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables were truncated."""

    relation_oids: tuple[int, ...]


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate

_BEGIN: Final = Struct(">QqI")
_COMMIT: Final = Struct(">BQQq")
_COLUMN_TYPE: Final = Struct(">Ii")
_INT16: Final = Struct(">H")
_INT32: Final = Struct(">I")
_TRUNCATE: Final = Struct(">IB")


def decode(message: bytes) -> Message | None:
    """Return the message, or None for kinds that carry no change (types, origins)."""
    reader = _READER_BY_KIND.get(message[0])
    return None if reader is None else reader(message)


def _begin(message: bytes) -> Begin:
    commit_lsn, timestamp, xid = _BEGIN.unpack_from(message, 1)
    return Begin(commit_lsn, timestamp + POSTGRES_EPOCH_US, xid)


def _commit(message: bytes) -> Commit:
    _flags, commit_lsn, end_lsn, timestamp = _COMMIT.unpack_from(message, 1)
    return Commit(commit_lsn, end_lsn, timestamp + POSTGRES_EPOCH_US)


def _relation(message: bytes) -> Relation:
    (oid,) = _INT32.unpack_from(message, 1)
    schema, position = _string(message, 5)
    table, position = _string(message, position)
    identity = chr(message[position])
    (count,) = _INT16.unpack_from(message, position + 1)
    position += 3
    columns = []
    for _ in range(count):
        flags = message[position]
        name, position = _string(message, position + 1)
        type_oid, _modifier = _COLUMN_TYPE.unpack_from(message, position)
        position += _COLUMN_TYPE.size
        columns.append(Column(name, type_oid, bool(flags & KEY_FLAG)))
    return Relation(oid, schema or "pg_catalog", table, identity, tuple(columns))


def _insert(message: bytes) -> Insert:
    (oid,) = _INT32.unpack_from(message, 1)
    new, _ = _cells(message, 6)
    return Insert(oid, new)


def _update(message: bytes) -> Update:
    (oid,) = _INT32.unpack_from(message, 1)
    old, position = None, 5
    if message[position] in b"KO":
        old, position = _cells(message, position + 1)
    new, _ = _cells(message, position + 1)
    return Update(oid, old, new)


def _delete(message: bytes) -> Delete:
    (oid,) = _INT32.unpack_from(message, 1)
    old, _ = _cells(message, 6)
    return Delete(oid, old)


def _truncate(message: bytes) -> Truncate:
    count, _options = _TRUNCATE.unpack_from(message, 1)
    oids = (_INT32.unpack_from(message, 6 + 4 * index)[0] for index in range(count))
    return Truncate(tuple(oids))


def _cells(message: bytes, position: int) -> tuple[Cells, int]:
    (count,) = _INT16.unpack_from(message, position)
    position += 2
    cells: list[Cell] = []
    for _ in range(count):
        kind = message[position]
        position += 1
        if kind == _TEXT:
            (size,) = _INT32.unpack_from(message, position)
            position += 4
            cells.append(message[position : position + size])
            position += size
        elif kind == _NULL:
            cells.append(None)
        elif kind == _UNCHANGED:
            cells.append(UNCHANGED)
        else:
            raise ConnectorError(f"pgoutput sent a value of an unknown kind, {chr(kind)!r}")
    return tuple(cells), position


def _string(message: bytes, position: int) -> tuple[str, int]:
    end = message.index(0, position)
    return message[position:end].decode(), end + 1


_TEXT: Final = ord("t")
_NULL: Final = ord("n")
_UNCHANGED: Final = ord("u")
_READER_BY_KIND: Final[dict[int, Callable[[bytes], Message]]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("R"): _relation,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
}
