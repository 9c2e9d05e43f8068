"""Sinks write every record exactly once, even if a batch is repeated."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from examples.local_postgres import LocalPostgres
from ottla.pipelines.connect import ConnectorError, Home, SinkConnector
from ottla.pipelines.connect.declaring.declaration import COMMON, OF_SINKS
from ottla.pipelines.connect.declaring.settings import read_settings
from ottla.pipelines.connect.delta_sink import DeltaSink
from ottla.pipelines.connect.files.files_sink import FilesSink
from ottla.pipelines.connect.postgres.postgres_sink import OFFSETS, PostgresSink

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame, SparkSession

Record = tuple[int, str | None, str | None]
"""An offset, a key and a value."""


def made(kind: type[SinkConnector], folder: Path, **given: Any) -> Any:
    settings = {"name": "sink", "connector.class": "x", "topics": "t"}
    settings |= {name.replace("__", "."): value for name, value in given.items()}
    values = read_settings(settings, (*COMMON, *OF_SINKS, *kind.SETTINGS))
    return kind(Home("sink", folder, "an-id"), values)


def batch(
    spark: "SparkSession", *records: Record, fields: str = "", partition: int = 0
) -> "DataFrame":
    rows = ", ".join(f"({offset}L, {_sql(key)}, {_sql(value)})" for offset, key, value in records)
    value = f"from_json(v, '{fields}')" if fields else "v"
    return spark.sql(
        f"SELECT k AS key, {value} AS value, 't' AS topic, 't' AS origin, {partition} AS partition,"
        f" o AS offset FROM VALUES {rows} AS t(o, k, v)"
    )


def _sql(text: str | None) -> str:
    if text is None:
        return "CAST(NULL AS STRING)"
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def numbers(start: int, end: int, day: str = "mon") -> list[Record]:
    return [(n, None, f'{{"n":{n},"day":"{day}"}}') for n in range(start, end)]


FIELDS = "n INT, day STRING"


def read_back(spark: "SparkSession", folder: Path, form: str) -> list[int]:
    options = {"header": "true"} if form == "csv" else {}
    rows = spark.read.format(form).options(**options).schema("n INT").load(str(folder))
    return sorted(row.n for row in rows.collect())


def test_a_batch_that_comes_again_adds_no_file(spark: "SparkSession", tmp_path: Path) -> None:
    sink = made(FilesSink, tmp_path, path=str(tmp_path / "out"), partition__by="day")
    first = batch(spark, *numbers(0, 5), (5, "k", None), *numbers(6, 8, "tue"), fields=FIELDS)
    sink.write(first, 0)
    sink.write(first, 0)
    assert read_back(spark, tmp_path / "out", "parquet") == [0, 1, 2, 3, 4, 6, 7]
    files = sorted(file.parent.name for file in (tmp_path / "out").glob("*/*.parquet"))
    assert files == ["day=mon", "day=tue"]


def test_a_batch_is_made_good_wherever_it_was_killed(spark: "SparkSession", tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = made(FilesSink, tmp_path, path=str(out), partition__by="day")
    rows = batch(spark, *numbers(0, 3), *numbers(3, 6, "tue"), fields=FIELDS)
    sink.write(rows, 7)
    placed = {file: file.read_bytes() for file in out.glob("*/*.parquet")}
    decision = out / ".ottla" / "an-id" / "batch-7.json"
    decided = decision.read_text(encoding="utf-8")
    # Killed after the move of one of two files: the other file is still in the staging directory.
    staged = next(Path(text) for text in decided.split('"') if "staged" in text and "tue" in text)
    staged.parent.mkdir(parents=True)
    moved = next(file for file in placed if "tue" in str(file))
    moved.rename(staged)
    sink.write(rows, 7)
    assert {file: file.read_bytes() for file in out.glob("*/*.parquet")} == placed
    # Killed before the decision: the staged files are written again.
    for file in placed:
        file.unlink()
    decision.unlink()
    (out / ".ottla" / "an-id" / "staged-7").mkdir(exist_ok=True)
    sink.write(rows, 7)
    assert read_back(spark, out, "parquet") == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("merged", [0, 2])
def test_a_connector_that_begins_anew_replaces_no_file(
    spark: "SparkSession", tmp_path: Path, merged: int
) -> None:
    out = tmp_path / "out"
    for number, home in enumerate(["an-id", "another-id"]):
        sink = made(FilesSink, tmp_path, path=str(out), format="json", compact__min__files=merged)
        sink.home = Home("sink", tmp_path, home)
        for half in range(2):
            start = 4 * number + 2 * half
            sink.write(batch(spark, *numbers(start, start + 2), fields=FIELDS), half)
    assert read_back(spark, out, "json") == list(range(8))


def test_a_checkpoint_that_is_older_than_the_files_is_refused(
    spark: "SparkSession", tmp_path: Path
) -> None:
    out = tmp_path / "out"
    sink = made(FilesSink, tmp_path, path=str(out))
    for number in range(2):
        sink.write(batch(spark, *numbers(number, number + 1), fields=FIELDS), number)
    with pytest.raises(ConnectorError, match="the directory has batch 1, the checkpoint is at 0"):
        sink.write(batch(spark, *numbers(5, 6), fields=FIELDS), 0)
    assert read_back(spark, out, "parquet") == [0, 1]


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_small_files_are_merged_into_one(spark: "SparkSession", tmp_path: Path, form: str) -> None:
    out = tmp_path / "out put"
    sink = made(
        FilesSink, tmp_path, path=str(out), format=form, compact__min__files=3, partition__by="day"
    )
    notes = ["two\nlines", "a, b", "c"]
    for number, note in enumerate(notes):
        value = json.dumps({"n": number, "day": "mon", "note": note})
        sink.write(batch(spark, (number, None, value), fields=f"{FIELDS}, note STRING"), number)
    (file,) = out.glob("day=mon/*")
    assert "merged" in file.name
    for number in range(3, 6):  # without a field that they had
        sink.write(batch(spark, *numbers(number, number + 1), fields=FIELDS), number)
    files = list(out.glob("day=mon/*"))
    assert len(files) == 2
    options = {"header": "true", "multiLine": "true"} if form == "csv" else {}
    reader = spark.read.format(form).options(**options)
    rows = [row.asDict() for file in files for row in reader.load(f"file://{file}").collect()]
    found = sorted((int(row["n"]), row.get("note")) for row in rows)
    assert found == [*enumerate(notes), (3, None), (4, None), (5, None)]


def test_a_merge_that_was_killed_is_finished(spark: "SparkSession", tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = made(FilesSink, tmp_path, path=str(out), compact__min__files=0)
    for number in range(2):
        sink.write(batch(spark, *numbers(number, number + 1), fields="n INT"), number)
    old = sorted(out.glob("*.parquet"))
    journal = out / ".ottla" / "an-id"
    # Decided and moved, but killed before the small files were removed.
    removed = '", "'.join(file.name for file in old)
    (journal / "merge.json").write_text(
        f'{{"moves": {{"{out}/gone": "new"}}, "removed": ["{removed}"]}}', encoding="utf-8"
    )
    sink.write(batch(spark, *numbers(2, 3), fields="n INT"), 2)
    assert read_back(spark, out, "parquet") == [2]
    assert not (journal / "merge.json").exists()


def test_a_delta_table_has_each_batch_once(spark: "SparkSession", tmp_path: Path) -> None:
    from deltalake import DeltaTable  # noqa: PLC0415

    table = str(tmp_path / "table")
    sink = made(DeltaSink, tmp_path, path=table, compact__every__batches=2)
    for number, rows in enumerate([numbers(0, 3), numbers(3, 5), numbers(5, 6)]):
        sink.write(batch(spark, *rows, (9, "k", None), fields=FIELDS), number)
        sink.write(batch(spark, *rows, fields=FIELDS), number)
    found = DeltaTable(table).to_pyarrow_table()
    assert sorted(found["n"].to_pylist()) == [0, 1, 2, 3, 4, 5]
    # The second batch was followed by a merge: one file of the first two, one of the third.
    assert len(DeltaTable(table).file_uris()) == 2


@pytest.fixture
def letters(postgres: LocalPostgres, request: pytest.FixtureRequest) -> "Any":
    with postgres.database(f"sink_{abs(hash(request.node.name)) % 10**9}") as connection:
        connection.execute(
            "CREATE TABLE letters (id int PRIMARY KEY, words text, price numeric, tags text[],"
            " made timestamptz DEFAULT '2026-11-15Z', more jsonb)"
        )
        yield connection


def postgres_sink(
    letters: "psycopg.Connection[Any]", postgres: LocalPostgres, folder: Path, **given: Any
) -> Any:
    url = postgres.url_of(letters.info.dbname)
    return made(PostgresSink, folder, connection__url=url, table__name__format="letters", **given)


def rows_of(letters: "psycopg.Connection[Any]", columns: str = "id, words") -> list[Any]:
    return letters.execute(f"SELECT {columns} FROM letters ORDER BY id").fetchall()  # type: ignore[arg-type]


def test_rows_are_upserted_by_key_and_deleted_by_tombstones(
    spark: "SparkSession", postgres: LocalPostgres, letters: Any, tmp_path: Path
) -> None:
    sink = postgres_sink(letters, postgres, tmp_path)
    first = batch(
        spark,
        (0, '{"id":1}', '{"words":"a","price":"1.10","tags":["x","y,z"],"more":{"a":[1]}}'),
        (1, '{"id":2}', '{"words":"b"}'),
        (2, '{"id":1}', '{"words":"c"}'),
        (3, '{"id":3}', '{"words":"gone"}'),
        (4, '{"id":3}', None),
        (5, '{"id":4}', None),
        (6, '{"id":4}', '{"words":""}'),
    )
    sink.write(first, 0)
    assert rows_of(letters) == [(1, "c"), (2, "b"), (4, "")]
    ((price, tags, more, year),) = letters.execute(
        "SELECT price::text, tags, more, extract(year FROM made)::int FROM letters WHERE id = 1"
    ).fetchall()
    assert (price, tags, more, year) == ("1.10", ["x", "y,z"], {"a": [1]}, 2026)
    second = batch(
        spark,
        (7, '{"id":2}', None),
        (8, '{"id":1}', '{"words":"__debezium_unavailable_value","price":"2"}'),
        (9, '{"id":1}', '{"tags":[]}'),
    )
    sink.write(second, 1)
    assert rows_of(letters, "id, words, price::text, tags") == [
        (1, "c", "2", []),
        (4, "", None, None),
    ]


def test_what_was_written_is_passed_over_even_in_another_batch(
    spark: "SparkSession", postgres: LocalPostgres, letters: Any, tmp_path: Path
) -> None:
    sink = postgres_sink(letters, postgres, tmp_path)
    sink.write(batch(spark, (0, '{"id":1}', '{"words":"a"}')), 0)
    letters.execute("UPDATE letters SET words = 'by hand'")
    sink.write(batch(spark, (0, '{"id":1}', '{"words":"a"}')), 0)
    assert rows_of(letters) == [(1, "by hand")]
    sink.write(batch(spark, (0, '{"id":1}', '{"words":"a"}'), (1, '{"id":2}', '{"words":"b"}')), 5)
    assert rows_of(letters) == [(1, "by hand"), (2, "b")]
    sink.write(batch(spark, (0, '{"id":1}', '{"words":"other partition"}'), partition=1), 6)
    assert rows_of(letters) == [(1, "other partition"), (2, "b")]


def test_keys_may_be_plain_or_in_the_value(
    spark: "SparkSession", postgres: LocalPostgres, letters: Any, tmp_path: Path
) -> None:
    plain = postgres_sink(letters, postgres, tmp_path, key__converter="string", pk__fields="id")
    plain.write(batch(spark, (0, "7", '{"words":"a"}')), 0)
    inside = postgres_sink(letters, postgres, tmp_path, pk__mode="record_value")
    inside.write(batch(spark, (1, None, '{"id":8,"words":"b"}'), fields="id INT, words STRING"), 1)
    assert rows_of(letters) == [(7, "a"), (8, "b")]


def test_a_record_that_postgresql_does_not_take_is_an_error_and_nothing_is_written(
    postgres: LocalPostgres, letters: Any, tmp_path: Path
) -> None:
    work = postgres_sink(letters, postgres, tmp_path)._work()
    letters.execute(OFFSETS)
    with pytest.raises(ConnectorError, match=r"without a key cannot be upserted: t-0 at offset 1"):
        work.write(iter([rows_for_task((0, '{"id":1}', "{}"), (1, None, '{"words":"a"}'))]))
    with pytest.raises(ConnectorError, match='invalid input syntax for type integer: "one"'):
        work.write(iter([rows_for_task((0, '{"id":1}', "{}"), (1, '{"id":"one"}', "{}"))]))
    assert rows_of(letters) == []
    assert work.write(iter([rows_for_task((0, '{"id":1}', "{}"))])) == 1
    assert rows_of(letters) == [(1, None)]
    missing = made(PostgresSink, tmp_path, connection__url=postgres.url, table__name__format="none")
    with pytest.raises(ConnectorError, match=r"there is no table public\.none"):
        missing.check()


def test_where_nothing_is_deleted_a_tombstone_takes_nothing_of_its_batch_along(
    postgres: LocalPostgres, letters: Any, tmp_path: Path
) -> None:
    work = postgres_sink(letters, postgres, tmp_path, delete__enabled="false")._work()
    letters.execute(OFFSETS)
    work.write(iter([rows_for_task((0, '{"id":1}', '{"words":"a"}'), (1, '{"id":1}', None))]))
    assert rows_of(letters) == [(1, "a")]


def rows_for_task(*records: Record) -> pa.RecordBatch:
    """Return records as a task of the sink gets them."""
    offsets, keys, values = zip(*records, strict=True)
    same = [("origin", "t"), ("topic", "t"), ("partition", 0)]
    columns = {name: [value] * len(records) for name, value in same}
    columns |= {"offset": list(offsets), "key": list(keys), "value": list(values)}
    return pa.RecordBatch.from_pydict(columns)
