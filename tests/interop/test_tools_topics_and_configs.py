"""Kafka's tools make topics on Ottla, and change settings of all that has any."""

import re
import socket

import pytest

from tests.interop.console import Console
from tests.interop.ottla_process import OttlaProcess

_SETTING = re.compile(r"^  (\S+?)=(.*) sensitive=false synonyms=\{(.*)\}$", re.MULTILINE)


def settings(printed: str) -> dict[str, str]:
    """Pick the settings out of a printed description."""
    return {name: value for name, value, _ in _SETTING.findall(printed)}


def test_a_topic_is_created_listed_described_grown_and_deleted(
    kafka: Console, ottla: OttlaProcess
) -> None:
    created = "topics --create --topic letters --partitions 2 --replication-factor 1"
    assert kafka(f"{created} --config retention.ms=60000") == "Created topic letters.\n"
    assert (ottla.logs / "letters-1").is_dir()
    assert "letters" in kafka("topics --list").split()

    kafka("topics --alter --topic letters --partitions 3")
    heading, *partitions = kafka("topics --describe --topic letters").splitlines()
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=60000" in heading
    assert [line.split("\t")[1:6] for line in partitions] == [
        ["Topic: letters", f"Partition: {n}", "Leader: 1", "Replicas: 1", "Isr: 1"]
        for n in range(3)
    ]

    kafka("topics --delete --topic letters")
    assert kafka("topics --list").split() == []
    assert "'letters' does not exist" in kafka.refused("topics --describe --topic letters")


def test_a_topic_takes_the_brokers_defaults_or_a_given_assignment(kafka: Console) -> None:
    kafka("topics --create --topic usual")
    kafka("topics --create --topic placed --replica-assignment 1,1")
    kafka("topics --create --if-not-exists --topic usual")
    described = kafka("topics --describe")
    assert re.search(r"Topic: usual\t.*PartitionCount: 3", described)
    assert re.search(r"Topic: placed\t.*PartitionCount: 2", described)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--create --topic twice", "TopicExistsException"),
        ("--create --topic many --replication-factor 2", "InvalidReplicationFactorException"),
        ("--create --topic 'no letter'", "InvalidTopicException"),
        ("--create --topic odd --config no.setting=1", "InvalidConfigurationException"),
        ("--alter --topic twice --partitions 1", "InvalidPartitionsException"),
    ],
)
def test_what_cannot_be_is_refused_with_kafkas_error(
    kafka: Console, words: str, error: str
) -> None:
    if words.endswith("--topic twice"):
        kafka("topics --create --topic twice --partitions 2")

    assert error in kafka.refused(f"topics {words}")


def test_the_only_replica_is_in_sync_and_online(kafka: Console) -> None:
    kafka("topics --create --topic single --partitions 1")
    for view in ("under-replicated", "unavailable", "under-min-isr"):
        assert kafka(f"topics --describe --{view}-partitions") == ""
    assert "\tTopic: single\t" in kafka("topics --describe --at-min-isr-partitions")


def test_a_topic_is_described_by_its_id(kafka: Console) -> None:
    kafka("topics --create --topic known")
    heading, *partitions = kafka("topics --describe --topic known").splitlines()
    found = re.search(r"TopicId: (\S+)", heading)
    assert found is not None
    by_id = kafka(f"topics --describe --topic-id {found[1]}").splitlines()
    assert by_id[0] == heading
    assert len(by_id) == len(partitions) + 1


def test_settings_of_a_topic_are_set_listed_and_taken_back(kafka: Console) -> None:
    kafka("topics --create --topic kept")
    entity = "--entity-type topics --entity-name kept"
    kafka(f"configs --alter {entity} --add-config retention.ms=3600000,cleanup.policy=[compact]")
    described = kafka(f"configs --describe {entity}")
    assert settings(described) == {"cleanup.policy": "compact", "retention.ms": "3600000"}
    assert "synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=3600000}" in described
    assert "Topic: kept" in kafka("topics --describe --topics-with-overrides")

    kafka(f"configs --alter {entity} --delete-config cleanup.policy,retention.ms")
    assert settings(kafka(f"configs --describe {entity}")) == {}
    everything = settings(kafka(f"configs --describe {entity} --all"))
    assert everything["retention.ms"] == "604800000"
    assert len(everything) > 25


def test_a_value_that_is_none_is_refused(kafka: Console) -> None:
    kafka("topics --create --topic strict")
    line = "configs --alter --entity-type topics --entity-name strict --add-config retention.ms=abc"
    assert "InvalidConfigurationException: retention.ms" in kafka.refused(line)


def test_a_broker_has_settings_of_its_own_before_those_of_all(kafka: Console) -> None:
    all_brokers = "--entity-type brokers --entity-default"
    kafka(f"configs --alter {all_brokers} --add-config log.retention.ms=7200000")
    default = kafka(f"configs --describe {all_brokers}")
    assert settings(default) == {"log.retention.ms": "7200000"}

    own = "--entity-type brokers --entity-name 1"
    kafka(f"configs --alter {own} --add-config log.retention.ms=3600000")
    described = kafka(f"configs --describe {own}")
    assert settings(described) == {"log.retention.ms": "3600000"}
    assert (
        "DYNAMIC_BROKER_CONFIG:log.retention.ms=3600000, DYNAMIC_DEFAULT_BROKER_CONFIG" in described
    )

    everything = settings(kafka(f"configs --describe {own} --all"))
    assert everything["num.partitions"] == "3"
    kafka("topics --create --topic heir")
    heir = kafka("configs --describe --entity-type topics --entity-name heir --all")
    assert settings(heir)["retention.ms"] == "3600000"


def send_nonsense(server: str) -> None:
    """Send bytes that are no request, which is logged at DEBUG; wait until the broker hangs up."""
    host, port = server.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"\xff" * 8)
        assert connection.recv(1) == b""


def test_a_logger_speaks_up_while_the_broker_runs(kafka: Console, ottla: OttlaProcess) -> None:
    entity = "--entity-type broker-loggers --entity-name 1"
    assert settings(kafka(f"configs --describe {entity}"))["ottla.broker"] == "INFO"
    send_nonsense(ottla.server)
    assert " DEBUG " not in ottla.output.read_text()

    kafka(f"configs --alter {entity} --add-config ottla.broker=DEBUG")
    levels = settings(kafka(f"configs --describe {entity}"))
    assert (levels["ottla.broker"], levels["root"]) == ("DEBUG", "INFO")
    send_nonsense(ottla.server)
    assert " DEBUG " in ottla.output.read_text()
    kafka(f"configs --alter {entity} --delete-config ottla.broker")
    assert settings(kafka(f"configs --describe {entity}"))["ottla.broker"] == "INFO"


def test_groups_have_settings(kafka: Console) -> None:
    entity = "--entity-type groups --entity-name readers"
    kafka(f"configs --alter {entity} --add-config consumer.session.timeout.ms=50000")
    described = settings(kafka(f"configs --describe {entity}"))
    assert described == {"consumer.session.timeout.ms": "50000"}
    assert "group readers" in kafka("configs --describe --entity-type groups")


def test_clients_are_asked_for_metrics(kafka: Console) -> None:
    entity = "--entity-type client-metrics --entity-name watch"
    kafka(f"configs --alter {entity} --add-config metrics=org.apache.kafka.,interval.ms=10000")
    assert kafka("client-metrics --list").split() == ["watch"]
    assert "interval.ms=10000" in kafka("client-metrics --describe")
    assert "GetTelemetrySubscriptions(71): 0 [usable: 0]" in kafka("api-versions")
    kafka("client-metrics --delete --name watch")
    assert kafka("client-metrics --list").split() == []
