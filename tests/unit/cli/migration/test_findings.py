"""Facts about a Kafka cluster become obstacles and notes."""

from dataclasses import replace

import pytest

from ottla.cli.migration.cluster_facts import ClusterFacts, NodeFacts
from ottla.cli.migration.finding import Finding, Severity
from ottla.cli.migration.findings import findings
from ottla.cli.migration.node_findings import (
    STANDARD_AUTHORIZER,
    TESTED_METADATA_VERSION,
    node_findings,
)
from ottla.model.identifiers import BrokerId, TopicPartition

ONE = BrokerId(1)
SOUND = ClusterFacts(nodes=(NodeFacts(ONE, metadata_version_max=TESTED_METADATA_VERSION),))
LEVELS = {"metadata.version": (7, 30), "kraft.version": (0, 1)}
SASL = {
    "listeners": "CLIENTS://:9092",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}


def only(found: list[Finding]) -> Finding:
    (one,) = found
    assert ": " in one.text, "no remedy"
    return one


def about(settings: dict[str, str]) -> list[tuple[Severity, str]]:
    found = node_findings(NodeFacts(ONE, settings, TESTED_METADATA_VERSION))
    return [(one.severity, one.text) for one in found]


def test_a_sound_cluster_has_no_finding() -> None:
    assert findings(SOUND, LEVELS) == []


@pytest.mark.parametrize(
    ("settings", "severity", "words"),
    [
        ({"authorizer.class.name": "a.B"}, "obstacle", "a.B, and Ottla loads no Java class"),
        ({"authorizer.class.name": STANDARD_AUTHORIZER}, "obstacle", "allow every request"),
        ({"create.topic.policy.class.name": "a.B"}, "obstacle", "remove the policy"),
        ({"client.quota.callback.class": "a.B"}, "obstacle", "quotas of users"),
        ({"principal.builder.class": "a.B"}, "obstacle", "return to the default"),
        ({"replica.selector.class": "a.B"}, "obstacle", "RackAwareReplicaSelector"),
        ({"group.consumer.assignors": "range, a.B"}, "obstacle", "is a.B, and"),
        ({"listener.name.in.principal.builder.class": "a.B"}, "obstacle", "listener.name.in"),
        (
            {"listener.name.in.plain.sasl.server.callback.handler.class": "a.B"},
            "obstacle",
            "listener.name.in.plain",
        ),
        ({"metric.reporters": "a.B"}, "note", "HTTP endpoint"),
        ({"config.providers": "file"}, "note", "write the values"),
        ({"delegation.token.secret.key": ""}, "obstacle", "delegation tokens"),
        ({"remote.log.storage.system.enable": "true"}, "obstacle", "tiered records"),
        ({"zookeeper.metadata.migration.enable": "true"}, "obstacle", "finish it"),
        ({"process.roles": "broker, controller"}, "note", "is a controller, too"),
        ({"listeners": "SSL://:9093"}, "obstacle", "listener SSL speaks SSL"),
        (SASL, "obstacle", "listener CLIENTS speaks SASL_SSL"),
        (
            {"controller.listener.names": "C", "listener.security.protocol.map": "C:SSL"},
            "obstacle",
            "listener C speaks SSL",
        ),
    ],
)
def test_a_setting_of_a_node_is_a_finding(
    settings: dict[str, str], severity: str, words: str
) -> None:
    ((found_severity, text),) = about(settings)
    assert found_severity == severity
    assert words in text
    assert ": " in text, "no remedy"


@pytest.mark.parametrize(
    "settings",
    [
        {"authorizer.class.name": ""},
        {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"},
        {"metric.reporters": "org.apache.kafka.common.metrics.JmxReporter"},
        {"group.consumer.assignors": "uniform,range"},
        {"remote.log.storage.system.enable": "false"},
        {"process.roles": "controller"},
        {"listeners": "PLAINTEXT://:9092", "controller.listener.names": "CONTROLLER"},
        {"sasl.enabled.mechanisms": "GSSAPI"},
    ],
)
def test_a_harmless_setting_is_no_finding(settings: dict[str, str]) -> None:
    assert about(settings) == []


@pytest.mark.parametrize(
    ("mechanisms", "words"),
    [
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "Kerberos"),
        ({"listener.name.clients.sasl.enabled.mechanisms": "GSSAPI"}, "Kerberos"),
        ({"sasl.enabled.mechanisms": "OURS"}, "a plug-in's"),
    ],
)
def test_a_mechanism_of_a_sasl_listener_is_an_obstacle(
    mechanisms: dict[str, str], words: str
) -> None:
    texts = [text for severity, text in about(SASL | mechanisms) if severity == "obstacle"]
    assert any(words in text and "SASL mechanism" in text for text in texts)


def test_a_sasl_listener_has_kerberos_unless_another_mechanism_is_set() -> None:
    settings = {name: text for name, text in SASL.items() if name != "sasl.enabled.mechanisms"}
    assert any("Kerberos" in text for _, text in about(settings))


@pytest.mark.parametrize(("version", "words"), [(21, "upgrade it"), (31, "rehearse")])
def test_another_release_of_kafka_is_a_note(version: int, words: str) -> None:
    (found,) = node_findings(NodeFacts(ONE, {}, version))
    assert found.severity is Severity.NOTE
    assert words in found.text


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ({"metadata.version": 31}, "downgrade --feature metadata.version=30"),
        ({"metadata.version": 6}, "upgrade --feature metadata.version=7"),
        ({"new.version": 1}, "does not know this feature"),
    ],
)
def test_a_level_of_a_feature_beyond_ottlas_is_an_obstacle(
    levels: dict[str, int], words: str
) -> None:
    found = only(findings(replace(SOUND, level_by_feature=levels), LEVELS))
    assert found.severity is Severity.OBSTACLE
    assert words in found.text


@pytest.mark.parametrize(
    ("facts", "severity", "names", "words"),
    [
        (replace(SOUND, has_quorum=False), "obstacle", (), "migrate the cluster to KRaft"),
        (replace(SOUND, unread_nodes=(BrokerId(9),)), "note", ("9",), "plug-ins and policies"),
        (replace(SOUND, tiered_topics=("t",)), "obstacle", ("t",), "tiered records"),
        (
            replace(SOUND, old_format_partitions=(TopicPartition("t", 1),)),
            "obstacle",
            ("t-1",),
            "before Kafka 0.11",
        ),
        (
            replace(SOUND, offline_partitions=(TopicPartition("t", 0),)),
            "obstacle",
            ("t-0",),
            "start its brokers",
        ),
        (
            replace(SOUND, groups_by_type={"share": ("s",), "classic": ("c",)}),
            "obstacle",
            ("s",),
            "share groups",
        ),
        (replace(SOUND, acl_count=2), "note", (), "ACLs of the cluster, 2"),
        (replace(SOUND, quota_count=3), "note", (), "quotas of the cluster, 3"),
        (replace(SOUND, scram_users=("u",)), "note", (), "SCRAM users of the cluster, 1"),
        (replace(SOUND, level_by_feature={"kraft.version": 0}), "note", (), "kraft.version=1"),
    ],
)
def test_a_fact_about_the_cluster_is_a_finding(
    facts: ClusterFacts, severity: str, names: tuple[str, ...], words: str
) -> None:
    found = only(findings(facts, LEVELS))
    assert (found.severity, found.names) == (severity, names)
    assert words in found.text


def test_permitted_groups_are_a_note_and_existing_groups_an_obstacle() -> None:
    levels = {**LEVELS, "group.version": (0, 1)}
    permitted = replace(SOUND, level_by_feature={"group.version": 1})
    assert only(findings(permitted, levels)).severity is Severity.NOTE
    existing = replace(permitted, groups_by_type={"consumer": ("readers",)})
    assert only(findings(existing, levels)).names == ("readers",)


def test_one_sentence_about_several_nodes_is_one_finding_and_obstacles_come_first() -> None:
    settings = {"process.roles": "broker,controller", "client.quota.callback.class": "a.B"}
    nodes = tuple(
        NodeFacts(BrokerId(number), settings, TESTED_METADATA_VERSION) for number in (1, 2, 3)
    )
    found = findings(ClusterFacts(nodes), LEVELS)
    assert [one.severity.value for one in found] == ["obstacle", "note"]
    assert {one.names for one in found} == {("1", "2", "3")}
