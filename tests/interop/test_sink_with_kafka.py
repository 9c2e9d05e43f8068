"""The Spark sink writes to Apache Kafka exactly once: its stories, and a driver that is killed."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from ottla import Admin
from tests.clients.test_transactions_of_ours import SAFE_DOWNGRADE, UPGRADE, set_level
from tests.interop.kafka_node import KafkaNode, kafka_node
from tests.pipelines.sink.lines import write_files
from tests.pipelines.sink.reading import all_committed
from tests.pipelines.sink.test_two_phases import (
    query,
    test_a_batch_that_comes_again_adds_nothing,
    test_a_decided_transaction_is_not_aborted_by_an_unaware_driver,
    test_a_decided_transaction_that_a_broker_has_aborted_is_told_of,
    test_a_decision_can_be_about_many_tasks,
    test_a_failed_batch_is_aborted,
    test_a_query_of_one_batch_leaves_nothing,
    test_a_transaction_that_took_too_long_is_not_decided_on,
    test_nothing_is_seen_before_it_is_decided_and_all_of_it_after,
    test_of_two_drivers_of_one_batch_one_wins,
    test_transactions_of_other_queries_are_left_alone,
    test_what_a_dead_driver_had_decided_is_done_by_the_next,
    test_what_dead_attempts_have_left_open_is_aborted_with_the_next_decision,
)
from tests.pipelines.soak_exactly_once import Driver

__all__ = [
    "query",
    "test_a_batch_that_comes_again_adds_nothing",
    "test_a_decided_transaction_is_not_aborted_by_an_unaware_driver",
    "test_a_decided_transaction_that_a_broker_has_aborted_is_told_of",
    "test_a_decision_can_be_about_many_tasks",
    "test_a_failed_batch_is_aborted",
    "test_a_query_of_one_batch_leaves_nothing",
    "test_a_transaction_that_took_too_long_is_not_decided_on",
    "test_nothing_is_seen_before_it_is_decided_and_all_of_it_after",
    "test_of_two_drivers_of_one_batch_one_wins",
    "test_transactions_of_other_queries_are_left_alone",
    "test_what_a_dead_driver_had_decided_is_done_by_the_next",
    "test_what_dead_attempts_have_left_open_is_aborted_with_the_next_decision",
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    with kafka_node(tmp_path_factory.mktemp("kafka")) as running:
        yield running.start()


@pytest.fixture(scope="module", params=[2, 1], ids=["version-2", "version-1"])
def servers(request: pytest.FixtureRequest, node: KafkaNode) -> Iterator[str]:
    """A broker with each version of the protocol."""
    if request.param == 1:
        set_level(node, 1, SAFE_DOWNGRADE)
    yield node.bootstrap_server
    if request.param == 1:
        set_level(node, 2, UPGRADE)


def test_a_driver_is_killed_and_the_next_goes_on(servers: str, tmp_path: Path) -> None:
    lines = write_files(tmp_path, batches=4)
    topic = f"topic-{uuid4()}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.topics.create(topic, partitions=2)
        first = Driver(servers, tmp_path, topic, tasks=3)
        while first.is_running and not any(
            each.state == "Ongoing" and each.transactional_id.startswith("ottla-")
            for each in admin.transactions.list()
        ):
            pass
        first.kill()
    assert not first.is_well()
    second = Driver(servers, tmp_path, topic, tasks=2)
    assert second.is_well(), (tmp_path / "driver.log").read_text()
    assert sorted(all_committed(servers, topic)) == lines
