"""Kafka's rules for the names of topics."""

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.topic_names import INTERNAL_TOPICS, check_topic_name, folded, partition_of_name


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "...", "-", "x" * 249, "__consumer_offsets"])
def test_names_of_plain_characters_are_legal(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "a topic needs a name"),
        (".", r"'\.' cannot be the name"),
        ("..", r"'\.\.' cannot be the name"),
        ("x" * 250, "250 characters exceeds the limit of 249"),
        ("a b", "'a b' has a character"),
        ("a/b", "has a character"),
        ("tür", "has a character"),
        ("a\n", "has a character"),
        ("٣", "has a character"),
    ],
)
def test_other_names_are_refused_with_a_reason(name: str, complaint: str) -> None:
    with pytest.raises(ApiError, match=complaint) as refused:
        check_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_names_clash_that_differ_only_in_dots_and_underscores() -> None:
    assert folded("a.b_c") == folded("a_b.c") == "a_b_c"
    assert folded("a.b") != folded("a.c")


def test_a_name_without_either_clashes_with_none() -> None:
    assert folded("a-b") is None


def test_the_metadata_log_is_no_topic_that_clients_see() -> None:
    assert "__cluster_metadata" not in INTERNAL_TOPICS
    assert "__consumer_offsets" in INTERNAL_TOPICS


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
