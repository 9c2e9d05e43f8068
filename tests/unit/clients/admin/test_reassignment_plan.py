"""Reassignment plans in the JSON of Kafka's tool."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.admin.reassignment_plan import InvalidPlanError, read_plan, write_plan
from ottla.model.identifiers import TopicPartition

NAMES = st.builds(TopicPartition, st.text(min_size=1), st.integers(0, 1000))
REPLICAS = st.lists(st.integers(0, 1000), min_size=1, unique=True).map(tuple)


@given(st.dictionaries(NAMES, REPLICAS, min_size=1))
def test_written_properties_are_read(plan: dict[TopicPartition, tuple[int, ...]]) -> None:
    assert read_plan(json.dumps(write_plan(plan))) == plan


def test_what_kafkas_tool_prints_is_read() -> None:
    printed = (
        '{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2],'
        '"log_dirs":["any","any"]},{"topic":"foo","partition":1,"replicas":[3]}]}'
    )
    assert read_plan(printed) == {
        TopicPartition("foo", 0): (1, 2),
        TopicPartition("foo", 1): (3,),
    }


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("letters", "not JSON"),
        ("[]", "version 1"),
        ('{"version": 2, "partitions": []}', "version 1"),
        ('{"version": 1, "partitions": []}', "no list of partitions"),
        ('{"partitions": [1]}', "not an object"),
        ('{"partitions": [{"topic": "a"}]}', "no topic and partition"),
        ('{"partitions": [{"topic": "a", "partition": 0}]}', "no list of brokers"),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": ["1"]}]}', "no list of"),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": [1, 1]}]}', "each of them"),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]}',
            "names a directory",
        ),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1]},'
            ' {"topic": "a", "partition": 0, "replicas": [2]}]}',
            "a-0 is in it twice",
        ),
    ],
)
def test_what_is_no_plan_is_one_sentence(content: str, word: str) -> None:
    with pytest.raises(InvalidPlanError, match=word):
        read_plan(content)
