"""Keys go where Kafka's own clients put them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_one_that_kafka_computes(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


@given(st.binary(), st.integers(1, 1000))
def test_a_partition_is_one_that_the_topic_has(key: bytes, count: int) -> None:
    assert 0 <= partition_for_key(key, count) < count
