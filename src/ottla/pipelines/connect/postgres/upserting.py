"""JSON rows into a table by key, in the transaction of the caller: the SQL of the upsert."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.pipelines.connect.declaring.errors import ConnectorError
from ottla.pipelines.connect.postgres.database import table_of
from ottla.pipelines.connect.postgres.events import UNAVAILABLE
from ottla.pipelines.connect.postgres.snapshot import quoted

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

_STAGE: Final = "CREATE TEMP TABLE ottla_stage (seq bigint, key jsonb, value jsonb) ON COMMIT DROP"
_SENT: Final = f"""
CASE WHEN s.value::text LIKE '%{UNAVAILABLE.strip('"')}%' THEN (
    SELECT coalesce(jsonb_object_agg(e.key, e.value), '{{}}') FROM jsonb_each(s.value) e
    WHERE e.value <> '{UNAVAILABLE}'
) ELSE s.value END
"""
"""A value without the fields that change capture could not send."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target table: its quoted name, its columns, its key."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


def target_of(
    connection: "psycopg.Connection[Any]", name: str, key_fields: Sequence[str]
) -> Target:
    """Look a table up by `table`, `schema.table` or `database.schema.table`."""
    schema, _, plain = name.rpartition(".")
    schema = schema.rpartition(".")[2] or "public"
    table = table_of(connection, schema, plain)
    key = tuple(key_fields) or table.key
    if not key:
        raise ConnectorError(f"{table.full_name} has no primary key: set pk.fields")
    columns = tuple(column.name for column in table.columns if not column.is_generated)
    return Target(f"{quoted(schema)}.{quoted(plain)}", columns, key)


def prepare_session(connection: "psycopg.Connection[Any]") -> None:
    """Create the aggregate for upserts, once per session: later fields replace earlier ones."""
    connection.execute(
        "CREATE AGGREGATE pg_temp.ottla_merged (jsonb)"
        " (SFUNC = jsonb_concat, STYPE = jsonb, INITCOND = '{}')"
    )


def upsert(
    connection: "psycopg.Connection[Any]",
    target: Target,
    rows: "pa.Table",
    *,
    key_is_in_value: bool,
    deletes: bool,
) -> None:
    """Write rows (offset, key, value) in their order; the last of each key wins."""
    connection.execute(_STAGE)
    _copy(connection, rows)
    if key_is_in_value:
        connection.execute(_keys_from_values(target))
    if deletes:
        connection.execute(_deletion(target))
    found = connection.execute(
        "SELECT DISTINCT jsonb_object_keys(value) FROM ottla_stage WHERE value IS NOT NULL"
    ).fetchall()
    sent = {row[0] for row in found} | set(target.key)
    columns = [name for name in target.columns if name in sent]
    connection.execute(_insertion(target, columns, deletes=deletes))
    connection.execute("DROP TABLE ottla_stage")


def _copy(connection: "psycopg.Connection[Any]", rows: "pa.Table") -> None:
    """Send rows as CSV, made by Arrow: nulls are empty, text is in quotes."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import csv  # noqa: PLC0415

    out = pa.BufferOutputStream()
    csv.write_csv(
        rows.select(["offset", "key", "value"]),
        out,
        csv.WriteOptions(include_header=False, quoting_style="needed"),
    )
    statement = "COPY ottla_stage (seq, key, value) FROM STDIN (FORMAT csv)"
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(out.getvalue().to_pybytes())


def _keys_from_values(target: Target) -> str:
    fields = ", ".join(f"{_literal(name)}, value -> {_literal(name)}" for name in target.key)
    return f"UPDATE ottla_stage SET key = jsonb_build_object({fields}) WHERE value IS NOT NULL"


def _deletion(target: Target) -> str:
    return (
        f"DELETE FROM {target.name} t USING"
        " (SELECT DISTINCT key FROM ottla_stage WHERE value IS NULL AND key IS NOT NULL) d,"
        f" jsonb_populate_record(NULL::{target.name}, d.key) k WHERE {_same_key(target)}"
    )


def _insertion(target: Target, columns: Sequence[str], *, deletes: bool) -> str:
    listed = ", ".join(map(quoted, columns))
    taken = ", ".join(f"r.{quoted(name)}" for name in columns)
    others = [quoted(name) for name in columns if name not in target.key]
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    action = f"DO UPDATE SET {changes}" if changes else "DO NOTHING"
    is_deletion = "value IS NULL" if deletes else "false"
    return f"""
WITH gone AS (
    SELECT key, max(seq) AS seq FROM ottla_stage WHERE {is_deletion} GROUP BY key
), merged AS (
    SELECT s.key, pg_temp.ottla_merged({_SENT} ORDER BY s.seq) AS value
    FROM ottla_stage s LEFT JOIN gone ON gone.key = s.key
    WHERE s.value IS NOT NULL AND (gone.seq IS NULL OR s.seq > gone.seq)
    GROUP BY s.key
)
INSERT INTO {target.name} ({listed}) OVERRIDING SYSTEM VALUE
SELECT {taken} FROM merged m
CROSS JOIN LATERAL jsonb_populate_record(NULL::{target.name}, m.key) k
LEFT JOIN {target.name} t ON {_same_key(target)}
CROSS JOIN LATERAL jsonb_populate_record(t, m.value || m.key) r
ORDER BY m.key
ON CONFLICT ({", ".join(map(quoted, target.key))}) {action}
"""


def _same_key(target: Target) -> str:
    return " AND ".join(f"t.{quoted(name)} = k.{quoted(name)}" for name in target.key)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
