"""Kafka's tools describe an Ottla broker: endpoints, versions, disks, features, a quorum of one."""

import json
from pathlib import Path

from tests.interop.console import Console, table
from tests.interop.kafka_dump import dump
from tests.interop.ottla_process import OttlaProcess


def test_the_cluster_has_an_id_and_one_endpoint(kafka: Console, ottla: OttlaProcess) -> None:
    named = kafka("cluster cluster-id").strip()
    assert named.startswith("Cluster ID: ")
    host, port = ottla.server.split(":")
    endpoints = table(kafka("cluster list-endpoints"))
    assert endpoints == [["1", host, port, "null", "unfenced", "broker"]]
    assert named.removeprefix("Cluster ID: ") in kafka("metadata-quorum describe --status")


def test_every_offered_version_is_one_that_kafka_can_use(kafka: Console) -> None:
    lines = kafka("api-versions").splitlines()
    offered = [line for line in lines if "usable" in line]
    assert len(offered) > 35
    assert any("Produce(0): 0 to 13 [usable: 13]" in line for line in offered)
    assert not [line for line in lines if "UNKNOWN" in line]


def test_a_client_of_kafkas_finds_all_that_it_expects(kafka: Console) -> None:
    names = "cluster-id describe-configs offsets-for-times idempotent-producer create-topics"
    supported = " ".join(f"--{name}-supported true" for name in names.split())
    line = f"client-compatibility --topic compatible {supported} --num-cluster-nodes 1"
    line += " --describe-acls-supported true --expect-record-too-large-exception false"
    assert "SUCCESS" in kafka(line)


def test_the_disks_are_described(kafka: Console, ottla: OttlaProcess) -> None:
    kafka("topics --create --topic stored --partitions 2")
    kafka("console-producer --topic stored", stdin="a\nb\nc\n")
    printed = kafka("log-dirs --describe --topic-list stored").splitlines()[-1]
    (broker,) = json.loads(printed)["brokers"]
    (disk,) = broker["logDirs"]
    assert (disk["logDir"], disk["error"]) == (str(ottla.logs), None)
    assert {row["partition"]: row["size"] for row in disk["partitions"]} == {
        path.name: sum(file.stat().st_size for file in path.glob("*.log"))
        for path in ottla.logs.glob("stored-*")
    }


def test_features_and_the_quorum_of_one_are_told(kafka: Console) -> None:
    assert "Feature: metadata.version" in kafka("features describe")
    (row,) = table(kafka("metadata-quorum describe --replication"))
    assert (row[0], row[3], row[-1]) == ("1", "0", "Leader")


def test_the_leader_is_the_preferred_one_already(kafka: Console) -> None:
    kafka("topics --create --topic led --partitions 1")
    line = "leader-election --election-type preferred --topic led --partition 0"
    assert "Valid replica already elected for partitions led-0" in kafka(line)


def test_a_reassignment_is_proposed_carried_out_and_verified(
    kafka: Console, tmp_path: Path
) -> None:
    kafka("topics --create --topic moved --partitions 2")
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    line = f"reassign-partitions --generate --topics-to-move-json-file {topics} --broker-list 1"
    proposed = kafka(line).splitlines()[-1]
    assert [p["replicas"] for p in json.loads(proposed)["partitions"]] == [[1], [1]]

    plan.write_text(proposed)
    started = kafka(f"reassign-partitions --execute --reassignment-json-file {plan}")
    assert "Successfully started partition reassignments for moved-0,moved-1" in started
    verified = kafka(f"reassign-partitions --verify --reassignment-json-file {plan}")
    assert verified.count("is completed") == 2
    assert kafka("reassign-partitions --list").strip() == "No partition reassignments found."


def test_idempotent_producers_are_described(kafka: Console) -> None:
    kafka("topics --create --topic produced --partitions 1")
    kafka("console-producer --topic produced", stdin="a\nb\nc\n")
    (row,) = table(kafka("transactions describe-producers --topic produced --partition 0"))
    assert (row[1], row[3], row[-1]) == ("0", "2", "None")


def test_the_dump_tool_finds_no_fault_with_a_brokers_folder(
    kafka: Console, ottla: OttlaProcess
) -> None:
    kafka("topics --create --topic dumped --partitions 1")
    load = "producer-perf-test --topic dumped --num-records 20000 --record-size 100"
    kafka(f"{load} --throughput -1")
    kafka("console-consumer --topic dumped --group dumpers --from-beginning --max-messages 5")

    files = sorted(
        path
        for name in ("dumped-0", "__consumer_offsets-*")
        for path in ottla.logs.glob(f"{name}/*")
        if path.suffix in {".log", ".index", ".timeindex", ".snapshot"}
    )
    found = dump(files, "--deep-iteration")
    assert found.complaints == []
    batches = found.by_path[ottla.logs / "dumped-0" / f"{0:020}.log"].rows
    assert sum(int(row["count"]) for row in batches) == 20_000
    assert {row["isvalid"] for row in batches} == {"true"}


def test_the_groups_log_is_read_by_kafkas_decoder(kafka: Console, ottla: OttlaProcess) -> None:
    kafka("topics --create --topic committed --partitions 1")
    kafka("console-producer --topic committed", stdin="a\nb\nc\n")
    consumer = "console-consumer --from-beginning --timeout-ms 20000"
    kafka(f"{consumer} --topic committed --group keepers --max-messages 3")
    logs = [path for path in ottla.logs.glob("__consumer_offsets-*/*.log") if path.stat().st_size]

    found = dump(logs, "--offsets-decoder")
    assert found.complaints == []
    keys = [str(r["key"]) for file in found.by_path.values() for r in file.records]
    wanted = {"group": "keepers", "topic": "committed", "partition": 0}
    assert wanted in [json.loads(key)["data"] for key in keys if key.startswith("{")]
