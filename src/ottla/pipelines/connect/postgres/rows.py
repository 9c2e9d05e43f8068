"""The format "ottla-postgres-rows" of Spark's writers: JSON rows, written by key, exactly once.

A task has all records of some partitions, in order. For each partition it locks the stored offset,
skips records before it, writes the rest and the new offset, and commits.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from ottla.pipelines.connect.declaring.errors import ConnectorError
from ottla.pipelines.connect.postgres.database import connected
from ottla.pipelines.connect.postgres.upserting import prepare_session, target_of, upsert

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg
    import pyarrow as pa
    from pyspark.sql.types import StructType

_LOCK: Final = """
INSERT INTO ottla_connect_offsets VALUES (%(connector)s, %(topic)s, %(partition)s, 0)
ON CONFLICT (connector, topic, partition)
DO UPDATE SET next_offset = ottla_connect_offsets.next_offset
RETURNING next_offset
"""
_ADVANCE: Final = """
UPDATE ottla_connect_offsets SET next_offset = %(next)s
WHERE connector = %(connector)s AND topic = %(topic)s AND partition = %(partition)s
"""


class PostgresRows(DataSource):
    """Rows with the columns origin, partition, offset, topic, key and value, the last two JSON."""

    @classmethod
    def name(cls) -> str:
        """Return the argument of `format`."""
        return "ottla-postgres-rows"

    def writer(self, schema: "StructType", overwrite: bool) -> "RowsWriter":
        """Write; rows are only ever merged into the table."""
        del schema, overwrite
        given = json.loads(self.options["work"])
        return RowsWriter(Work(**{**given, "key_fields": tuple(given["key_fields"])}))


class RowsWriter(DataSourceArrowWriter):
    """Writes and commits in each task; the driver has nothing to commit."""

    def __init__(self, work: "Work") -> None:
        self._work = work

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Write the rows of one task."""
        self._work.write(iterator)
        return WriterCommitMessage()


@dataclass(frozen=True)
class Work:
    """A task's arguments, sent to workers."""

    conninfo: str
    connector: str
    table_format: str
    key_fields: tuple[str, ...]
    key_is_in_value: bool
    deletes: bool

    def table(self, topic: str) -> str:
        """Return the table of a topic."""
        return self.table_format.replace("${topic}", topic)

    def write(self, batches: "Iterator[pa.RecordBatch]") -> int:
        """Write the records of this task, one transaction per partition; return their number."""
        import pyarrow as pa  # noqa: PLC0415

        given = list(batches)
        if not given:
            return 0
        rows = pa.Table.from_batches(given)
        with connected(self.conninfo) as connection:
            prepare_session(connection)
            parts = _split(rows, ("origin", "partition"))
            return sum(self._write_partition(connection, part) for part in parts)

    def _write_partition(self, connection: "psycopg.Connection[Any]", rows: "pa.Table") -> int:
        import pyarrow.compute as pc  # noqa: PLC0415

        place = {
            "connector": self.connector,
            "topic": rows["origin"][0].as_py(),
            "partition": rows["partition"][0].as_py(),
        }
        with connection.transaction():
            locked = connection.execute(_LOCK, place).fetchone()
            assert locked is not None
            new = rows.filter(pc.greater_equal(rows["offset"], locked[0]))
            if new.num_rows:
                for part in _split(new, ("topic",)):
                    self._upsert(connection, part)
                last = pc.max(new["offset"]).as_py()
                connection.execute(_ADVANCE, {**place, "next": last + 1})
            return int(new.num_rows)

    def _upsert(self, connection: "psycopg.Connection[Any]", rows: "pa.Table") -> None:
        target = target_of(connection, self.table(rows["topic"][0].as_py()), self.key_fields)
        if not self.key_is_in_value:
            _keys_must_be_there(rows)
        upsert(connection, target, rows, key_is_in_value=self.key_is_in_value, deletes=self.deletes)


def _keys_must_be_there(rows: "pa.Table") -> None:
    import pyarrow.compute as pc  # noqa: PLC0415

    keyless = rows.filter(pc.is_null(rows["key"]))
    if keyless.num_rows:
        place = f"{keyless['origin'][0]}-{keyless['partition'][0]} at offset {keyless['offset'][0]}"
        raise ConnectorError(
            f"a record without a key cannot be upserted: {place};"
            " set pk.mode to record_value if the key's columns are in the value"
        )


def _split(rows: "pa.Table", names: tuple[str, ...]) -> "Iterator[pa.Table]":
    """Yield the rows of each combination of values, in the order of their first rows."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    keys = rows.select(list(names)).group_by(list(names), use_threads=False).aggregate([])
    for key in keys.to_pylist():
        masks = [
            pc.equal(rows[name], pa.scalar(key[name], rows.schema.field(name).type))
            for name in names
        ]
        mask = masks[0] if len(masks) == 1 else pc.and_(*masks)
        yield rows.filter(mask)
