"""Transactions over several brokers, some of which are killed."""

from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import BrokerProcess, Cluster
from ottla.testing.child_process import wait_until
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.clients.plain_socket import PlainSocket
from tests.clients.test_transactions import read, read_until
from tests.clients.transactional_producers import SECONDS_MAX, Librdkafka

pytestmark = pytest.mark.usefixtures("needs_zookeeper")
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "replica.lag.time.max.ms": "2000",
    "zookeeper.session.timeout.ms": "2000",
}
COPIER = "copier"


def coordinator_of(cluster: Cluster) -> BrokerProcess:
    asked = next(broker for broker in cluster.brokers.values() if broker.is_running)
    found: list[int] = []

    def is_found() -> bool:
        with PlainSocket(asked) as client:
            request = FindCoordinatorRequest(key=COPIER, key_type=1)
            answer = client.ask(ApiKey.FIND_COORDINATOR, 3, request)
        found[:] = [answer.node_id]
        return not answer.error_code

    wait_until(is_found, SECONDS_MAX, lambda: "nobody coordinates it")
    return cluster.brokers[found[0]]


def wait_for_state(coordinator: BrokerProcess, wanted: str) -> None:
    request = DescribeTransactionsRequest(transactional_ids=[COPIER])

    def is_so() -> bool:
        with PlainSocket(coordinator) as client:
            (found,) = client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
        return bool(found.transaction_state == wanted)

    wait_until(is_so, SECONDS_MAX, lambda: f"it does not come to be {wanted}")


def test_a_commit_survives_its_coordinator_that_is_killed_before_the_markers() -> None:
    with Cluster(3, SETTINGS, zookeeper=True) as cluster:
        coordinator = coordinator_of(cluster)
        leader = next(one for one in cluster.brokers.values() if one is not coordinator)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        alone = {"min.insync.replicas": "1"}
        wanted = NewTopic("t", 1, replica_assignment=[[leader.id]], config=alone)
        admin.create_topics([wanted])["t"].result(SECONDS_MAX)
        with closing(Librdkafka(cluster.bootstrap_servers, COPIER)) as producer:
            producer.begin()
            producer.send("t", [b"first", b"second"])
            leader.kill()  # so that no leader can append the marker
            producer.commit()
            wait_for_state(coordinator, "PrepareCommit")
            coordinator.kill()
            leader.start()
            read_until(leader.bootstrap_servers, "t", [b"first", b"second"])
            assert coordinator_of(cluster) is not coordinator
            producer.begin()
            producer.send("t", [b"third"])
            producer.abort()
        assert read(leader.bootstrap_servers, "t") == [b"first", b"second"]
