"""Capture from a real PostgreSQL, without Spark: contents of events, start and end positions."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from examples.local_postgres import LocalPostgres
from ottla import RegistryClient, SchemaDeserializer
from ottla.clients.schemas.schema_settings import read_registry_settings
from ottla.clients.tables.typed_records import kept_registry
from ottla.pipelines.connect import ConnectorError
from ottla.pipelines.connect.postgres.avro_events import AvroOptions
from ottla.pipelines.connect.postgres.capture import Capture, lsn_number, lsn_text, prepare
from ottla.pipelines.connect.postgres.changes import ChangesReader, Place, Slot
from ottla.testing import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator

Event = tuple[str, Any, Any]
"""A topic, a key and a value, read from their JSON."""

EVERYTHING = {
    "small": ("smallint", "-32768"),
    "large": ("bigint", "9223372036854775807"),
    "exact": ("numeric(30,10)", "'12345678901234567890.1234500000'"),
    "floating": ("double precision", "'1e+20'"),
    "third": ("double precision", "1.0/3"),
    "no_number": ("real", "'NaN'"),
    "truth": ("boolean", "true"),
    "words": ("text", "E'Zürau \"quoted\" \\\\ \\n\\t\\x01 end'"),
    "empty": ("varchar(10)", "''"),
    "day": ("date", "'2026-11-15'"),
    "moment": ("timestamp", "'2026-11-15 21:30:00.123456'"),
    "instant": ("timestamptz", "'2026-11-15 21:30:00+02'"),
    "forever": ("timestamptz", "'infinity'"),
    "clock": ("time", "'21:30'"),
    "span": ("interval", "'1 day 2 hours'"),
    "name": ("uuid", "'6f1c1e3a-9d9b-4c0f-8a53-0242ac130003'"),
    "document": ("jsonb", '\'{"a": [1, 2.50, null], "b": "ü"}\''),
    "old_document": ("json", "E'{\"a\" :\\n 1}'"),
    "octets": ("bytea", "'\\x00ff1020'"),
    "numbers": ("int[]", "'{1,NULL,3}'"),
    "matrix": ("int[][]", "'{{1,2},{3,4}}'"),
    "shifted": ("int[]", "'[5:6]={1,2}'"),
    "exacts": ("numeric[]", "'{1.50,2}'"),
    "texts": ("text[]", 'E\'{"a,b","c\\\\\\\\\\\\"d",NULL,"NULL",""}\''),
    "moments": ("timestamptz[]", "'{2026-11-15 21:30:00+00}'"),
    "octet_list": ("bytea[]", "'{\"\\\\\\\\x00ff\"}'"),
    "mood": ("mood", "'happy'"),
    "moods": ("mood[]", "'{happy,sad}'"),
    "age": ("age", "42"),
    "nothing": ("text", "NULL"),
    "address": ("inet", "'10.0.0.1/8'"),
    "strange \"name'": ("int", "7"),
}


@pytest.fixture
def shop(postgres: LocalPostgres, request: pytest.FixtureRequest) -> "Iterator[Shop]":
    name = f"capture_{abs(hash(request.node.name)) % 10**9}"
    with postgres.database(name) as connection:
        yield Shop(postgres.url_of(name), name, connection)
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = current_database()"
        )


class Shop:
    """A database of one test, and its capture."""

    def __init__(self, url: str, name: str, connection: "psycopg.Connection[Any]") -> None:
        self.url = url
        self.name = name
        self.connection = connection
        self.place: Place | None = None

    def do(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement)  # type: ignore[arg-type]

    def capture(self, folder: Path, *, with_snapshot: bool = True, tables: str = "") -> Capture:
        return Capture(
            self.url,
            f"slot_{self.name}",
            "letters",
            (tables,) if tables else (),
            "shop",
            str(folder / "snapshot"),
            with_snapshot,
            True,
        )

    def reader(
        self,
        folder: Path,
        batch_size: int = 1000,
        skipped: frozenset[str] = frozenset(),
        avro: AvroOptions | None = None,
    ) -> ChangesReader:
        slot = Slot(self.url, f"slot_{self.name}", "letters")
        return ChangesReader(slot, "shop", str(folder / "snapshot"), batch_size, skipped, avro)

    def batch(
        self,
        folder: Path,
        batch_size: int = 1000,
        skipped: frozenset[str] = frozenset(),
        avro: AvroOptions | None = None,
    ) -> list[Event]:
        """Read the next batch, as Spark would, and advance."""
        reader = self.reader(folder, batch_size, skipped, avro)
        start = reader.initialOffset() if self.place is None else self.place
        end = reader.latestOffset(start, None)  # type: ignore[arg-type]
        self.place = end
        return between(reader, start, end)


def between(reader: ChangesReader, start: Place, end: Place) -> list[Event]:
    return [
        (row["topic"], _read(row["key"]), _read(row["value"]))
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def _read(text: str | bytes | None) -> Any:
    return json.loads(text) if isinstance(text, str) else text


def story(events: list[Event]) -> list[tuple[str, Any, Any]]:
    """Return op, key and after of each event; a tombstone has no op."""
    return [(v and v["op"], key, v and v["after"]) for _, key, v in events]


def test_every_type_looks_the_same_in_the_snapshot_and_in_changes(
    shop: Shop, tmp_path: Path
) -> None:
    quoted = {name: '"' + name.replace('"', '""') + '"' for name in EVERYTHING}
    columns = ", ".join(f"{quoted[name]} {kind}" for name, (kind, _) in EVERYTHING.items())
    values = ", ".join(value for _, value in EVERYTHING.values())
    shop.do(
        "CREATE TYPE mood AS ENUM ('happy', 'sad')",
        "CREATE DOMAIN age AS int CHECK (VALUE > 0)",
        f"CREATE TABLE things (id text PRIMARY KEY, {columns})",
        f"INSERT INTO things VALUES ('snap', {values})",
    )
    prepare(shop.capture(tmp_path))
    shop.do(f"INSERT INTO things VALUES ('late', {values})")
    ((_, key, snapped),) = shop.batch(tmp_path)
    ((topic, late_key, changed),) = shop.batch(tmp_path)
    assert topic == "shop.public.things"
    assert (key, late_key) == ({"id": "snap"}, {"id": "late"})
    after = changed["after"]
    assert {**after, "id": "snap"} == snapped["after"]
    assert after["small"] == -32768
    assert after["exact"] == "12345678901234567890.1234500000"
    assert after["floating"] == 1e20
    assert after["third"] == 1.0 / 3
    assert after["no_number"] == "NaN"
    assert after["truth"] is True
    assert after["words"] == 'Zürau "quoted" \\ \n\t\x01 end'
    assert after["moment"] == "2026-11-15T21:30:00.123456"
    assert after["instant"] == "2026-11-15T19:30:00Z"
    assert after["document"] == {"a": [1, 2.5, None], "b": "ü"}
    assert after["octets"] == "AP8QIA=="
    assert after["numbers"] == [1, None, 3]
    assert after["matrix"] == [[1, 2], [3, 4]]
    assert after["shifted"] == [1, 2]
    assert after["texts"] == ["a,b", 'c\\"d', None, "NULL", ""]
    assert after["moments"] == ["2026-11-15T21:30:00Z"]
    assert after["moods"] == ["happy", "sad"]
    assert after["age"] == 42
    assert after["nothing"] is None
    assert after["strange \"name'"] == 7


class Avro:
    """The Avro events of a capture, decoded by the registry of a broker."""

    def __init__(self, url: str, client: RegistryClient) -> None:
        self.client = client
        self.options = AvroOptions(frozenset({"key", "value"}), url, None)
        self._value = SchemaDeserializer("schema", client)
        self._key = SchemaDeserializer("schema", client, part="key")

    def decoded(self, events: list[Event]) -> list[Event]:
        return [
            (topic, key and self._key.deserialize(topic, key),
             value and self._value.deserialize(topic, value))
            for topic, key, value in events
        ]  # fmt: skip


@pytest.fixture
def avro() -> "Iterator[Avro]":
    with Broker() as broker, RegistryClient(url=broker.registry_url) as client:
        yield Avro(broker.registry_url, client)
        # The process keeps its client for the next task.
        kept_registry(
            read_registry_settings({"schema.registry.url": broker.registry_url}, {})
        ).close()


def test_every_type_is_the_same_in_avro_from_the_snapshot_and_from_changes(
    shop: Shop, tmp_path: Path, avro: Avro
) -> None:
    types = {name: EVERYTHING[name] for name in EVERYTHING if name != "matrix"}
    quoted = {name: '"' + name.replace('"', '""') + '"' for name in types}
    columns = ", ".join(f"{quoted[name]} {kind}" for name, (kind, _) in types.items())
    values = ", ".join(value for _, value in types.values())
    shop.do(
        "CREATE TYPE mood AS ENUM ('happy', 'sad')",
        "CREATE DOMAIN age AS int CHECK (VALUE > 0)",
        f"CREATE TABLE things (id text PRIMARY KEY, {columns})",
        f"INSERT INTO things VALUES ('snap', {values})",
    )
    prepare(shop.capture(tmp_path))
    shop.do(f"INSERT INTO things VALUES ('late', {values})")
    ((_, key, snapped),) = avro.decoded(shop.batch(tmp_path, avro=avro.options))
    ((_, late_key, changed),) = avro.decoded(shop.batch(tmp_path, avro=avro.options))
    assert (key, late_key) == ({"id": "snap"}, {"id": "late"})
    assert (snapped["op"], changed["op"]) == ("r", "c")
    after = changed["after"]
    assert {**after, "id": "snap", "no_number": 0} == {**snapped["after"], "no_number": 0}
    assert str(after["no_number"]) == str(snapped["after"]["no_number"]) == "nan"
    assert after["large"] == 2**63 - 1
    assert after["exact"] == "12345678901234567890.1234500000"
    assert after["moment"].isoformat() == "2026-11-15T21:30:00.123456"
    assert after["instant"] == datetime(2026, 11, 15, 19, 30, tzinfo=UTC)
    assert after["forever"] == datetime.max.replace(tzinfo=UTC)
    assert json.loads(after["document"]) == {"a": [1, 2.5, None], "b": "ü"}
    assert after["octets"] == b"\x00\xff\x10\x20"
    assert after["numbers"] == [1, None, 3]
    assert after["moments"] == [datetime(2026, 11, 15, 21, 30, tzinfo=UTC)]
    assert after["strange__name_"] == 7
    assert avro.client.versions("shop.public.things-value") == [1]


def test_added_and_removed_columns_are_new_versions_of_the_schema(
    shop: Shop, tmp_path: Path, avro: Avro
) -> None:
    shop.do("CREATE TABLE t (id int PRIMARY KEY, a text)", "CREATE TABLE u (name text PRIMARY KEY)")
    prepare(shop.capture(tmp_path))
    shop.do(
        "INSERT INTO t VALUES (1, 'x')",
        "ALTER TABLE t ADD COLUMN paid timestamptz NOT NULL DEFAULT '2026-01-01 00:00Z'",
        "UPDATE t SET a = 'y'",
        "INSERT INTO u VALUES ('m')",
        "ALTER TABLE t DROP COLUMN a",
        "DELETE FROM t",
    )
    events = avro.decoded(shop.batch(tmp_path, avro=avro.options))
    assert [
        (topic[-1], v and v["op"], key, v and (v["before"], v["after"])) for topic, key, v in events
    ] == [
        ("t", "c", {"id": 1}, (None, {"id": 1, "a": "x"})),
        (
            "t",
            "u",
            {"id": 1},
            (None, {"id": 1, "a": "y", "paid": datetime(2026, 1, 1, tzinfo=UTC)}),
        ),
        ("u", "c", {"name": "m"}, (None, {"name": "m"})),
        ("t", "d", {"id": 1}, ({"id": 1, "paid": None}, None)),
        ("t", None, {"id": 1}, None),
    ]
    assert [len(avro.client.versions(f"shop.public.{name}-value")) for name in "tu"] == [3, 1]


def test_a_change_of_a_columns_type_is_refused_by_the_registry(
    shop: Shop, tmp_path: Path, avro: Avro
) -> None:
    shop.do("CREATE TABLE t (id int PRIMARY KEY, a int)")
    prepare(shop.capture(tmp_path))
    shop.do("INSERT INTO t VALUES (1, 1)")
    shop.batch(tmp_path, avro=avro.options)
    shop.do("ALTER TABLE t ALTER COLUMN a TYPE text", "INSERT INTO t VALUES (2, 'x')")
    with pytest.raises(ConnectorError, match=r"subject shop\.public\.t-value: .*incompatible"):
        shop.batch(tmp_path, avro=avro.options)


def test_an_array_of_two_dimensions_has_no_avro_form(
    shop: Shop, tmp_path: Path, avro: Avro
) -> None:
    shop.do("CREATE TABLE t (id int PRIMARY KEY, a int[])")
    prepare(shop.capture(tmp_path))
    shop.do("INSERT INTO t VALUES (1, '{{1,2},{3,4}}')")
    with pytest.raises(ConnectorError, match="column a: an array of several dimensions"):
        shop.batch(tmp_path, avro=avro.options)


@pytest.mark.parametrize("is_avro", [False, True])
def test_skipped_operations_make_no_events(
    shop: Shop, tmp_path: Path, avro: Avro, is_avro: bool
) -> None:
    shop.do("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    prepare(shop.capture(tmp_path))
    options = avro.options if is_avro else None
    skipped = frozenset({"r", "c", "t"})
    assert shop.batch(tmp_path, skipped=skipped, avro=options) == []
    shop.do("INSERT INTO t VALUES (2)", "DELETE FROM t WHERE id = 2", "TRUNCATE t")
    assert len(shop.batch(tmp_path, skipped=skipped, avro=options)) == 2


def test_changes_are_told_in_debeziums_manner(shop: Shop, tmp_path: Path) -> None:
    shop.do("CREATE TABLE t (id int PRIMARY KEY, a text)", "INSERT INTO t VALUES (1, 'x')")
    prepare(shop.capture(tmp_path))
    assert story(shop.batch(tmp_path)) == [("r", {"id": 1}, {"id": 1, "a": "x"})]
    shop.do(
        "INSERT INTO t VALUES (2, 'y')",
        "UPDATE t SET a = 'z' WHERE id = 1",
        "UPDATE t SET id = 3 WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
        "TRUNCATE t",
    )
    events = shop.batch(tmp_path)
    assert story(events) == [
        ("c", {"id": 2}, {"id": 2, "a": "y"}),
        ("u", {"id": 1}, {"id": 1, "a": "z"}),
        ("d", {"id": 2}, None),
        (None, {"id": 2}, None),
        ("c", {"id": 3}, {"id": 3, "a": "y"}),
        ("d", {"id": 1}, None),
        (None, {"id": 1}, None),
        ("t", None, None),
    ]
    source = events[0][2]["source"]
    assert (source["db"], source["schema"], source["table"]) == (shop.name, "public", "t")
    assert source["snapshot"] == "false"
    assert source["lsn"] > 0
    assert source["txId"] > 0
    assert events[0][2]["ts_ms"] == source["ts_ms"] > 1_600_000_000_000


def test_a_table_with_full_identity_tells_what_was_before(shop: Shop, tmp_path: Path) -> None:
    shop.do(
        "CREATE TABLE t (b text, id int PRIMARY KEY, a text)", "ALTER TABLE t REPLICA IDENTITY FULL"
    )
    prepare(shop.capture(tmp_path))
    shop.do("INSERT INTO t VALUES ('b', 1, 'x')", "UPDATE t SET a = 'y'", "DELETE FROM t")
    events = shop.batch(tmp_path)
    assert [event[1] for event in events] == [{"id": 1}] * 4
    assert [event[2] and event[2]["before"] for event in events] == [
        None,
        {"b": "b", "id": 1, "a": "x"},
        {"b": "b", "id": 1, "a": "y"},
        None,
    ]


def test_a_long_value_that_was_not_changed_is_marked_or_taken_from_before(
    shop: Shop, tmp_path: Path
) -> None:
    shop.do(
        "CREATE TABLE t (id int PRIMARY KEY, a text, long text)",
        "ALTER TABLE t ALTER long SET STORAGE EXTERNAL",
    )
    prepare(shop.capture(tmp_path))
    long = "x" * 9000
    shop.do(f"INSERT INTO t VALUES (1, 'a', '{long}')", "UPDATE t SET a = 'b'")
    assert [event[2]["after"]["long"] for event in shop.batch(tmp_path)] == [
        long,
        "__debezium_unavailable_value",
    ]
    shop.do("ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET a = 'c'")
    ((_, _, value),) = shop.batch(tmp_path)
    assert value["after"] == {"id": 1, "a": "c", "long": long}


def test_columns_that_come_and_go_are_followed(shop: Shop, tmp_path: Path) -> None:
    shop.do("CREATE TABLE t (id int PRIMARY KEY, a text)")
    prepare(shop.capture(tmp_path))
    shop.do(
        "INSERT INTO t VALUES (1, 'x')",
        "ALTER TABLE t ADD b int DEFAULT 5",
        "INSERT INTO t VALUES (2, 'y', 6)",
        "ALTER TABLE t DROP a",
        "ALTER TABLE t RENAME b TO c",
        "INSERT INTO t VALUES (3, 7)",
    )
    assert [after for _, _, after in story(shop.batch(tmp_path))] == [
        {"id": 1, "a": "x"},
        {"id": 2, "a": "y", "b": 6},
        {"id": 3, "c": 7},
    ]


def test_batches_end_with_transactions_and_can_be_read_again(shop: Shop, tmp_path: Path) -> None:
    shop.do("CREATE TABLE t (id int PRIMARY KEY)")
    prepare(shop.capture(tmp_path))
    for start in range(0, 30, 3):
        shop.do(f"INSERT INTO t SELECT generate_series({start}, {start + 2})")
    reader = shop.reader(tmp_path, batch_size=4)
    start, found = reader.initialOffset(), []
    while True:
        end = reader.latestOffset(start, None)  # type: ignore[arg-type]
        batch = between(reader, start, end)
        assert batch == between(reader, start, end)
        assert len(batch) % 3 == 0
        if not batch:
            break
        found.append([key["id"] for _, key, _ in batch])
        start = end
    assert len(found) > 3
    assert [number for batch in found for number in batch] == list(range(30))


def test_what_commits_around_the_snapshot_is_in_it_or_comes_after_it(
    shop: Shop, tmp_path: Path
) -> None:
    shop.do("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    capture = shop.capture(tmp_path)
    prepare(capture)
    with psycopg.connect(shop.url) as early, psycopg.connect(shop.url) as late:
        early.execute("INSERT INTO t VALUES (2)")
        late.execute("INSERT INTO t VALUES (3)")
        late.commit()
        assert [key["id"] for _, key, _ in shop.batch(tmp_path)] == [1]
        assert [key["id"] for _, key, _ in shop.batch(tmp_path)] == [3]
        early.commit()
    assert [key["id"] for _, key, _ in shop.batch(tmp_path)] == [2]
    assert shop.batch(tmp_path) == []


def test_a_snapshot_that_was_not_finished_is_taken_anew(shop: Shop, tmp_path: Path) -> None:
    shop.do("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    capture = shop.capture(tmp_path)
    first = prepare(capture)
    Path(capture.folder, "ready.json").unlink()  # as if killed just before
    shop.do("INSERT INTO t VALUES (2)")
    second = prepare(capture)
    assert second.lsn > first.lsn
    assert [key["id"] for _, key, _ in shop.batch(tmp_path)] == [1, 2]
    assert shop.batch(tmp_path) == []
    assert prepare(capture) == second


def test_a_slot_that_is_not_ours_or_is_gone_is_an_error(shop: Shop, tmp_path: Path) -> None:
    shop.do("CREATE TABLE t (id int PRIMARY KEY)")
    capture = shop.capture(tmp_path / "one")
    prepare(capture)
    with pytest.raises(ConnectorError, match="this connector did not make it"):
        prepare(shop.capture(tmp_path / "two"))
    shop.do(f"SELECT pg_drop_replication_slot('{capture.slot}')")
    with pytest.raises(ConnectorError, match="is gone, and with it"):
        prepare(capture)


def test_a_checkpoint_that_was_lost_is_not_begun_anew_with_a_gap(
    shop: Shop, tmp_path: Path
) -> None:
    shop.do("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    prepare(shop.capture(tmp_path))
    shop.batch(tmp_path)
    shop.do("INSERT INTO t VALUES (2)")
    shop.batch(tmp_path)
    shop.batch(tmp_path)
    with pytest.raises(ConnectorError, match="Spark's checkpoint is gone"):
        shop.reader(tmp_path).initialOffset()


def test_without_a_snapshot_only_what_is_new_is_told(shop: Shop, tmp_path: Path) -> None:
    shop.do("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    prepare(shop.capture(tmp_path, with_snapshot=False))
    shop.do("INSERT INTO t VALUES (2)")
    assert [key["id"] for _, key, _ in shop.batch(tmp_path)] == [2]


def test_what_is_missing_is_said_with_its_remedy(
    shop: Shop, postgres: LocalPostgres, tmp_path: Path
) -> None:
    with pytest.raises(ConnectorError, match="no table is captured"):
        prepare(shop.capture(tmp_path, tables="public.nothing"))
    shop.do("CREATE TABLE keyless (id int)")
    with pytest.raises(ConnectorError, match=r"public\.keyless has no primary key"):
        prepare(shop.capture(tmp_path))
    shop.do("DROP TABLE keyless", "CREATE TABLE t (id int PRIMARY KEY)", "CREATE ROLE reader LOGIN")
    try:
        capture = shop.capture(tmp_path)
        weak = Capture(**{**_fields(capture), "conninfo": postgres.url_of(shop.name, "reader")})
        with pytest.raises(ConnectorError, match='ALTER ROLE "reader" REPLICATION'):
            prepare(weak)
        shop.do("ALTER ROLE reader REPLICATION")
        with pytest.raises(ConnectorError, match="GRANT SELECT ON"):
            prepare(weak)
    finally:
        shop.do("DROP ROLE reader")
    with pytest.raises(ConnectorError, match="PostgreSQL: "):
        prepare(Capture(**{**_fields(capture), "conninfo": postgres.url_of("no_such_database")}))


def _fields(capture: Capture) -> dict[str, Any]:
    return {name: getattr(capture, name) for name in Capture.__slots__}


def test_places_in_the_log_are_written_as_postgresql_does() -> None:
    assert lsn_text(0x16_B374_D848) == "16/B374D848"
    assert lsn_number("16/B374D848") == 0x16_B374_D848
