"""The consumer against an Apache Kafka broker: the same stories as against Ottla."""

from collections.abc import Callable, Iterator

import pytest

from tests.clients import test_consumer as stories
from tests.clients.consumer_stories import consumer_of, delete_topic, make_topic, read, send
from tests.interop.kafka_node import KafkaNode, kafka_node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    with kafka_node(tmp_path_factory.mktemp("kafka")) as node:
        yield node.start()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(node: KafkaNode, codec: str) -> None:
    stories.test_every_codec_with_headers_tombstones_and_missing_keys(node.bootstrap_server, codec)


@pytest.mark.parametrize("is_committed_only", [False, True])
def test_transactions(node: KafkaNode, is_committed_only: bool) -> None:
    stories.test_aborted_transactions_are_for_read_uncommitted_alone(
        node.bootstrap_server, is_committed_only
    )


@pytest.mark.parametrize(
    "story",
    [
        stories.test_the_brokers_time_is_told_as_such,
        stories.test_what_an_open_transaction_has_written_waits_for_its_end,
        stories.test_poll_returns_at_most_what_it_is_asked_for,
        stories.test_a_record_larger_than_every_limit_still_comes,
        stories.test_iteration_ends_when_nothing_comes_and_goes_on_when_asked_again,
        stories.test_several_partitions_come_as_one_arrow_table,
        stories.test_seeking_throws_away_what_was_fetched,
        stories.test_what_is_paused_waits_and_nothing_is_lost,
        stories.test_times_are_found,
        stories.test_reading_begins_as_long_ago_as_is_said,
        stories.test_without_a_reset_the_application_has_to_say_where,
        stories.test_an_offset_out_of_range_is_reset,
        stories.test_the_cluster_can_be_looked_at,
    ],
    ids=lambda story: story.__name__,
)
def test_the_same_story(node: KafkaNode, story: Callable[[str], None]) -> None:
    story(node.bootstrap_server)


def test_a_topic_made_anew_is_read_from_its_start(node: KafkaNode) -> None:
    servers = node.bootstrap_server
    make_topic(servers, "anew")
    send(servers, "anew", [b"1", b"2", b"3"])
    with consumer_of(servers, "anew", auto_offset_reset="latest") as consumer:
        consumer.seek(("anew", 0), 0)
        assert len(read(consumer, 3)) == 3
        delete_topic(servers, "anew")
        make_topic(servers, "anew")
        send(servers, "anew", [b"%d" % n for n in range(10, 20)])
        assert [r.value for r in read(consumer, 10)] == [b"%d" % n for n in range(10, 20)]


def test_a_consumer_goes_on_when_the_broker_comes_back(node: KafkaNode) -> None:
    servers = node.bootstrap_server
    make_topic(servers, "restarted")
    send(servers, "restarted", [b"before"])
    with consumer_of(servers, "restarted") as consumer:
        assert [record.value for record in read(consumer, 1)] == [b"before"]
        node.stop()
        node.start()
        send(servers, "restarted", [b"after"])
        assert [record.value for record in read(consumer, 1)] == [b"after"]
