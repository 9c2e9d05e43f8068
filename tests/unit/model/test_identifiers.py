"""Ids as text, and partitions grouped by topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.identifiers import (
    TopicPartition,
    numbers_by_topic,
    partitions_by_topic,
    uuid_from_text,
    uuid_to_text,
)


@given(st.binary(min_size=16, max_size=16))
def test_an_id_is_read_back_from_its_text(raw: bytes) -> None:
    assert uuid_from_text(uuid_to_text(raw)) == raw


def test_an_id_looks_as_in_kafka() -> None:
    assert uuid_to_text(bytes(15) + b"\1") == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize("text", ["", "abc", "!" * 22, "AAAAAAAAAAAAAAAAAAAAAAAA", "é" * 22])
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        uuid_from_text(text)


def test_a_partition_is_called_by_its_folder() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_the_partitions_of_a_topic_are_put_together() -> None:
    names = [TopicPartition(*name) for name in (("b", 2), ("a", 1), ("b", 0))]
    assert partitions_by_topic(names) == {"b": [("b", 2), ("b", 0)], "a": [("a", 1)]}
    assert list(numbers_by_topic(names).items()) == [("a", [1]), ("b", [0, 2])]
