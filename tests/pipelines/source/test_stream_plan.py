"""How far micro-batches read, against a broker and without Spark."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla import Admin, TopicPartition
from ottla.clients.tables.errors import DataLossError, SourceReadError
from ottla.pipelines.source.offset_resolution import SourceOffsets, offsets_of
from ottla.pipelines.source.options import SourceOptions
from ottla.pipelines.source.stream_plan import StreamPlan
from ottla.testing import Broker
from tests.pipelines.source.reading import (
    cluster_of,
    make_topic,
    numbered,
    offsets,
    options_of,
    read_ranges,
    send,
)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


class Query:
    """A stream without Spark: it has a checkpoint, and reads micro-batches."""

    def __init__(self, cluster: Any, options: SourceOptions, checkpoint: dict[str, Any]) -> None:
        self.plan = StreamPlan(cluster, options)
        self._cluster = cluster
        self._options = options
        self.at = offsets_of(checkpoint) if checkpoint else self.plan.initial()

    def step(self, offsets_max: int | None = None) -> list[str]:
        """Read the next micro-batch."""
        end = self.plan.latest(self.at, offsets_max, is_delay_allowed=True)
        rows = self.read(end)
        self.at = offsets_of(end.as_json())
        return rows

    def read(self, end: SourceOffsets) -> list[str]:
        ranges = self.plan.ranges(self.at, end)
        return [row["value"].decode() for row in read_ranges(self._cluster, self._options, ranges)]


@contextmanager
def query(
    servers: str, checkpoint: dict[str, Any] | None = None, **options: str
) -> Iterator[Query]:
    """Start a stream, or start it again from its checkpoint."""
    read = options_of(servers, is_streaming=True, **options)
    with cluster_of(read) as cluster:
        yield Query(cluster, read, checkpoint or {})


def test_a_stream_begins_with_what_comes_if_nothing_else_is_said(servers: str) -> None:
    topic = make_topic(servers, "orders", 2)
    send(servers, topic, {0: ["before"]})
    with query(servers, subscribe=topic) as stream:
        assert stream.step() == []
        send(servers, topic, {0: ["a"], 1: ["b"]})
        assert stream.step() == ["a", "b"]
        before = stream.at
        assert stream.step() == []
        assert stream.at == before, "nothing new is the very same offset"
        assert stream.plan.newest == stream.at.offset_by_partition


def test_a_stream_goes_on_from_its_checkpoint(servers: str) -> None:
    topic = make_topic(servers, "orders")
    send(servers, topic, {0: numbered(3)})
    with query(servers, subscribe=topic, startingOffsets="earliest") as stream:
        assert stream.step() == numbered(3)
        checkpoint = stream.at.as_json()
    send(servers, topic, {0: numbered(2, 3)})
    with query(servers, checkpoint, subscribe=topic) as again:
        assert again.step() == numbered(2, 3)


def test_the_first_micro_batch_is_the_same_when_it_is_read_again(servers: str) -> None:
    """Spark forgets where a query began that was ended in its first micro-batch."""
    topic = make_topic(servers, "orders")
    send(servers, topic, {0: ["before"]})
    with query(servers, subscribe=topic) as stream:
        send(servers, topic, {0: ["a", "b"]})
        first_end = stream.plan.latest(stream.at, None).as_json()
    send(servers, topic, {0: ["c"]})
    with query(servers, subscribe=topic) as again:  # begins at the end, after the first end
        assert again.read(offsets_of(first_end)) == ["a", "b"]
        again.at = offsets_of(first_end)
        assert again.step() == ["c"]
        assert again.at.begins_at is None


def test_a_micro_batch_has_at_most_so_many_offsets(servers: str) -> None:
    topic = make_topic(servers, "orders", 2)
    send(servers, topic, {0: numbered(20), 1: ["other"]})
    with query(servers, subscribe=topic, startingOffsets="earliest") as stream:
        assert sorted(stream.step(7)) == sorted([*numbered(6), "other"])
        assert stream.step(7) == numbered(7, 6)
        assert stream.step(7) == numbered(7, 13)


def test_few_records_are_waited_for_but_not_for_ever(servers: str) -> None:
    topic = make_topic(servers, "orders")
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "5"}
    send(servers, topic, {0: numbered(3)})
    with query(servers, **options) as stream:
        assert stream.step() == []
        send(servers, topic, {0: numbered(2, 3)})
        assert stream.step() == numbered(5)
    with query(servers, **options, maxTriggerDelay="0ms") as impatient:
        assert impatient.step() == numbered(5)


def test_what_is_available_now_has_an_end(servers: str) -> None:
    topic = make_topic(servers, "orders")
    send(servers, topic, {0: numbered(5)})
    with query(servers, subscribe=topic, startingOffsets="earliest") as stream:
        stream.plan.stop_at_what_is_there()
        send(servers, topic, {0: numbered(5, 5)})
        with Admin(bootstrap_servers=servers) as admin:
            admin.topics.create_partitions({topic: 2})
        send(servers, topic, {1: ["new"]})
        assert stream.step(3) == numbered(3)
        assert stream.step(3) == numbered(2, 3)
        assert stream.step(3) == []


def test_what_is_available_now_may_be_nothing(servers: str) -> None:
    topic = make_topic(servers, "orders")
    with query(servers, subscribe=topic) as stream:
        stream.plan.stop_at_what_is_there()
        send(servers, topic, {0: numbered(5)})
        stream.at = stream.plan.initial()  # the end of the existing records
        assert stream.step() == []


def test_a_topic_that_was_missing_for_a_moment_keeps_its_offsets(servers: str) -> None:
    topic = make_topic(servers, "orders")
    send(servers, topic, {0: numbered(5)})
    with query(servers, subscribe=topic, startingOffsets="earliest") as stream:
        assert stream.step() == numbered(5)
        read = stream.at.offset_by_partition
        stream.plan._target = {}  # as with a broker that does not know the topic
        assert stream.step() == []
        assert stream.at.offset_by_partition == read


def test_partitions_and_topics_are_found_that_are_new(servers: str) -> None:
    topic = make_topic(servers, "found")
    with query(servers, subscribePattern="found-.*") as stream:
        with Admin(bootstrap_servers=servers) as admin:
            admin.topics.create_partitions({topic: 2})
        send(servers, topic, {1: ["a"]})
        assert stream.step() == ["a"]
        other = make_topic(servers, "found")
        send(servers, other, {0: ["b"]})
        assert stream.step() == ["b"]
        assert stream.at.offset_by_partition == {
            TopicPartition(topic, 0): 0,
            TopicPartition(topic, 1): 1,
            TopicPartition(other, 0): 1,
        }


def test_a_topic_made_again_under_the_same_name_is_noticed(servers: str) -> None:
    topic = make_topic(servers, "orders")
    send(servers, topic, {0: numbered(5)})
    with query(servers, subscribe=topic, startingOffsets="earliest") as stream:
        assert stream.step() == numbered(5)
        checkpoint = stream.at.as_json()
    with Admin(bootstrap_servers=servers) as admin:
        admin.topics.delete(topic)
        admin.topics.create(topic, partitions=1)
    send(servers, topic, {0: numbered(9, 100)})
    with (
        query(servers, checkpoint, subscribe=topic) as stream,
        pytest.raises(DataLossError, match=r"deleted and made again.*failOnDataLoss"),
    ):
        stream.step()
    with query(servers, checkpoint, subscribe=topic, failOnDataLoss="false") as stream:
        assert stream.step() == numbered(9, 100)
        assert stream.step() == []


def test_a_topic_that_was_deleted_is_a_loss_or_left_out(servers: str) -> None:
    kept, deleted = make_topic(servers, "kept"), make_topic(servers, "deleted")
    both = {"subscribe": f"{kept},{deleted}"}
    with query(servers, **both) as stream:
        checkpoint = stream.at.as_json()
    with Admin(bootstrap_servers=servers) as admin:
        admin.topics.delete(deleted)
    send(servers, kept, {0: ["a"]})
    with (
        query(servers, checkpoint, **both) as stream,
        pytest.raises(DataLossError, match=f"topic '{deleted}' was deleted"),
    ):
        stream.step()
    with query(servers, checkpoint, **both, failOnDataLoss="false") as stream:
        assert stream.step() == ["a"]
        assert stream.step() == []


def test_a_log_that_ends_before_the_checkpoint_is_a_loss(servers: str) -> None:
    topic = make_topic(servers, "orders")
    send(servers, topic, {0: numbered(3)})
    with query(servers, subscribe=topic) as stream:
        checkpoint = stream.at.as_json()
        checkpoint[topic]["0"] = 7
    with (
        query(servers, checkpoint, subscribe=topic) as stream,
        pytest.raises(DataLossError, match="ends at 3 now, and was read up to 7"),
    ):
        stream.step()


def test_offsets_must_name_each_partition(servers: str) -> None:
    topic = make_topic(servers, "orders", 2)
    with (
        pytest.raises(ValueError, match=f"does not name {topic}-1"),
        query(servers, subscribe=topic, startingOffsets=offsets(topic, 0)),
    ):
        pass
    with (
        pytest.raises(ValueError, match=f"names {topic}-2, which is not read"),
        query(servers, subscribe=topic, startingOffsets=offsets(topic, 0, 0, 0)),
    ):
        pass


def test_offsets_may_be_words_in_numbers(servers: str) -> None:
    topic = make_topic(servers, "orders", 3)
    send(servers, topic, {number: numbered(4) for number in range(3)})
    begins = offsets(topic, -2, -1, 2)
    with query(servers, subscribe=topic, startingOffsets=begins) as stream:
        found = stream.at.offset_by_partition
        assert [found[TopicPartition(topic, number)] for number in range(3)] == [0, 4, 2]


def test_a_stream_of_no_topic_does_not_start(servers: str) -> None:
    with pytest.raises(SourceReadError, match="there is no topic"), query(servers, subscribe="no"):
        pass
