"""The mirror as Spark runs it."""

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, CommittedOffset, Producer, TopicPartition
from ottla.pipelines.mirror.options import MirrorError
from ottla.pipelines.mirror.running import Mirror, Progress
from tests.pipelines.mirror.mirroring import contents, options_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def send(servers: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, key=b"%d" % (number % 10))
        producer.flush()


def test_what_is_there_is_copied_and_then_it_ends(
    spark: "SparkSession", source: str, target: str, tmp_path: Path
) -> None:
    with Admin(bootstrap_servers=source) as admin:
        admin.topics.create("once", partitions=3)
        send(source, "once", 500)
        admin.groups.commit("readers", {TopicPartition("once", 0): CommittedOffset(7)})
    options = options_of(source, target, "once", range_bytes=1_000)
    for _ in range(2):
        progress = Mirror(spark, options, tmp_path).run_once()
        assert progress.lag == 0
        send(source, "once", 50)
    arrived = contents(target, "once")
    assert sum(map(len, arrived.values())) == 550
    assert {number: rows[: len(arrived[number])] for number, rows in
            contents(source, "once").items()} == arrived  # fmt: skip
    with Admin(bootstrap_servers=target) as admin:
        assert admin.groups.committed("readers")[TopicPartition("once", 0)].offset == 7


def test_it_goes_on_and_on_until_it_is_stopped(
    spark: "SparkSession", source: str, target: str, tmp_path: Path
) -> None:
    send(source, "endless", 100)
    mirror = Mirror(spark, options_of(source, target, "end.*"), tmp_path)
    seen: list[Progress] = []

    def look(progress: Progress) -> None:
        if progress.records == 100 and (not seen or seen[-1].records < 100):
            send(source, "endless", 200)
            send(source, "ending", 10)
        if progress.records == 310 and progress.lag == 0:
            mirror.stop()
        seen.append(progress)

    running = threading.Thread(
        target=mirror.run, kwargs={"interval_seconds": 0.2, "on_progress": look}
    )
    running.start()
    running.join(120)
    mirror.stop()
    running.join()
    assert seen[-1].records == 310
    for topic in ("endless", "ending"):
        assert contents(target, topic) == contents(source, topic)


def test_what_is_wrong_is_said_in_one_sentence(
    spark: "SparkSession", source: str, target: str, tmp_path: Path
) -> None:
    for servers in (source, target):
        send(servers, "foreign", 1)
    with pytest.raises(MirrorError, match="delete it there, or use --prefix"):
        Mirror(spark, options_of(source, target, "foreign"), tmp_path).run_once()


@pytest.mark.soak
def test_a_python_that_starts_too_slowly_for_spark_is_started_again(
    spark: "SparkSession",
    source: str,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow_once = tmp_path / "python"
    slow_once.write_text(f"""#!/bin/sh
        case "$*" in *streaming_source_runner*) mkdir {tmp_path}/was-slow 2>&1 && sleep 15 ;; esac
        exec {sys.executable} "$@"
    """)
    slow_once.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(slow_once))
    send(source, "patient", 10)
    options = options_of(source, target, "patient")
    assert Mirror(spark, options, tmp_path / "checkpoint").run_once().records == 10
    assert "the copying is started again" in caplog.text
