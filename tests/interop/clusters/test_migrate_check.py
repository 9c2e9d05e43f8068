"""`ottla migrate check` reads Kafka clusters and names the obstacles to a replacement."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla import Admin
from tests.clients.admin_stories import eventually
from tests.clients.cli_calls import OTTLA, SECONDS_MAX, call
from tests.interop.clusters.kafka_cluster import kafka_cluster
from tests.interop.kafka_node import JARS, TOOL_SECONDS_MAX, KafkaNode, kafka_node, run_tool
from tests.old_messages import message

HERE = Path(__file__).parent
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def check(servers: str) -> list[dict[str, Any]]:
    """Return the findings; the exit code must agree with them."""
    command = [*OTTLA, "migrate", "check", "--bootstrap-server", servers, "--json"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS_MAX)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert done.returncode == any(row["severity"] == "obstacle" for row in found), done.stderr
    return found


def texts(found: list[dict[str, Any]], severity: str, subject: str) -> dict[str, list[str]]:
    """Return the names by the first words of the sentence."""
    return {
        row["finding"].partition(",")[0].partition(":")[0]: row["names"]
        for row in found
        if (row["severity"], row["subject"]) == (severity, subject)
    }


def compiled(source: Path, folder: Path) -> Path:
    """Compile a plug-in."""
    javac = shutil.which("javac")
    assert javac is not None, "there is no javac here"
    command = [javac, "-cp", f"{JARS}/*", "-d", str(folder), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=TOOL_SECONDS_MAX)
    return folder


def test_a_fresh_cluster_has_no_obstacle(tmp_path: Path) -> None:
    with kafka_node(tmp_path) as node:
        found = check(node.start().bootstrap_server)
    assert {row["severity"] for row in found} == {"note"}
    assert texts(found, "note", "node") == {"the node is a controller": ["1"]}


def test_obstacles_of_brokers_topics_and_groups_are_named(tmp_path: Path) -> None:
    """The old messages lie in a folder that the broker opens."""
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT"
    users = "org.apache.kafka.common.security.plain.PlainLoginModule required user_felix=secret;"
    settings = {
        "authorizer.class.name": STANDARD,
        "super.users": "User:ANONYMOUS",
        "kafka.metrics.reporters": "kafka.metrics.KafkaCSVMetricsReporter",
        "delegation.token.secret.key": "secret",
        "listener.security.protocol.map": protocols,
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": users,
    }
    with kafka_node(tmp_path, settings=settings) as node:
        text = node.properties.read_text()
        node.properties.write_text(
            text.replace(",CONTROLLER:/", ",SASL://127.0.0.1:0,CONTROLLER:/")
        )
        node.start()
        servers = node.bootstrap_server
        with Admin(bootstrap_servers=servers) as admin:
            admin.topics.create(["letters", "old"])
        add_security(servers)
        with_old_messages(node, "old")
        join(servers, "readers", "consumer")
        found = check(servers)
    blocking = texts(found, "obstacle", "node")
    assert blocking.keys() == {
        "authorizer.class.name is set",
        "delegation tokens are enabled",
        "listener SASL speaks SASL_PLAINTEXT",
    }
    assert {tuple(names) for names in blocking.values()} == {("1",)}
    assert list(texts(found, "obstacle", "partition").values()) == [["old-0"]]
    assert texts(found, "obstacle", "group") == {
        "Ottla does not coordinate consumer groups": ["readers"]
    }
    notes = texts(found, "note", "cluster")
    for kept in ("ACLs of the cluster", "quotas of the cluster", "SCRAM users of the cluster"):
        assert f"Ottla keeps the {kept}" in notes
    assert "kafka.metrics.reporters is kafka.metrics.KafkaCSVMetricsReporter" in texts(
        found, "note", "node"
    )


def test_a_policy_in_the_file_of_a_controller_is_found(tmp_path: Path) -> None:
    classes = compiled(HERE / "Policy.java", tmp_path)
    policy = {"create.topic.policy.class.name": "Policy"}
    with kafka_cluster(tmp_path, brokers=1, controller_settings=policy, classes=classes) as cluster:
        cluster.start()
        found = check(cluster.bootstrap_servers)
    assert texts(found, "obstacle", "node") == {"create.topic.policy.class.name is Policy": ["101"]}


def test_a_cluster_that_cannot_be_read_ends_with_2(tmp_path: Path) -> None:
    done = call("migrate", "check", "--bootstrap-server", "127.0.0.1:1", "--json", expect=2)
    assert done.stdout == b""
    assert b"nothing listens on 127.0.0.1:1" in done.stderr


def add_security(servers: str) -> None:
    """Write an ACL, a SCRAM user and a quota."""
    client = AdminClient({"bootstrap.servers": servers})
    binding = AclBinding(
        ResourceType.TOPIC,
        "letters",
        ResourcePatternType.LITERAL,
        "User:felix",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    for future in client.create_acls([binding]).values():
        future.result()
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion("felix", scram, b"password")
    for future in client.alter_user_scram_credentials([upsertion]).values():
        future.result()
    alter = ("--alter", "--add-config", "producer_byte_rate=1000000")
    entity = ("--entity-type", "clients", "--entity-name", "loud")
    done = run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", servers, *alter, *entity)
    assert done.returncode == 0, done.stdout + done.stderr


def with_old_messages(node: KafkaNode, topic: str) -> None:
    """Put messages of the format before 0.11 into a partition, as an upgraded cluster has them."""
    node.stop()
    (log,) = (node.logs / f"{topic}-0").glob("*.log")
    log.write_bytes(b"".join(message(offset, magic=1) for offset in range(3)))
    for file in (*log.parent.glob("*index"), log.parent / "leader-epoch-checkpoint"):
        file.unlink(missing_ok=True)
    (node.logs / ".kafka_cleanshutdown").unlink()
    (node.logs / "recovery-point-offset-checkpoint").unlink()
    node.start()


def join(servers: str, group: str, protocol: str) -> None:
    """Make a group by a member that stays until the group is listed."""
    settings = {"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol}
    consumer = Consumer(settings)
    consumer.subscribe(["letters"])
    with Admin(bootstrap_servers=servers) as admin:
        eventually(lambda: consumer.poll(0.1) is None and bool(admin.groups.list()))
    consumer.close()


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's CSV reporter writes into the current directory."""
    monkeypatch.chdir(tmp_path)
