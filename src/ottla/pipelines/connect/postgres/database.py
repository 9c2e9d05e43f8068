"""A PostgreSQL database: connections, its catalogue, and the requirements of change capture.

psycopg is imported where a connection is made: declarations can be checked without it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ottla.pipelines.connect.declaring.errors import ConnectorError
from ottla.pipelines.connect.postgres.rendering import (
    SESSION_SETTINGS,
    ColumnType,
    Kind,
    array_of,
    column_type,
)

if TYPE_CHECKING:
    import psycopg

CONNECT_TIMEOUT_S: Final = 10
DOMAINS_DEPTH_MAX: Final = 32
"""The greatest supported nesting depth of domains."""


@contextmanager
def connected(
    conninfo: str, *, replication: bool = False, **settings: str
) -> "Iterator[psycopg.Connection[Any]]":
    """Connect for a block; errors of PostgreSQL in it become a ConnectorError with its hint."""
    psycopg = _psycopg()
    words = {"connect_timeout": str(CONNECT_TIMEOUT_S), "application_name": "ottla-connect"}
    if replication:
        words["replication"] = "database"
    else:
        session = {**SESSION_SETTINGS, **settings}
        words["options"] = " ".join(f"-c {name}={value}" for name, value in session.items())
    try:
        with psycopg.connect(conninfo, autocommit=True, **words) as connection:
            yield connection
    except psycopg.Error as error:
        raise ConnectorError(sentence_of(error)) from error


def _psycopg() -> Any:
    try:
        return import_module("psycopg")
    except ImportError:
        raise ConnectorError("PostgreSQL needs `pip install 'ottla[postgres]'`") from None


def sentence_of(error: "psycopg.Error") -> str:
    """Return PostgreSQL's message, with its detail and its hint, in one line."""
    said = [error.diag.message_primary or str(error).strip()]
    said += [part for part in (error.diag.message_detail, error.diag.message_hint) if part]
    return "PostgreSQL: " + "; ".join(part.rstrip(".") for part in said)


def conninfo_of(settings: Mapping[str, Any]) -> str:
    """Return a connection string with the settings that locate the database."""
    words = {
        word: settings.get(name)
        for name, word in {
            "connection.user": "user",
            "connection.password": "password",
            "database.hostname": "host",
            "database.port": "port",
            "database.user": "user",
            "database.password": "password",
            "database.dbname": "dbname",
        }.items()
        if settings.get(name) is not None
    }
    url = str(settings.get("connection.url") or "").removeprefix("jdbc:")
    return str(_psycopg().conninfo.make_conninfo(url, **words))


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column in the catalogue."""

    name: str
    type: ColumnType
    is_generated: bool


@dataclass(frozen=True, slots=True)
class CatalogueTable:
    """A table in the catalogue: its columns in order, and its key."""

    schema: str
    name: str
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    replica_identity: str

    @property
    def full_name(self) -> str:
        """The name in settings."""
        return f"{self.schema}.{self.name}"


_COLUMNS: Final = """
SELECT a.attname, a.atttypid::bigint, a.attgenerated <> '', c.relreplident::text
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')
ORDER BY a.attnum
"""
_KEY: Final = """
SELECT a.attname
FROM pg_index i
JOIN pg_class c ON c.oid = i.indrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
WHERE n.nspname = %s AND c.relname = %s
AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END
ORDER BY a.attnum
"""
_TYPES: Final = """
SELECT oid::bigint, typtype::text, typbasetype::bigint, typelem::bigint, typcategory::text
FROM pg_type WHERE oid = ANY(%s::oid[])
"""


def table_of(connection: "psycopg.Connection[Any]", schema: str, name: str) -> CatalogueTable:
    """Look a table up; an unknown table is a ConnectorError."""
    rows = connection.execute(_COLUMNS, (schema, name)).fetchall()
    if not rows:
        raise ConnectorError(f"there is no table {schema}.{name} in the database")
    types = types_of(connection, [row[1] for row in rows])
    columns = tuple(TableColumn(row[0], types[row[1]], row[2]) for row in rows)
    return CatalogueTable(schema, name, columns, key_of(connection, schema, name), str(rows[0][3]))


def key_of(connection: "psycopg.Connection[Any]", schema: str, name: str) -> tuple[str, ...]:
    """Return the key's columns in the table's order: the replica identity's index or the primary.

    None if there is no such key.
    """
    return tuple(row[0] for row in connection.execute(_KEY, (schema, name)))


def types_of(connection: "psycopg.Connection[Any]", oids: Iterable[int]) -> dict[int, ColumnType]:
    """Return the content of types: domains as their base types, others by their elements."""
    return {oid: _type_of(connection, oid, DOMAINS_DEPTH_MAX) for oid in set(oids)}


def _type_of(connection: "psycopg.Connection[Any]", oid: int, depth: int) -> ColumnType:
    known = column_type(oid)
    if known != ColumnType(Kind.TEXT) or depth == 0:
        return known
    row = connection.execute(_TYPES, ([oid],)).fetchone()
    if row is None:
        return known
    _oid, kind, base, element, category = row
    if kind == "d":
        return _type_of(connection, base, depth - 1)
    if category == "A" and element:
        return array_of(_type_of(connection, element, depth - 1))
    return known


def published_tables(
    connection: "psycopg.Connection[Any]", publication: str
) -> tuple[tuple[str, str], ...]:
    """Return the schema and name of each table of a publication, in order."""
    rows = connection.execute(
        "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s"
        " ORDER BY schemaname, tablename",
        (publication,),
    )
    return tuple((row[0], row[1]) for row in rows)


def tables_like(
    connection: "psycopg.Connection[Any]", patterns: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Return the tables for which `schema.table` fully matches one of the patterns."""
    rows = connection.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'"
        " AND n.nspname NOT LIKE 'pg\\_%%' AND n.nspname <> 'information_schema'"
        " AND EXISTS (SELECT 1 FROM unnest(%s::text[]) p"
        "  WHERE n.nspname || '.' || c.relname ~ ('^(' || p || ')$'))"
        " ORDER BY 1, 2",
        (list(patterns),),
    )
    return tuple((row[0], row[1]) for row in rows)
