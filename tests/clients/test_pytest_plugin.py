"""The pytest plugin, in real runs of pytest in a user's project."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ottla.testing.pytest_plugin import broker_settings

TESTS = """
import sys

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

names = []


def test_nothing_of_the_broker_is_imported_before_it_is_used():
    assert not [name for name in sys.modules if name.startswith("ottla.broker")]


@pytest.mark.parametrize("value", [b"one", b"two"])
def test_records_go_through(value, ottla_bootstrap_servers, ottla_topic):
    names.append(ottla_topic)
    producer = Producer({"bootstrap.servers": ottla_bootstrap_servers})
    producer.produce(ottla_topic, value)
    assert producer.flush(20) == 0
    consumer = Consumer({
        "bootstrap.servers": ottla_bootstrap_servers,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
    })
    consumer.subscribe([ottla_topic])
    assert consumer.poll(20).value() == value
    consumer.close()


def test_each_test_has_a_topic_of_its_own():
    assert len(set(names)) == 2


def test_settings_come_from_the_project(ottla_broker, ottla_topic):
    admin = AdminClient({"bootstrap.servers": ottla_broker.bootstrap_servers})
    Producer({"bootstrap.servers": ottla_broker.bootstrap_servers}).list_topics(ottla_topic, 20)
    topic = admin.list_topics(ottla_topic, 20).topics[ottla_topic]
    assert len(topic.partitions) == 3


def test_the_broker_has_a_schema_registry(ottla_registry_url):
    with SchemaRegistryClient({"url": ottla_registry_url}) as client:
        schema = Schema('"string"', "AVRO")
        assert client.register_schema("letters-value", schema) == 1
        assert client.get_schema(1).schema_str == '"string"'
"""
CLUSTER_TEST = """
from confluent_kafka.admin import AdminClient


def test_three_brokers_have_the_topic(ottla_cluster):
    admin = AdminClient({"bootstrap.servers": ottla_cluster.bootstrap_servers})
    admin.list_topics("letters", 20)
    found = admin.list_topics("letters", 20)
    assert sorted(found.brokers) == [1, 2, 3]
    partitions = found.topics["letters"].partitions
    assert len(partitions) == 5
    assert sorted(partitions[0].replicas) == [1, 2, 3]
"""
SETTINGS = """
[pytest]
ottla_broker_settings =
    num.partitions = 3
    log.retention.hours=1
"""


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_plugin_is_found_by_its_entry_point() -> None:
    (found,) = entry_points(group="pytest11", name="ottla")
    assert found.value == "ottla.testing.pytest_plugin"


def test_the_fixtures_serve_a_project_with_warnings_as_errors(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    ran = run_pytest(tmp_path, "-p", "no:hypothesispytest")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "6 passed" in ran.stdout
    assert "warning" not in ran.stdout


@pytest.mark.parametrize("line", ["num.partitions", "", "two words"])
def test_a_setting_without_a_value_is_refused(line: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"has {line!r}: it must be name=value"):
        broker_settings([line])


def test_a_value_may_have_what_names_have_not() -> None:
    lines = ["num.partitions = 3", "listeners=A://:1,B://:2", "broker.rack=a=b"]
    assert broker_settings(lines) == {
        "num.partitions": "3",
        "listeners": "A://:1,B://:2",
        "broker.rack": "a=b",
    }


def test_a_cluster_is_there_for_a_project_that_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(CLUSTER_TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nottla_cluster_settings = num.partitions=5\n")
    ran = run_pytest(tmp_path, "-p", "no:hypothesispytest")
    assert ran.returncode == 0, ran.stdout + ran.stderr
