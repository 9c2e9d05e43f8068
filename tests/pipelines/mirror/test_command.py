"""`ottla mirror` without Spark: its output and its errors."""

import json
import subprocess
import sys

from ottla import Producer
from tests.pipelines.mirror.mirroring import mirror, options_of


def ottla(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", "mirror", *words],
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=120,
    )


def test_status_shows_how_far_every_partition_is(source: str, target: str) -> None:
    with Producer(bootstrap_servers=source) as producer:
        for number in range(10):
            producer.send("orders", b"%d" % number)
        producer.flush()
        mirror(options_of(source, target, "orders", prefix="eu."))
        for number in range(3):
            producer.send("orders", b"%d" % number)
    words = ("--from", source, "--to", target, "--topics", "orders", "--prefix", "eu.")
    done = ottla(*words, "--status", "--format", "json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row == {
        "topic": "orders",
        "partition": 0,
        "copy": "eu.orders",
        "end_offset": 13,
        "copied_to": 10,
        "lag": 3,
        "records": 10,
    }


def test_what_cannot_be_meant_is_said_in_one_sentence(source: str, target: str) -> None:
    done = ottla("--from", source, "--to", target, "--topics", "[", "--once")
    assert done.returncode == 1
    assert done.stderr.startswith("ottla: '[' is no regular expression")
    assert len(done.stderr.splitlines()) == 1


def test_a_mirror_that_never_ran_has_no_status(source: str, target: str) -> None:
    done = ottla("--from", source, "--to", target, "--topics", "orders", "--status")
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["ottla: nothing was mirrored from there to here yet"]
