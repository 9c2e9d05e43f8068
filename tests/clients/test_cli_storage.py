"""`ottla storage` as a shell calls it."""

import re
from pathlib import Path

import pytest

from tests.clients.cli_calls import call, refused, rows, text
from tests.interop.kafka_node import free_ports

CLUSTER = "Zv6MjWMpTyaRFQXSAyuwEA"
PROPERTIES = """\
process.roles=broker,controller
node.id=3
controller.quorum.bootstrap.servers=a:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
log.dirs={folder}/data,{folder}/meta
metadata.log.dir={folder}/meta
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(PROPERTIES.format(folder=tmp_path))
    return file


def test_a_node_is_formatted_and_shown(config: Path, tmp_path: Path) -> None:
    formatted = rows("storage", "format", "-t", CLUSTER, "-c", config, "--standalone")
    assert [(row["log_dir"], row["metadata"], row["state"]) for row in formatted] == [
        (f"{tmp_path}/data", False, "formatted"),
        (f"{tmp_path}/meta", True, "formatted"),
    ]
    seen = rows("storage", "info", "--config", config)
    assert [row["directory_id"] for row in seen] == [row["directory_id"] for row in formatted]
    assert {(row["cluster_id"], row["node_id"], row["state"]) for row in seen} == {
        (CLUSTER, 3, "formatted")
    }


def test_a_node_is_formatted_by_what_it_is_started_with(config: Path) -> None:
    options = ("-X", "node.id=4", "-X", "process.roles=controller")
    listener = ("-X", "listeners=CONTROLLER://:9093")
    call("storage", "format", "-t", CLUSTER, "-c", config, "--standalone", *options, *listener)
    seen = rows("storage", "info", "-c", config, *options, *listener)
    assert {row["node_id"] for row in seen} == {4}


def test_a_node_is_not_formatted_twice(config: Path, tmp_path: Path) -> None:
    words = ("storage", "format", "-t", CLUSTER, "-c", config, "--standalone")
    call(*words)
    assert refused(*words) == (
        f"{tmp_path}/data is formatted already: --ignore-formatted leaves it as it is"
    )
    kept = rows(*words, "--ignore-formatted")
    assert {row["state"] for row in kept} == {"was formatted"}
    assert refused("storage", "format", "-t", "another", "-c", config, "--standalone", "-g") == (
        f"{tmp_path}/data, {tmp_path}/meta belong to cluster {CLUSTER}, not to another"
    )


def test_a_controller_is_told_how_it_finds_its_quorum(config: Path, tmp_path: Path) -> None:
    sentence = refused("storage", "format", "-t", CLUSTER, "-c", config, expect=2)
    assert sentence.startswith("say how this controller finds its quorum: ")
    assert not (tmp_path / "meta").exists()


def test_a_node_without_roles_is_not_formatted(tmp_path: Path) -> None:
    words = ("storage", "format", "-t", CLUSTER, "-X", f"log.dirs={tmp_path}/data")
    assert refused(*words, expect=2).startswith("process.roles is not set: ")


def test_settings_that_contradict_each_other_are_refused(config: Path) -> None:
    words = ("storage", "format", "-t", CLUSTER, "-c", config, "--standalone")
    assert "must be at most broker.session.timeout.ms, 1 " in refused(
        *words, "-X", "broker.session.timeout.ms=1"
    )


def test_what_is_wrong_with_a_directory_is_told(config: Path, tmp_path: Path) -> None:
    done = call("storage", "info", "-c", config, expect=1)
    assert done.stderr.decode().splitlines() == [
        f"ottla: {tmp_path}/data: does not exist",
        f"ottla: {tmp_path}/meta: does not exist",
    ]
    (tmp_path / "data").mkdir()
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "meta.properties").write_text("version=1\ncluster.id=a\nnode.id=x\n")
    done = call("storage", "info", "-c", config, expect=1)
    first, second = done.stderr.decode().splitlines()
    assert first == f"ottla: {tmp_path}/data: not formatted"
    assert "meta.properties" in second


def test_directories_of_other_nodes_are_shown(config: Path, tmp_path: Path) -> None:
    for name, cluster_id in (("data", "one"), ("meta", "two")):
        (tmp_path / name).mkdir()
        marks = f"version=1\ncluster.id={cluster_id}\nnode.id=9\n"
        (tmp_path / name / "meta.properties").write_text(marks)
    done = call("storage", "info", "-c", config, expect=1)
    assert done.stderr.decode().splitlines() == [
        f"ottla: {tmp_path}/data belongs to node 9, not to 3",
        f"ottla: {tmp_path}/meta belongs to node 9, not to 3",
        "ottla: the directories belong to different clusters: one, two",
    ]


def test_random_ids_can_be_ids_of_clusters() -> None:
    ids = {text("storage", "random-uuid") for _ in range(2)}
    assert len(ids) == 2
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}\n", one) for one in ids)


def test_a_controller_with_a_torn_vote_does_not_start(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    settings = (
        *("-X", "process.roles=controller", "-X", "node.id=3"),
        *("-X", f"listeners=CONTROLLER://127.0.0.1:{port}"),
        *("-X", "controller.listener.names=CONTROLLER", "-X", "ottla.admin.listener="),
        *("-X", f"controller.quorum.bootstrap.servers=127.0.0.1:{port}"),
        *("-X", f"log.dirs={tmp_path}/data"),
    )
    call("storage", "format", "-t", CLUSTER, "--standalone", *settings)
    folder = tmp_path / "data" / "__cluster_metadata-0"
    (folder / "quorum-state").write_text('{"leaderId":')
    before = sorted(folder.iterdir())
    said = call("start", *settings, expect=1).stderr.decode().splitlines()
    assert said[-1].startswith("ottla: the metadata log cannot be used: quorum-state is not JSON")
    assert set(before) <= set(folder.iterdir())
