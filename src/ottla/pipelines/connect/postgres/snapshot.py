"""The rows of a table as files of events: PostgreSQL writes the JSON, Python moves it."""

import os
from collections.abc import Iterator
from json.encoder import encode_basestring
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.pipelines.connect.postgres.events import READ, Naming
from ottla.pipelines.connect.postgres.rendering import RowShape, sql_json

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

    from ottla.pipelines.connect.postgres.database import CatalogueTable

FILE_BYTES_MAX: Final = 64 << 20
"""The amount of text in one file; a file is read by one task."""
CHUNK_BYTES: Final = 8 << 20
SHAPE: Final = "ottla.shape"
"""The key of the table's shape in the metadata of a file."""


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def copy_table(
    connection: "psycopg.Connection[Any]",
    table: "CatalogueTable",
    naming: Naming,
    lsn: int,
    folder: Path,
) -> Iterator[str]:
    """Copy a table at the connection's snapshot, and yield the names of the files."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    shape = _shape(table, naming)
    chunks = _chunks(connection, _statement(table, naming, lsn))
    for number, batches in enumerate(_files(chunks)):
        path = folder / f"{table.schema}.{table.name}-{number:05}.parquet".replace("/", "_")
        rows = batches.append_column("topic", _repeated(shape.topic, batches.num_rows))
        rows = rows.select(["topic", "key", "value"]).replace_schema_metadata(
            {SHAPE: shape.to_json()}
        )
        with path.open("wb") as file:
            pq.write_table(rows, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        yield path.name


def _shape(table: "CatalogueTable", naming: Naming) -> RowShape:
    columns = [(column.name, column.type) for column in table.columns if not column.is_generated]
    return RowShape(naming.topic(table.schema, table.name), tuple(columns), table.key)


def _files(chunks: Iterator["pa.Table"]) -> Iterator["pa.Table"]:
    import pyarrow as pa  # noqa: PLC0415

    pending: list[pa.Table] = []
    for chunk in chunks:
        pending.append(chunk)
        if sum(part.nbytes for part in pending) >= FILE_BYTES_MAX:
            yield pa.concat_tables(pending)
            pending = []
    if pending:
        yield pa.concat_tables(pending)


def _chunks(connection: "psycopg.Connection[Any]", statement: str) -> Iterator["pa.Table"]:
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        pending: list[bytes] = []
        size = 0
        for line in copy:
            pending.append(bytes(line))
            size += len(line)
            if size >= CHUNK_BYTES:
                yield _parsed(b"".join(pending))
                pending, size = [], 0
        if pending:
            yield _parsed(b"".join(pending))


def _parsed(lines: bytes) -> "pa.Table":
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import csv  # noqa: PLC0415

    return csv.read_csv(
        pa.BufferReader(lines),
        csv.ReadOptions(
            column_names=["key", "value"], block_size=len(lines) + 1, use_threads=False
        ),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types={"key": pa.string(), "value": pa.string()},
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )


def _repeated(text: str, count: int) -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415

    return pa.repeat(pa.scalar(text, pa.string()), count)


def _statement(table: "CatalogueTable", naming: Naming, lsn: int) -> str:
    json_by_name = {
        column.name: f"coalesce({sql_json(quoted(column.name), column.type)}::text, 'null')"
        for column in table.columns
        if not column.is_generated
    }
    key = _object({name: json_by_name[name] for name in table.key}) if table.key else "NULL"
    source = (
        f',"source":{naming.source_start(is_snapshot=True)}'
        f',"schema":{encode_basestring(table.schema)},"table":{encode_basestring(table.name)}'
    )
    millis = "(extract(epoch FROM transaction_timestamp()) * 1000)::bigint"
    value = " || ".join(
        [
            _literal('{"before":null,"after":'),
            _object(json_by_name),
            _literal(source + ',"ts_ms":'),
            millis,
            _literal(f',"txId":null,"lsn":{lsn}}},"op":"{READ}","ts_ms":'),
            millis,
            "'}'",
        ]
    )
    place = f"{quoted(table.schema)}.{quoted(table.name)}"
    return (
        f"COPY (SELECT {key} AS key, {value} AS value FROM {place})"
        " TO STDOUT (FORMAT csv, FORCE_QUOTE (key, value))"
    )


def _object(json_by_name: dict[str, str]) -> str:
    parts = [
        f"{_literal(('{' if place == 0 else ',') + encode_basestring(name) + ':')} || {value}"
        for place, (name, value) in enumerate(json_by_name.items())
    ]
    return " || ".join([*parts, "'}'"])


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
