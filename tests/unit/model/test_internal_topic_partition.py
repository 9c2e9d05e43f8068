"""Partitions of internal topics, as in Kafka: by Java's String.hashCode of the name."""

import pytest

from ottla.model.internal_topic_partition import partition_of_name


@pytest.mark.parametrize(
    ("name", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("polygenelubricants", 0),  # hashes to -2**31, which has no positive counterpart
        ("\u00e9", 233),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),  # two units in Java
        ("hello world", 1_794_106_052),
        ("transaction", 2_141_246_174),
    ],
)
def test_a_name_is_placed_by_what_java_makes_of_it(name: str, java_hash: int) -> None:
    for count in (1, 7, 50):
        assert partition_of_name(name, count) == java_hash % count


def test_a_negative_hash_is_taken_without_its_sign() -> None:
    assert partition_of_name("zzzzzzzz", 1 << 31) == 1_910_022_912
