"""Decisions that need no cluster: offsets in a checkpoint, limits, pieces of work, filters."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from ottla.clients.tables.errors import SourceReadError
from ottla.clients.tables.range_reader import split
from ottla.model.identifiers import TopicPartition
from ottla.pipelines.source.filters import pushed
from ottla.pipelines.source.offset_resolution import SourceOffsets, offsets_of
from ottla.pipelines.source.planning import TaskRange
from ottla.pipelines.source.stream_plan import limited

ORDERS = [TopicPartition("orders", number) for number in range(4)]


# -- offsets ---------------------------------------------------------------------------------------


def test_a_checkpoint_has_the_shape_of_sparks_kafka_source_and_the_ids() -> None:
    offsets = SourceOffsets({ORDERS[1]: 7, ORDERS[0]: 5}, {"orders": bytes(range(16))})
    written = offsets.as_json()
    assert written["orders"] == {"0": 5, "1": 7}
    assert list(written) == ["orders", "#topicIds"]
    assert offsets_of(json.loads(json.dumps(written))) == offsets


def test_the_first_end_knows_where_the_query_has_begun() -> None:
    begins = SourceOffsets({ORDERS[0]: 5}, {"orders": bytes(16)})
    end = SourceOffsets({ORDERS[0]: 9}, {"orders": bytes(16)}, begins_at=begins)
    assert offsets_of(json.loads(json.dumps(end.as_json()))).begins_at == begins


def test_a_checkpoint_of_sparks_own_source_can_be_read() -> None:
    assert offsets_of({"orders": {"0": 5}}) == SourceOffsets({ORDERS[0]: 5})


@pytest.mark.parametrize(
    "written", [{"orders": 5}, {"orders": {"x": 5}}, {"#topicIds": {"a": "b"}}]
)
def test_a_checkpoint_of_something_else_is_refused(written: dict[str, Any]) -> None:
    with pytest.raises(SourceReadError, match="did not write"):
        offsets_of(written)


# -- limits ----------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=4), st.integers(1, 3000))
def test_a_micro_batch_is_as_large_as_it_may_be(sizes: list[int], most: int) -> None:
    start = dict.fromkeys(ORDERS[: len(sizes)], 10)
    end = {name: 10 + size for name, size in zip(ORDERS, sizes, strict=False)}
    found = limited(start, end, most)
    assert all(10 <= found[name] <= end[name] for name in end)
    assert sum(found[name] - 10 for name in end) == min(sum(sizes), most)
    waiting = [name for name in end if end[name] > 10]
    if most >= len(waiting):
        assert all(found[name] > 10 for name in waiting), "nobody waits for others"


# -- pieces of work --------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 500), min_size=1, max_size=4),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 200),
)
def test_pieces_are_many_and_small_enough_and_make_the_whole(
    sizes: list[int], least: int | None, most: int | None
) -> None:
    whole = [TaskRange("orders", n, 3, 3 + size, b"i" * 16) for n, size in enumerate(sizes)]
    pieces = split(whole, min_partitions=least, records_per_partition_max=most)
    covered = [(one.partition, offset) for one in pieces for offset in range(*_ends(one))]
    assert covered == [(one.partition, offset) for one in whole for offset in range(*_ends(one))]
    assert all(one.size > 0 and one.topic_id == b"i" * 16 for one in pieces)
    assert len(pieces) >= min(least or 0, sum(sizes))
    assert most is None or all(one.size <= most for one in pieces)


def _ends(one: TaskRange) -> tuple[int, int]:
    return one.start_offset, one.end_offset


# -- filters ---------------------------------------------------------------------------------------


def test_offsets_are_cut_before_they_are_read() -> None:
    at = ("offset",)
    wanted, left = pushed([GreaterThan(at, 3), LessThanOrEqual(at, 9), IsNotNull(at)])
    assert wanted.within(0, 100) == (4, 10)
    assert left == []
    wanted, left = pushed([GreaterThanOrEqual(at, 3), LessThan(at, 9), EqualTo(at, 5)])
    assert (wanted.within(0, 100), left) == ((5, 6), [])


def test_partitions_are_left_out_that_no_row_could_come_from() -> None:
    filters: list[Filter] = [
        In(("topic",), ("orders", "payments")),
        StringStartsWith(("topic",), "ord"),
        Not(EqualTo(("partition",), 1)),
        LessThan(("partition",), 3),
    ]
    wanted, left = pushed(filters)
    assert left == []
    names = [*ORDERS, TopicPartition("payments", 0)]
    assert [name for name in names if wanted.has(name)] == [ORDERS[0], ORDERS[2]]


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("value",), b"x"),
        In(("offset",), (1, 2)),
        Not(EqualTo(("offset",), 1)),
        GreaterThan(("offset",), 1.5),
        EqualTo(("partition",), None),
        EqualTo(("headers", "key"), "x"),
    ],
)
def test_what_is_not_understood_is_left_to_spark(one: Filter) -> None:
    wanted, left = pushed([one])
    assert left == [one]
    assert wanted.has(ORDERS[0])
    assert wanted.within(0, 10) == (0, 10)
