"""Apache Kafka dies again and again while Ottla's clients write, read and copy.

Its machine stays up, so a log has all that its broker wrote: no record may be lost or doubled.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.cluster.our_copying import copied_by_ours, names_of
from tests.cluster.our_ends import PARTITIONS
from tests.cluster.our_stories import written_and_read
from tests.interop.kafka_clients import create_topic
from tests.interop.kafka_node import KafkaNode, kafka_node

DEATHS = 2
KAFKAS_FAULTS: Final = {
    "likely deleted already and hence can be skipped": (
        "nobody led the partitions yet when Kafka had started again: it took them for deleted, "
        "wrote no markers there, and called the transaction complete"
    ),
    "while it already a pending state": (
        "Kafka answered EndTxn with UNKNOWN_SERVER_ERROR: the transaction had just timed out"
    ),
}
"""Errors of Kafka 4.3.1 when it loses the end of a transaction by itself, and their meaning."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    with kafka_node(tmp_path_factory.mktemp("kafka")) as node:
        yield node.start()


def test_what_is_acknowledged_is_there_once_and_in_order(node: KafkaNode) -> None:
    create_topic(node.bootstrap_server, "deadly", PARTITIONS)
    with written_and_read(node.bootstrap_server, "deadly", PARTITIONS) as (load, _):
        for _ in range(DEATHS):
            node.kill()
            node.start()
            load.goes_on()


@contextmanager
def expecting_kafkas_faults(node: KafkaNode) -> Iterator[None]:
    """Mark a failed story as xfail if Kafka has logged one of these errors of its own."""
    try:
        yield
    except AssertionError:
        for words, fault in KAFKAS_FAULTS.items():
            if words in node.output:
                pytest.xfail(fault)
        raise


def test_two_copiers_copy_everything_once(node: KafkaNode) -> None:
    for topic in names_of("copy"):
        create_topic(node.bootstrap_server, topic, PARTITIONS)
    with (
        expecting_kafkas_faults(node),
        copied_by_ours(node.bootstrap_server, node.directory, "copy") as copying,
    ):
        copying.let_transactions_end()
        node.kill()
        node.start()
        copying.goes_on()
        copying.kill_copier(0)
        copying.pause_copier(1)
        copying.goes_on()
