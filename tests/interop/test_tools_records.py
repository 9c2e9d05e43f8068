"""Kafka's tools write records to Ottla, read, count and delete them, and describe the disk."""

import json
import re
from pathlib import Path

import pytest

from tests.interop.console import Console, line_with, table
from tests.interop.kafka_clients import NewRecord, consume, producer, send
from tests.interop.kafka_dump import dump
from tests.interop.ottla_process import OttlaProcess

EACH_CODEC = ["none", "gzip", "snappy", "lz4", "zstd"]
CREATED_MS = 1_700_000_000_000


def offsets(kafka: Console, topic: str, *options: str) -> list[int]:
    """Ask for an offset of every partition."""
    printed = kafka(f"get-offsets --topic {topic} {' '.join(options)}")
    return [int(line.rpartition(":")[2]) for line in printed.split()]


@pytest.mark.parametrize("codec", EACH_CODEC)
def test_lines_come_out_as_they_went_in(kafka: Console, ottla: OttlaProcess, codec: str) -> None:
    topic = f"lines-{codec}"
    lines = [f"number:{n},codec:{codec}\tkey {n}\tvalue {n}" for n in range(20)]
    kafka(
        f"console-producer --topic {topic} --compression-codec {codec}"
        " --reader-property parse.key=true --reader-property parse.headers=true",
        stdin="\n".join(lines),
    )

    printed = kafka(
        f"console-consumer --topic {topic} --from-beginning --max-messages 20 --timeout-ms 20000"
        " --formatter-property print.key=true --formatter-property print.headers=true"
    )
    assert sorted(printed.splitlines()) == sorted(lines)
    logs = list(ottla.logs.glob(f"{topic}-*/*.log"))
    found = dump([path for path in logs if path.stat().st_size], "--deep-iteration")
    assert {row["compresscodec"] for file in found.by_path.values() for row in file.rows} == {codec}


def test_a_reader_begins_at_any_offset(kafka: Console) -> None:
    kafka("topics --create --topic numbered --partitions 1")
    kafka("console-producer --topic numbered", stdin="zero\none\ntwo\nthree\n")
    begin = "console-consumer --topic numbered --partition 0 --timeout-ms 20000"
    assert kafka(f"{begin} --offset 1 --max-messages 2").split() == ["one", "two"]
    assert kafka(f"{begin} --offset earliest --max-messages 1").split() == ["zero"]


def test_offsets_are_found_by_place_and_time(kafka: Console, ottla: OttlaProcess) -> None:
    kafka("topics --create --topic timed --partitions 1")
    records = [NewRecord(CREATED_MS + number, None, "x") for number in range(5)]
    send(producer(ottla.server), "timed", 0, records)
    assert offsets(kafka, "timed") == [5]
    assert offsets(kafka, "timed", "--time earliest") == [0]
    assert offsets(kafka, "timed", f"--time {CREATED_MS + 3}") == [3]
    assert offsets(kafka, "timed", "--time max-timestamp") == [4]
    assert offsets(kafka, "timed", "--time earliest-local") == [0]
    assert offsets(kafka, "timed", "--time latest-tiered") == []
    assert offsets(kafka, "timed", "--time earliest-pending-upload") == []


def test_every_number_that_is_verified_is_there(kafka: Console, ottla: OttlaProcess) -> None:
    kafka("topics --create --topic verified --partitions 1")
    printed = kafka("verifiable-producer --topic verified --max-messages 500 --value-prefix 7")
    events = [json.loads(line) for line in printed.splitlines()]
    acknowledged = [e["value"] for e in events if e["name"] == "producer_send_success"]
    assert (events[-1]["sent"], events[-1]["acked"]) == (500, 500)

    seen = [record.value for record in consume(ottla.server, "verified", 0)]
    assert seen == acknowledged == [f"7.{n}" for n in range(500)]

    reader = "verifiable-consumer --topic verified --group-id verifiers --reset-policy earliest"
    printed = kafka(f"{reader} --max-messages 500 --verbose")
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [e["value"] for e in events if e["name"] == "record_data"] == acknowledged
    committed = [e for e in events if e["name"] == "offsets_committed"]
    assert committed[-1]["success"]
    assert committed[-1]["offsets"] == [{"topic": "verified", "partition": 0, "offset": 500}]


def test_two_at_once_share_the_partitions(kafka: Console) -> None:
    kafka("topics --create --topic shared --partitions 4")
    line = "verifiable-consumer --topic shared --group-id sharers --group-instance-id {}"
    with kafka.running(line.format("one")) as one:
        line_with(one, "partitions_assigned")
        with kafka.running(line.format("two")) as two:
            seen = line_with(two, "partitions_assigned")
            assert len(json.loads(seen)["partitions"]) == 2
            described = kafka("consumer-groups --describe --group sharers --members")
    assert sorted((row[2], row[-1]) for row in table(described)) == [("one", "2"), ("two", "2")]


def test_the_load_tests_count_what_was_sent(kafka: Console) -> None:
    kafka("topics --create --topic load --partitions 3")
    options = "--topic load --num-records 50000"
    sent = kafka(
        f"producer-perf-test {options} --record-size 100 --throughput -1"
        " --command-property acks=all compression.type=lz4"
    )
    assert re.match(r"50000 records sent, \d+", sent.splitlines()[-1])
    assert sum(offsets(kafka, "load")) == 50_000

    heading, row = kafka(f"consumer-perf-test {options} --timeout 20000").splitlines()[-2:]
    read = dict(zip(heading.split(", "), row.split(", "), strict=True))
    assert int(read["data.consumed.in.nMsg"]) >= 50_000


def test_latency_is_measured_from_end_to_end(kafka: Console) -> None:
    line = "e2e-latency --topic latency --num-records 100 --producer-acks all --record-size 64"
    assert re.search(r"Avg latency: \d+\.\d+ ms", kafka(line))
    assert offsets(kafka, "latency") == [100]


def test_records_are_deleted_up_to_an_offset(
    kafka: Console, ottla: OttlaProcess, tmp_path: Path
) -> None:
    kafka("topics --create --topic trimmed --partitions 2")
    kafka("console-producer --topic trimmed", stdin="\n".join(map(str, range(10))))
    partition = offsets(kafka, "trimmed").index(10)
    file = tmp_path / "offsets.json"
    line = f"delete-records --offset-json-file {file}"

    def named(offset: int) -> str:
        wanted = [{"topic": "trimmed", "partition": partition, "offset": offset}]
        return json.dumps({"version": 1, "partitions": wanted})

    file.write_text(named(4))
    assert f"partition: trimmed-{partition}\tlow_watermark: 4" in kafka(line)
    left = consume(ottla.server, "trimmed", partition, auto_offset_reset="earliest")
    assert [record.offset for record in left] == [*range(4, 10)]
    file.write_text(named(99))
    assert "OffsetOutOfRangeException" in kafka(line)
    file.write_text(named(-1))
    assert "low_watermark: 10" in kafka(line)
    assert offsets(kafka, "trimmed", "--time earliest")[partition] == 10
