"""The metrics of a scrape, read by Prometheus' own parser while a real client works."""

import json
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from ottla.testing import Broker

SECONDS_MAX = 240
RECORDS = 10
VALUE = b"x" * 100
Metrics = dict[tuple[str, tuple[tuple[str, str], ...]], float]
EMPTY_AT_FIRST = {
    "kafka_network_requestmetrics_errors_total",
    "ottla_connections_closed_total",
    "ottla_transactions",
}
DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"


def scrape(broker: Broker) -> Metrics:
    with urlopen(f"{broker.admin_url}/metrics", timeout=SECONDS_MAX) as response:
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        text = response.read().decode()
    found: Metrics = {}
    names: list[str] = []
    for family in text_string_to_metric_families(text):
        names.append(family.name)
        assert family.documentation
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, "a sample is there once"
            found[key] = sample.value
    assert len(set(names)) == len(names), "a family is there once"
    return found


def of(metrics: Metrics, name: str, **labels: object) -> float:
    return metrics[name, tuple(sorted((key, str(value)) for key, value in labels.items()))]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"ottla.admin.listener": "127.0.0.1:0", "node.id": "5"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def metrics(broker: Broker) -> Metrics:
    """Scrape after writing a topic, reading a part of it in a group, and deleting another topic."""
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(servers)
    for future in admin.create_topics([NewTopic("orders", 2, 1), NewTopic("gone", 1, 1)]).values():
        future.result(SECONDS_MAX)
    producer = Producer(servers)
    for number in range(RECORDS):
        producer.produce("orders", VALUE, partition=number % 2)
    producer.produce("gone", VALUE)
    assert producer.flush(SECONDS_MAX) == 0
    admin.delete_topics(["gone"])["gone"].result(SECONDS_MAX)
    consumer = Consumer({**servers, "group.id": 'say "hi"', "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert len(consumer.consume(RECORDS, SECONDS_MAX)) == RECORDS
    consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
    found = scrape(broker)
    consumer.close()
    return found


def test_topics_and_partitions_are_told_as_kafka_exporter_does(metrics: Metrics) -> None:
    assert of(metrics, "kafka_brokers") == 1
    assert of(metrics, "kafka_topic_partitions", topic="orders") == 2
    for name, value in {
        "current_offset": RECORDS / 2,
        "oldest_offset": 0,
        "leader": 5,
        "leader_is_preferred": 1,
        "replicas": 1,
        "in_sync_replica": 1,
        "under_replicated_partition": 0,
    }.items():
        full_name = f"kafka_topic_partition_{name}"
        assert of(metrics, full_name, topic="orders", partition=1) == value, name
    assert not any(dict(labels).get("topic") == "gone" for _, labels in metrics)


def test_groups_and_their_lag_are_told_as_kafka_exporter_does(metrics: Metrics) -> None:
    group = {"consumergroup": 'say "hi"'}
    place = {**group, "topic": "orders", "partition": 0}
    assert of(metrics, "kafka_consumergroup_members", **group) == 1
    assert of(metrics, "kafka_consumergroup_current_offset", **place) == 2
    assert of(metrics, "kafka_consumergroup_lag", **place) == RECORDS / 2 - 2
    assert of(metrics, "kafka_consumergroup_current_offset_sum", **group, topic="orders") == 2
    assert of(metrics, "kafka_consumergroup_lag_sum", **group, topic="orders") == 3


def test_traffic_is_told_as_kafka_does_and_never_goes_down(metrics: Metrics) -> None:
    name = "kafka_server_brokertopicmetrics_{}_total".format
    assert of(metrics, name("messagesin"), topic="orders") == RECORDS
    assert of(metrics, name("bytesin"), topic="orders") > RECORDS * len(VALUE)
    assert of(metrics, name("bytesout"), topic="orders") > RECORDS * len(VALUE)
    assert of(metrics, name("totalfetchrequests"), topic="orders") >= 1
    whole = sum(
        value
        for (found, labels), value in metrics.items()
        if found == name("messagesin") and labels
    )
    assert of(metrics, name("messagesin")) == whole + 1, "the deleted topic still counts"
    assert of(metrics, name("failedproducerequests")) == 0


def test_requests_are_told_as_kafka_does(metrics: Metrics) -> None:
    name = "kafka_network_requestmetrics_{}".format
    versions = [
        dict(labels)["version"]
        for found, labels in metrics
        if found == name("requests_total") and dict(labels)["request"] == "Produce"
    ]
    assert len(versions) == 1
    count = of(metrics, name("totaltimems_count"), request="Produce")
    assert count == of(metrics, name("requests_total"), request="Produce", version=versions[0])
    assert of(metrics, name("totaltimems_sum"), request="Produce") > 0
    quantiles = [
        of(metrics, name("totaltimems"), request="Produce", quantile=quantile)
        for quantile in ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
    ]
    assert quantiles[0] > 0
    assert quantiles == sorted(quantiles)
    assert of(metrics, name("requestbytes_sum"), request="Produce") > RECORDS * len(VALUE)
    assert of(metrics, name("totaltimems_count"), request="FetchConsumer") >= 1
    buckets = [
        value
        for (found, labels), value in metrics.items()
        if found == "ottla_request_seconds_bucket" and ("request", "Produce") in labels
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == count


def test_the_broker_and_its_process_are_told(metrics: Metrics) -> None:
    assert of(metrics, "kafka_server_replicamanager_leadercount") >= 2
    assert of(metrics, "kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert of(metrics, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert of(metrics, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    connections = {"listener": "PLAINTEXT", "networkProcessor": 0}
    assert of(metrics, "kafka_server_socket_server_metrics_connection_count", **connections) >= 1
    assert of(metrics, "kafka_log_log_size", topic="orders", partition=0) > 5 * len(VALUE)
    assert of(metrics, "kafka_log_log_logendoffset", topic="orders", partition=0) == 5
    assert of(metrics, "kafka_cluster_partition_underminisr", topic="orders", partition=0) == 0
    assert of(metrics, "process_open_fds") > 0
    assert of(metrics, "process_resident_memory_bytes") > 1 << 20
    assert of(metrics, "ottla_start_seconds") >= 0


def test_the_document_names_every_metric_and_no_other(metrics: Metrics) -> None:
    family_by_name = {name: re.sub(r"_(bucket|sum|count)$", "", name) for name, _ in metrics}
    documented = set(re.findall(r"`((?:kafka|ottla|process)_\w+)`", DOCUMENT.read_text()))
    assert documented - family_by_name.keys() - set(family_by_name.values()) <= EMPTY_AT_FIRST
    assert [n for n, family in family_by_name.items() if not {n, family} & documented] == []


def test_what_fails_is_counted_by_its_error(broker: Broker, metrics: Metrics) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(SECONDS_MAX)
    error = {"request": "CreateTopics", "error": "TOPIC_ALREADY_EXISTS"}
    assert of(scrape(broker), "kafka_network_requestmetrics_errors_total", **error) == 1


def test_transactions_are_counted_by_their_state(broker: Broker, metrics: Metrics) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer({**servers, "transactional.id": "counted"})
    producer.init_transactions(SECONDS_MAX)
    assert of(scrape(broker), "ottla_transactions", state="Empty") == 1
    producer.begin_transaction()
    producer.produce("orders", VALUE)
    assert producer.flush(SECONDS_MAX) == 0
    assert of(scrape(broker), "ottla_transactions", state="Ongoing") == 1
    producer.abort_transaction(SECONDS_MAX)


def test_scrapes_and_records_do_not_disturb_each_other(broker: Broker) -> None:
    failures: list[object] = []

    def scrape_often() -> None:
        try:
            for _ in range(10):
                scrape(broker)
        except Exception as error:  # noqa: BLE001 - asserted below
            failures.append(error)

    threads = [threading.Thread(target=scrape_often) for _ in range(2)]
    for thread in threads:
        thread.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for _ in range(500):
        producer.produce(
            "busy", VALUE, on_delivery=lambda error, _: error and failures.append(error)
        )
        producer.poll(0)
    assert producer.flush(SECONDS_MAX) == 0
    for thread in threads:
        thread.join()
    assert failures == []
    assert (
        of(scrape(broker), "kafka_topic_partition_current_offset", topic="busy", partition=0) == 500
    )


def test_a_broker_is_ready_until_it_stops(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla")
    with Broker({"ottla.admin.listener": "127.0.0.1:0"}) as broker:
        for page, word in (("healthz", "alive"), ("readyz", "ready")):
            with urlopen(f"{broker.admin_url}/{page}", timeout=SECONDS_MAX) as response:
                assert json.load(response) == {"status": word}
        url = broker.admin_url
    with pytest.raises(OSError, match="refused"):
        urlopen(f"{url}/readyz", timeout=SECONDS_MAX)
    told = " / ".join(caplog.messages)
    assert re.search(r"broker 1 starts in .* is ready after 0\.\d+ s .* stops / .*stopped", told)


def test_a_failed_page_is_told_in_json(broker: Broker) -> None:
    with pytest.raises(HTTPError, match="404") as refused:
        urlopen(f"{broker.admin_url}/nothing", timeout=SECONDS_MAX)
    assert json.load(refused.value) == {"error": "Not Found"}
    refused.value.close()


def test_topics_and_groups_are_told_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla")
    with Broker() as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("letters", 3, 1)])["letters"].result(SECONDS_MAX)
        consumer = Consumer({**servers, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["letters"])
        while not consumer.assignment():
            consumer.poll(0.1)
        consumer.close()
        admin.delete_topics(["letters"])["letters"].result(SECONDS_MAX)
    assert "topic letters is created: 3 partitions" in caplog.messages
    assert "group readers is in generation 1 with 1 members" in caplog.messages
    assert "topic letters is deleted" in caplog.messages
    created = next(r for r in caplog.records if "letters is created" in r.message)
    assert created.topic == "letters"
