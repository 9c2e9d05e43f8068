"""The format "ottla-postgres" of Spark's stream reader: a snapshot's files, then a slot's changes.

An offset is the number of read snapshot files, and the end of the last transaction:
`{"file": 3, "lsn": "0/16B3748"}`. Reads do not consume changes, so a range can be read again with
the same result. The slot advances when the next batch is planned, because the previous batch is
checkpointed then.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

from ottla.pipelines.connect.declaring.errors import ConnectorError
from ottla.pipelines.connect.postgres.avro_events import PARTS, AvroEvents, AvroOptions
from ottla.pipelines.connect.postgres.capture import Beginning, beginning, lsn_number, lsn_text
from ottla.pipelines.connect.postgres.database import connected, key_of, types_of
from ottla.pipelines.connect.postgres.events import READ, Event, EventWriter, Naming
from ottla.pipelines.connect.postgres.pgoutput import Message, Relation, decode
from ottla.pipelines.connect.postgres.rendering import ColumnType, RowShape
from ottla.pipelines.connect.postgres.snapshot import SHAPE

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

T = TypeVar("T")
FILES_PER_BATCH: Final = 16
ROWS_PER_ARROW_BATCH: Final = 10_000
ROWS_PER_FETCH: Final = 5_000
IDLE_ADVANCE_BYTES: Final = 16 << 20
"""The slot advances if more log than this without relevant changes is behind it."""
BUSY_SLOT_WAIT_S: Final = 60.0
"""How long to wait for a slot in use: the connection of a killed task may still be open."""

_PEEK: Final = (
    "pg_logical_slot_peek_binary_changes(%(slot)s, %(upto)s::pg_lsn, %(limit)s,"
    " 'proto_version', '1', 'publication_names', %(publication)s)"
)
_ADVANCE: Final = """
SELECT pg_replication_slot_advance(slot_name, %(lsn)s::pg_lsn)
FROM pg_replication_slots
WHERE slot_name = %(slot)s AND %(lsn)s::pg_lsn - confirmed_flush_lsn > %(slack)s
"""
_COMMIT_KIND: Final = ord("C")


class Place(TypedDict):
    """An offset of this source, as Spark's checkpoint keeps it."""

    file: int
    lsn: str


@dataclass
class FilePart(InputPartition):
    """A file of the snapshot."""

    path: str


@dataclass
class ChangesPart(InputPartition):
    """The transactions that end after one position in the log, up to another."""

    after_lsn: int
    last_lsn: int


class PostgresChanges(DataSource):
    """Change events of a database in Debezium's format: topic, key and value, each JSON or Avro."""

    @classmethod
    def name(cls) -> str:
        """Return the argument of `format`."""
        return "ottla-postgres"

    def schema(self) -> str:
        """Return the columns of an event; Avro is binary, JSON is a string."""
        kinds = {part: "binary" if part in self._avro_parts() else "string" for part in PARTS}
        return f"topic string, key {kinds['key']}, value {kinds['value']}"

    def streamReader(self, schema: "StructType") -> "ChangesReader":  # noqa: N802
        """Read the snapshot, then the changes."""
        del schema
        parts = self._avro_parts()
        return ChangesReader(
            Slot(self.options["conninfo"], self.options["slot"], self.options["publication"]),
            self.options["prefix"],
            self.options["folder"],
            int(self.options["maxBatchSize"]),
            frozenset(self.options.get("skipped", "").split(",")),
            self._avro_options(parts) if parts else None,
        )

    def _avro_options(self, parts: frozenset[str]) -> AvroOptions:
        routes = tuple((each[0], each[1]) for each in json.loads(self.options["routes"]))
        subject = self.options.get("subject") or None
        return AvroOptions(parts, self.options["registry"], subject, routes)

    def _avro_parts(self) -> frozenset[str]:
        return frozenset(filter(None, self.options.get("avro", "").split(",")))


@dataclass(frozen=True)
class Slot:
    """A replication slot; only one session at a time can read it."""

    conninfo: str
    name: str
    publication: str

    def end_of_changes(self, limit: int, upto_lsn: int) -> int | None:
        """Return the end of the last transaction among the next `limit` changes, if any.

        If there is none, the slot may advance past log that has no changes for it.
        """
        with connected(self.conninfo) as connection:
            query = (
                "SELECT substring(data FROM 11 FOR 8)"  # its end, see pgoutput
                f" FROM {_PEEK} WHERE get_byte(data, 0) = {_COMMIT_KIND} ORDER BY lsn DESC LIMIT 1"
            )
            words = self._words(upto_lsn, limit)
            row = _when_free(
                connection,
                lambda: connection.execute(query, words, binary=True).fetchone(),
            )
            if row is not None:
                return int.from_bytes(row[0], "big")
        return None

    def current_lsn(self) -> int:
        """Return the durable end of the database's log."""
        with connected(self.conninfo) as connection:
            row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
            assert row is not None
            return lsn_number(row[0])

    def confirmed_lsn(self) -> int:
        """Return the position before which the slot has released all changes."""
        with connected(self.conninfo) as connection:
            row = connection.execute(
                "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
                (self.name,),
            ).fetchone()
        if row is None:
            raise ConnectorError(f"the slot {self.name!r} is gone")
        return lsn_number(row[0])

    def advance(self, lsn: int, slack_bytes: int = 0) -> None:
        """Let PostgreSQL release the log up to a position, if it is far enough ahead."""
        with connected(self.conninfo) as connection:
            words = {"slot": self.name, "lsn": lsn_text(lsn), "slack": slack_bytes}
            _when_free(connection, lambda: connection.execute(_ADVANCE, words))

    def messages(
        self, connection: "psycopg.Connection[Any]", last_lsn: int
    ) -> Iterator[tuple[int, Message | None]]:
        """Yield the log position of each message, and the message."""
        query = f"SELECT (lsn - '0/0')::bigint, data FROM {_PEEK}"
        words = self._words(last_lsn, None)
        with connection.transaction(), connection.cursor("ottla_changes") as cursor:
            _when_free(connection, lambda: cursor.execute(query, words, binary=True))
            while rows := cursor.fetchmany(ROWS_PER_FETCH):
                for lsn, data in rows:
                    yield lsn, decode(data)

    def _words(self, upto_lsn: int, limit: int | None) -> dict[str, Any]:
        return {
            "slot": self.name,
            "publication": f'"{self.publication}"',
            "upto": lsn_text(upto_lsn),
            "limit": limit,
        }


def _when_free(connection: "psycopg.Connection[Any]", ask: Callable[[], T]) -> T:
    """Retry while another session reads the slot."""
    from psycopg.errors import ObjectInUse  # noqa: PLC0415

    deadline = time.monotonic() + BUSY_SLOT_WAIT_S
    while True:
        try:
            with connection.transaction():
                return ask()
        except ObjectInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class ChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in the driver, reads in tasks: files of the snapshot in parallel, changes in one."""

    def __init__(
        self,
        slot: Slot,
        prefix: str,
        folder: str,
        batch_size: int,
        skipped: frozenset[str] = frozenset(),
        avro: AvroOptions | None = None,
    ) -> None:
        self._slot = slot
        self._prefix = prefix
        self._folder = folder
        self._batch_size = batch_size
        self._skipped = skipped
        self._avro = avro
        self._target_lsn: int | None = None

    def initialOffset(self) -> Place:  # type: ignore[override]  # noqa: N802
        """Begin with the first file of the snapshot; Spark asks while it has no checkpoint."""
        begun = self._beginning()
        if begun.files and self._slot.confirmed_lsn() > begun.lsn:
            raise ConnectorError(
                f"Spark's checkpoint is gone, but the slot {self._slot.name!r} has moved on since"
                " its snapshot: drop the slot, and remove the connector's checkpoint directory"
            )
        return {"file": 0, "lsn": lsn_text(begun.lsn)}

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802
        """Set no limit besides the batch size, which counts whole transactions."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the present end of the log."""
        self._target_lsn = self._slot.current_lsn()

    def latestOffset(  # type: ignore[override]  # noqa: N802
        self, start: Place, limit: "ReadLimit"
    ) -> Place:
        """Return the end of the next batch: some files, or some transactions."""
        del limit
        files = len(self._beginning().files)
        if start["file"] < files:
            return {"file": min(start["file"] + FILES_PER_BATCH, files), "lsn": start["lsn"]}
        done_lsn = lsn_number(start["lsn"])
        # Spark plans a batch after it has checkpointed the previous batch.
        self._slot.advance(done_lsn)
        upto = self._slot.current_lsn() if self._target_lsn is None else self._target_lsn
        if upto <= done_lsn:
            return start
        end = self._slot.end_of_changes(self._batch_size, upto)
        if end is None or end <= done_lsn:
            self._slot.advance(upto, IDLE_ADVANCE_BYTES)
            return start
        return {"file": start["file"], "lsn": lsn_text(end)}

    def partitions(  # type: ignore[override]
        self, start: Place, end: Place
    ) -> Sequence[InputPartition]:
        """Return a part for each file, and a single part for all changes, which are ordered."""
        files = self._beginning().files[start["file"] : end["file"]]
        parts: list[InputPartition] = [FilePart(str(Path(self._folder, name))) for name in files]
        after, last = lsn_number(start["lsn"]), lsn_number(end["lsn"])
        return [*parts, ChangesPart(after, last)] if last > after else parts

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield events as Arrow batches."""
        import pyarrow.parquet as pq  # noqa: PLC0415

        if isinstance(partition, FilePart):
            if READ not in self._skipped:
                with pq.ParquetFile(partition.path) as file:
                    yield from self._snapshot(file)
        else:
            assert isinstance(partition, ChangesPart)
            yield from self._changes(partition)

    def _changes(self, part: ChangesPart) -> Iterator["pa.RecordBatch"]:
        with connected(self._slot.conninfo) as connection, connected(self._slot.conninfo) as other:
            writer = EventWriter(
                Naming(self._prefix, connection.info.dbname),
                lambda relation: _types(other, relation),
                lambda relation: _key(other, relation),
            )
            messages = self._slot.messages(connection, part.last_lsn)
            events = writer.events(messages, part.after_lsn, part.last_lsn)
            wanted = (event for event in events if event.op not in self._skipped)
            yield from _arrow(wanted, self._encoder())

    def _snapshot(self, file: "pq.ParquetFile") -> Iterator["pa.RecordBatch"]:
        encoder = self._encoder()
        batches = file.iter_batches(ROWS_PER_ARROW_BATCH)
        if encoder is None:
            yield from batches
            return
        shape = RowShape.from_json(file.schema_arrow.metadata[SHAPE.encode()].decode())
        for batch in batches:
            rows = zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
            yield from _arrow((Event(shape, READ, key, value) for key, value in rows), encoder)

    def _encoder(self) -> AvroEvents | None:
        return None if self._avro is None else AvroEvents(self._avro)

    def _beginning(self) -> Beginning:
        begun = beginning(self._folder)
        if begun is None:
            raise ConnectorError(f"there is no snapshot in {self._folder}: it was not prepared")
        return begun


def _types(connection: "psycopg.Connection[Any]", relation: Relation) -> list[ColumnType]:
    known = types_of(connection, [column.type_oid for column in relation.columns])
    return [known[column.type_oid] for column in relation.columns]


def _key(connection: "psycopg.Connection[Any]", relation: Relation) -> Sequence[str]:
    # A table that sends whole rows marks all its columns; its key is known to the catalogue.
    if relation.replica_identity == "f":
        return key_of(connection, relation.schema, relation.table)
    return [column.name for column in relation.columns if column.is_key]


def _arrow(events: Iterator[Event], encoder: AvroEvents | None) -> Iterator["pa.RecordBatch"]:
    while pending := list(islice(events, ROWS_PER_ARROW_BATCH)):
        yield _batch(pending, encoder)


def _batch(events: Sequence[Event], encoder: AvroEvents | None) -> "pa.RecordBatch":
    import pyarrow as pa  # noqa: PLC0415

    columns: dict[str, pa.Array] = {"topic": pa.array([event.topic for event in events], "string")}
    for part in PARTS:
        texts = [getattr(event, part) for event in events]
        if encoder is not None and part in encoder.parts:
            shapes = (event.shape for event in events)
            found = [encoder.encoded(part, *each) for each in zip(shapes, texts, strict=True)]
            columns[part] = pa.array(found, "binary")
        else:
            columns[part] = pa.array(texts, "string")
    return pa.record_batch(columns)
