"""`ottla start`, as a process of its own."""

import os
import platform
import re
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.clients.cli_calls import OTTLA, SECONDS_MAX, call, lines_of_json, refused, rows, text


def started(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start a broker and return it with the address that it prints."""
    process = subprocess.Popen(
        [*OTTLA, "start", "--listen", "127.0.0.1:0", *arguments], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if match := re.search(r"listening on (\S+)", line):
            return process, match[1]
    raise AssertionError("it never listened")


def stopped(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=SECONDS_MAX)
    assert "stopping" in rest
    return process.returncode


def test_a_broker_starts_takes_records_and_stops_when_it_is_told(tmp_path: Path) -> None:
    process, address = started("--data-dir", str(tmp_path), "-X", "num.partitions=3")
    producer = Producer({"bootstrap.servers": address})
    producer.produce("letters", b"Dearest Ottla")
    assert producer.flush(SECONDS_MAX) == 0
    assert len(producer.list_topics(timeout=SECONDS_MAX).topics["letters"].partitions) == 3
    assert stopped(process) == 0
    assert (tmp_path / "letters-0" / "00000000000000000000.log").exists()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_server_properties_of_kafka_works_as_it_is(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "# Kafka's\nnode.id=7\nnum.partitions=2\nlog.retention.hours=1\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    process, address = started("--config", str(config))
    producer = Producer({"bootstrap.servers": address})
    assert list(producer.list_topics(timeout=SECONDS_MAX).brokers) == [7]
    assert stopped(process) == 0


@pytest.mark.parametrize(
    ("is_file", "given", "delay_ms"),
    [(False, (), "0"), (True, (), "3000"), (False, ("500",), "500")],
    ids=["no file", "a file", "given"],
)
def test_a_group_waits_for_others_only_where_a_file_or_a_setting_says_so(
    tmp_path: Path, is_file: bool, given: tuple[str, ...], delay_ms: str
) -> None:
    words = [word for text in given for word in ("-X", f"group.initial.rebalance.delay.ms={text}")]
    if is_file:
        config = tmp_path / "server.properties"
        config.write_text("node.id=1\n")
        words += ["--config", str(config)]
    process, address = started("--data-dir", str(tmp_path / "data"), *words)
    described = rows("config", "describe", "broker", "1", "--all", brokers=address)
    values = {row["name"]: row["value"] for row in described}
    assert values["group.initial.rebalance.delay.ms"] == delay_ms
    assert stopped(process) == 0


def test_a_wrong_setting_is_one_sentence_and_a_failure(tmp_path: Path) -> None:
    call = [*OTTLA, "start", "--data-dir", str(tmp_path), "-X", "num.partition=3"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 1
    assert "num.partitions" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_one_sentence_and_a_failure(tmp_path: Path) -> None:
    process, address = started("--data-dir", str(tmp_path / "a"))
    call = [*OTTLA, "start", "--listen", address, "--data-dir", str(tmp_path / "b")]
    done = subprocess.run(call, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert stopped(process) == 0
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert address.rpartition(":")[2] in done.stderr


def test_an_ephemeral_broker_says_where_it_is_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ready, folder = tmp_path / "ready", tmp_path / "temporary"
    folder.mkdir()
    process = subprocess.Popen(
        [*OTTLA, "start", "--ephemeral", "--port", "0", "--ready-file", str(ready)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert process.stderr is not None
    while not ready.exists():
        assert process.poll() is None
    address = ready.read_text().strip()
    created = rows("topic", "create", "letters", brokers=address)
    assert created == [{"topic": "letters", "status": "created"}]
    assert len(list(folder.iterdir())) == 1
    assert stopped(process) == 0
    assert not ready.exists()
    assert list(folder.iterdir()) == []


def test_a_broker_without_assertions_does_not_start() -> None:
    command = [sys.executable, "-O", *OTTLA[1:], "start", "--ephemeral"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 2
    assert done.stderr == "ottla: the broker needs its assertions: run Python without -O\n"


def test_a_call_that_contradicts_itself_is_refused() -> None:
    assert "--port" in refused("start", "--listen", "127.0.0.1:0", "--port", "0", expect=2)
    assert "--data-dir" in refused("start", "--ephemeral", "--data-dir", "x", expect=2)


@pytest.mark.parametrize("option", [("--port", "0"), ("--listen", "127.0.0.1:0")])
@pytest.mark.parametrize("source", ["override", "environment", "file"])
def test_listeners_are_never_replaced_by_a_plaintext_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: tuple[str, str], source: str
) -> None:
    listeners = "SASL_SSL://127.0.0.1:0"
    more: list[str | Path] = []
    if source == "override":
        more = ["-X", f"listeners={listeners}"]
    elif source == "environment":
        monkeypatch.setenv("KAFKA_LISTENERS", listeners)
    else:
        config = tmp_path / "server.properties"
        config.write_text(f"listeners={listeners}\n")
        more = ["--config", config]
    sentence = refused("start", "--ephemeral", *option, *more, expect=2)
    assert sentence.startswith(f"listeners={listeners} and --listen or --port")


def test_a_configuration_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    assert "nowhere" in refused("start", "--config", tmp_path / "nowhere.properties")


def test_the_files_that_a_broker_leaves_can_be_looked_into(tmp_path: Path) -> None:
    process, address = started("--data-dir", str(tmp_path))
    call("produce", "letters", "-k", "ottla", brokers=address, stdin=b"Dearest Ottla\n")
    assert stopped(process) == 0
    folder = tmp_path / "letters-0"
    shown = text("log", "dump", "--records", folder / "00000000000000000000.log")
    header, batch, names, record = (line.split(maxsplit=3) for line in shown.splitlines())
    assert (header[:2], batch[:2]) == (["POSITION", "BASE-OFFSET"], ["0", "0"])
    assert (names[2], record[2], "Dearest Ottla" in record[3]) == ("KEY", "ottla", True)
    snapshot = next(folder.glob("*.snapshot"))
    dumped = lines_of_json(text("log", "dump", snapshot, "--format", "json"))
    assert [row["last_offset"] for row in dumped] == [0]
    assert "no file of a partition" in refused("log", "dump", folder / "partition.metadata")
    assert "nowhere" in refused("log", "dump", folder / "nowhere" / "00000000000000000000.log")


def test_the_version_is_that_of_the_installed_package() -> None:
    version = metadata.version("ottla")
    assert text("--version") == f"ottla {version}\n"
    assert rows("version") == {
        "ottla": version,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    assert text("version").splitlines()[0].split() == ["OTTLA", version]
