"""Keys map to the same partitions as in Kafka's own clients."""

import importlib
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.records import _murmur2_python
from ottla.clients.records.partitioner import (
    Partitioner,
    find_partitioner,
    make_partitioner,
    murmur2,
    partition_for_key,
)
from ottla.runtime.randomness import SystemRandomness

VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


def twins() -> list[ModuleType]:
    try:
        return [importlib.import_module("ottla.clients.records._murmur2"), _murmur2_python]
    except ImportError:
        return [_murmur2_python]


@pytest.mark.parametrize("twin", twins())
@pytest.mark.parametrize(("key", "hashed"), VECTORS)
def test_the_hash_equals_the_hash_of_kafka(twin: ModuleType, key: bytes, hashed: int) -> None:
    assert twin.murmur2(key) == murmur2(key) == hashed & 0xFFFFFFFF


@given(st.binary(), st.integers(1, 1000))
def test_a_partition_is_one_that_the_topic_has(key: bytes, count: int) -> None:
    found = {twin.partition_for_key(key, count) for twin in twins()}
    assert found == {partition_for_key(key, count)}
    assert all(0 <= partition < count for partition in found)


@pytest.mark.parametrize("twin", twins())
def test_a_topic_without_partitions_has_no_place_for_a_key(twin: ModuleType) -> None:
    with pytest.raises(ValueError, match="0 partitions"):
        twin.partition_for_key(b"key", 0)


def made(name: str) -> Partitioner:
    partitioner = make_partitioner(find_partitioner(name), SystemRandomness())
    assert partitioner is not None
    return partitioner


def test_the_default_is_left_to_the_producer() -> None:
    assert make_partitioner(find_partitioner("default"), SystemRandomness()) is None


def test_records_without_a_key_may_go_anywhere() -> None:
    assert made("consistent_random")("t", None, 5) is None
    assert made("consistent_random")("t", b"", 5) is None
    assert made("fnv1a_random")("t", None, 5) is None
    assert made("sticky")("t", b"key", 5) is None
    assert made("murmur2")("t", None, 5) == partition_for_key(b"", 5)


def test_round_robin_takes_each_partition_in_turn() -> None:
    partitioner = made("round_robin")
    assert [partitioner("t", b"key", 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert partitioner("other", b"key", 3) == 0


def test_random_is_not_bound_to_a_key() -> None:
    partitioner = made("random")
    found = {partitioner("t", b"key", 3) for _ in range(500)}
    assert found == {0, 1, 2}
