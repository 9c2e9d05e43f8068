"""Rows for several topics, in one Arrow batch."""

import pyarrow as pa
import pytest

from ottla.pipelines.sink.writers import rows_by_topic

COLUMNS = ("value", "topic")


def batch(topics: list[str | None]) -> pa.RecordBatch:
    values = [str(number) for number in range(len(topics))]
    return pa.record_batch({"topic": pa.array(topics, pa.string()), "value": values})


def split(topics: list[str | None], topic: str | None = None) -> dict[str, list[str]]:
    found = rows_by_topic(batch(topics), COLUMNS, topic)
    return {name: rows.column("value").to_pylist() for name, rows in found}


def test_each_topic_gets_its_rows_in_their_order() -> None:
    topics = [f"t{number * number % 7}" for number in range(100)]
    wanted = {
        topic: [str(row) for row, name in enumerate(topics) if name == topic]
        for topic in set(topics)
    }
    assert split([*topics]) == wanted


def test_one_topic_is_not_sorted() -> None:
    assert split(["a", "a"]) == {"a": ["0", "1"]}
    assert split(["a", "b", None], topic="c") == {"c": ["0", "1", "2"]}
    assert split([]) == {}


def test_other_columns_are_left_out() -> None:
    ((_, rows),) = rows_by_topic(batch(["a"]).append_column("more", pa.array([1])), COLUMNS, None)
    assert rows.schema.names == ["value"]


def test_a_row_without_a_topic_is_told_of() -> None:
    with pytest.raises(ValueError, match=r"a row has no topic \(row 2 of its Arrow batch\)"):
        split(["a", "b", None])
