"""Kafka's rules for the names of topics."""

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.topic_names import INTERNAL_TOPICS, check_topic_name, folded


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "...", "-", "x" * 249, "__consumer_offsets"])
def test_names_of_plain_characters_are_legal(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "a topic needs a name"),
        (".", r"'\.' cannot be the name"),
        ("..", r"'\.\.' cannot be the name"),
        ("x" * 250, "at most 249 characters, this one 250"),
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
