"""Changes as events in Debezium's format: a key, and an envelope with before and after.

`op` is c (create), u (update), d (delete), r (read, in a snapshot), t (truncate). A delete is
followed by a tombstone. An update that changes the key is a delete of the old key and a create of
the new key, so that the latest event of each key is the table.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring as quote
from typing import Final

from ottla.pipelines.connect.declaring.errors import ConnectorError
from ottla.pipelines.connect.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Cells,
    Commit,
    Delete,
    Insert,
    Message,
    Relation,
    Truncate,
    Update,
)
from ottla.pipelines.connect.postgres.rendering import ColumnType, Renderer, RowShape, renderer

UNAVAILABLE: Final = '"__debezium_unavailable_value"'
"""Debezium's placeholder for a long value that an update left unchanged."""

CREATE, UPDATE, DELETE, READ, TRUNCATE = "c", "u", "d", "r", "t"


@dataclass(frozen=True, slots=True)
class Event:
    """One record for a topic; a value of None is a tombstone, and has no `op`."""

    shape: RowShape
    op: str | None
    key: str | None
    value: str | None

    @property
    def topic(self) -> str:
        """The topic of the table."""
        return self.shape.topic


@dataclass(frozen=True, slots=True)
class Naming:
    """The name of the origin in events, and the names of their topics."""

    prefix: str
    database: str

    def topic(self, schema: str, table: str) -> str:
        """Return the topic of a table."""
        return f"{self.prefix}.{schema}.{table}"

    def source_start(self, *, is_snapshot: bool) -> str:
        """Return the first half of an event's `source`, the same for all tables."""
        return (
            f'{{"connector":"postgresql","name":{quote(self.prefix)},"db":{quote(self.database)}'
            f',"snapshot":"{"true" if is_snapshot else "false"}"'
        )


@dataclass(frozen=True, slots=True)
class Table:
    """A relation with precomputed renderers of its rows as JSON."""

    shape: RowShape
    source: str
    fields: tuple[str, ...]
    renderers: tuple[Renderer, ...]
    key_indexes: tuple[int, ...]

    def row(self, cells: Cells) -> str:
        """Return a row as a JSON object."""
        parts = []
        for field, render, cell in zip(self.fields, self.renderers, cells, strict=True):
            if cell is None:
                parts.append(field + "null")
            elif cell is UNCHANGED:
                parts.append(field + UNAVAILABLE)
            else:
                assert isinstance(cell, bytes)
                parts.append(field + render(cell))
        return "{" + ",".join(parts) + "}"

    def key(self, cells: Cells) -> str | None:
        """Return the key of a row as a JSON object, or None for a table without one."""
        return self._part(cells, self.key_indexes) if self.key_indexes else None

    def key_cells(self, cells: Cells) -> Cells:
        """Return the values of the key alone."""
        return tuple(cells[index] for index in self.key_indexes)

    def sent_part(self, cells: Cells, *, only_key: bool) -> str:
        """Return the known part of an old row: all of it, or its key."""
        return self._part(cells, self.key_indexes) if only_key else self.row(cells)

    def _part(self, cells: Cells, indexes: Sequence[int]) -> str:
        parts = []
        for index in indexes:
            cell = cells[index]
            rendered = self.renderers[index](cell) if isinstance(cell, bytes) else "null"
            parts.append(self.fields[index] + rendered)
        return "{" + ",".join(parts) + "}"


TypesOf = Callable[[Relation], Sequence[ColumnType]]
KeyOf = Callable[[Relation], Sequence[str]]
"""Returns the key columns of a table; none if it has no key."""


class EventWriter:
    """Turns the messages of one decoding session into events, transaction by transaction."""

    def __init__(self, naming: Naming, types_of: TypesOf, key_of: KeyOf) -> None:
        self._naming = naming
        self._types_of = types_of
        self._key_of = key_of
        self._relations: dict[int, Relation] = {}
        self._tables: dict[int, Table] = {}
        self._begin = Begin(0, 0, 0)

    def events(
        self, messages: Iterable[tuple[int, Message | None]], after_lsn: int, last_lsn: int
    ) -> Iterator[Event]:
        """Yield the events of transactions that end after one position, up to another."""
        is_wanted = False
        for lsn, message in messages:
            match message:
                case None | Commit():
                    pass
                case Begin():
                    # A commit lies before the end of its own transaction, and after the end of the
                    # previous one; so the first change can be filtered already.
                    is_wanted = after_lsn <= message.commit_lsn < last_lsn
                    self._begin = message
                case Relation():
                    self._relations[message.oid] = message
                    self._tables.pop(message.oid, None)
                case _ if is_wanted:
                    yield from self._changes(lsn, message)
                case _:
                    pass

    def _changes(self, lsn: int, message: Insert | Update | Delete | Truncate) -> Iterator[Event]:
        match message:
            case Insert():
                table = self._table(message.relation_oid)
                yield self._event(table, CREATE, lsn, message.new, "null")
            case Update():
                yield from self._update(self._table(message.relation_oid), lsn, message)
            case Delete():
                table = self._table(message.relation_oid)
                only_key = self._sends_keys_only(message.relation_oid)
                yield from self._deletion(table, lsn, message.old, only_key=only_key)
            case Truncate():
                for oid in message.relation_oids:
                    table = self._table(oid)
                    value = self._value(table, TRUNCATE, lsn, "null", "null")
                    yield Event(table.shape, TRUNCATE, None, value)

    def _update(self, table: Table, lsn: int, message: Update) -> Iterator[Event]:
        old, new = message.old, message.new
        if old is None:
            yield self._event(table, UPDATE, lsn, new, "null")
            return
        only_key = self._sends_keys_only(message.relation_oid)
        if not only_key:
            new = tuple(
                before if after is UNCHANGED else after
                for before, after in zip(old, new, strict=True)
            )
        if table.key_cells(old) != table.key_cells(new):
            yield from self._deletion(table, lsn, old, only_key=only_key)
            yield self._event(table, CREATE, lsn, new, "null")
            return
        yield self._event(table, UPDATE, lsn, new, table.sent_part(old, only_key=only_key))

    def _deletion(self, table: Table, lsn: int, old: Cells, *, only_key: bool) -> Iterator[Event]:
        key = table.key(old)
        before = table.sent_part(old, only_key=only_key)
        yield Event(table.shape, DELETE, key, self._value(table, DELETE, lsn, before, "null"))
        if key is not None:
            yield Event(table.shape, None, key, None)

    def _event(self, table: Table, op: str, lsn: int, new: Cells, before: str) -> Event:
        value = self._value(table, op, lsn, before, table.row(new))
        return Event(table.shape, op, table.key(new), value)

    def _value(self, table: Table, op: str, lsn: int, before: str, after: str) -> str:
        millis = self._begin.timestamp_us // 1000
        return (
            f'{{"before":{before},"after":{after},"source":{table.source},"ts_ms":{millis},'
            f'"txId":{self._begin.xid},"lsn":{lsn}}},"op":"{op}","ts_ms":{millis}}}'
        )

    def _sends_keys_only(self, oid: int) -> bool:
        return self._relations[oid].replica_identity != "f"

    def _table(self, oid: int) -> Table:
        table = self._tables.get(oid)
        if table is None:
            relation = self._relations.get(oid)
            if relation is None:
                raise ConnectorError(f"PostgreSQL sent a change of an unknown table, oid {oid}")
            table = self._tables[oid] = self._made_ready(relation)
        return table

    def _made_ready(self, relation: Relation) -> Table:
        key = self._key_of(relation)
        names = [column.name for column in relation.columns]
        types = self._types_of(relation)
        indexes = tuple(names.index(name) for name in key if name in names)
        topic = self._naming.topic(relation.schema, relation.table)
        columns = tuple(zip(names, types, strict=True))
        start = self._naming.source_start(is_snapshot=False)
        return Table(
            RowShape(topic, columns, tuple(names[index] for index in indexes)),
            f'{start},"schema":{quote(relation.schema)},"table":{quote(relation.table)}',
            tuple(f"{quote(name)}:" for name in names),
            tuple(map(renderer, types)),
            indexes,
        )
