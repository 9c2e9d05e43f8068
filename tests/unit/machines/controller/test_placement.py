"""The placement of new partitions."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.machines.controller.placement import place
from ottla.metadata.image import BrokerImage
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode


def broker(broker_id: int, rack: str | None = None, *, is_fenced: bool = False) -> BrokerImage:
    return BrokerImage(broker_id, 0, bytes(16), (), rack=rack, is_fenced=is_fenced)


def brokers(count: int) -> list[BrokerImage]:
    return [broker(number) for number in range(count)]


def in_racks(*racks: str) -> list[BrokerImage]:
    return [broker(number, rack) for number, rack in enumerate(racks)]


def test_one_broker_keeps_everything() -> None:
    assert place(brokers(1), 3, 1, start=7) == [(0,), (0,), (0,)]


def test_leaders_go_round_from_the_start() -> None:
    assert place(brokers(3), 5, 1, start=2) == [(2,), (0,), (1,), (2,), (0,)]


def test_the_ring_of_the_drawing() -> None:
    assert place(brokers(4), 7, 3, start=0) == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 0),
        (3, 0, 1),
        (0, 2, 3),
        (1, 3, 0),
        (2, 0, 1),
    ]


def test_replicas_are_in_different_racks_while_there_are_any() -> None:
    placed = place(in_racks("a", "a", "b", "b", "c", "c"), 12, 3, start=1)
    for replicas in placed:
        assert {number // 2 for number in replicas} == {0, 1, 2}


def test_more_replicas_than_racks_are_spread_evenly_over_them() -> None:
    placed = place(in_racks("a", "a", "a", "b", "b", "b"), 6, 4, start=0)
    for replicas in placed:
        assert Counter(number // 3 for number in replicas) == {0: 2, 1: 2}


def test_brokers_without_a_rack_are_in_one_rack_together() -> None:
    placed = place([broker(0), broker(1), broker(2, "a")], 6, 2, start=0)
    assert all((2 in replicas) for replicas in placed)


def test_a_fenced_broker_leads_nothing_and_follows_last() -> None:
    some = [broker(0, is_fenced=True), broker(1), broker(2)]
    assert set(place(some, 6, 2, start=0)) == {(1, 2), (2, 1)}
    assert {replicas[2] for replicas in place(some, 6, 3, start=0)} == {0}


def test_a_rack_of_fenced_brokers_still_gets_its_replicas() -> None:
    some = [broker(0, "a"), broker(1, "a"), broker(2, "b", is_fenced=True)]
    assert all(replicas[1] == 2 for replicas in place(some, 4, 2, start=0))


@pytest.mark.parametrize(
    ("some", "factor", "complaint"),
    [
        (brokers(1), 2, "2 replicas, and 1 brokers to keep them"),
        (brokers(1), 0, "0 replicas; there must be at least 1"),
        (brokers(2), -5, "-5 replicas"),
        ([], 1, "1 replicas, and 0 brokers"),
        ([broker(0, is_fenced=True)], 1, "no broker is active"),
    ],
)
def test_too_few_brokers_are_an_invalid_replication_factor(
    some: list[BrokerImage], factor: int, complaint: str
) -> None:
    with pytest.raises(ApiError, match=complaint) as refused:
        place(some, 1, factor, start=0)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@given(
    racks=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=9),
    data=st.data(),
    start=st.integers(0, 2**31),
)
def test_no_broker_has_two_replicas_and_every_one_leads_as_often(
    racks: list[str | None], data: st.DataObject, start: int
) -> None:
    some = [broker(number, rack) for number, rack in enumerate(racks)]
    factor = data.draw(st.integers(1, len(some)))
    rounds = data.draw(st.integers(1, 3))
    placed = place(some, rounds * len(some), factor, start)
    assert all(len(set(replicas)) == len(replicas) == factor for replicas in placed)
    assert Counter(replicas[0] for replicas in placed) == dict.fromkeys(range(len(some)), rounds)
    for replicas in placed:
        seen = Counter(racks[number] for number in replicas)
        for rack, size in Counter(racks).items():
            assert seen[rack] >= min(size, max(seen.values()) - 1), "a rack with room was left out"


@given(rack_count=st.integers(1, 4), per_rack=st.integers(1, 3), start=st.integers(0, 100))
def test_with_racks_of_one_size_all_brokers_keep_as_much(
    rack_count: int, per_rack: int, start: int
) -> None:
    some = in_racks(*[rack for rack in "abcd"[:rack_count] for _ in range(per_rack)])
    factor = min(3, len(some))
    placed = place(some, 2 * len(some), factor, start)
    kept = Counter(number for replicas in placed for number in replicas)
    assert set(kept.values()) == {2 * factor}


def test_a_broker_without_an_open_log_dir_gets_nothing() -> None:
    closed = replace(broker(2, None), log_dirs=(b"1",), cordoned_log_dirs=(b"1",))
    half = replace(broker(1, None), log_dirs=(b"2", b"3"), cordoned_log_dirs=(b"2",))
    some = [broker(0, None), half, closed]
    assert {number for replicas in place(some, 3, 2, 0) for number in replicas} == {0, 1}
    with pytest.raises(ApiError, match="2 brokers to keep them"):
        place(some, 1, 3, 0)
