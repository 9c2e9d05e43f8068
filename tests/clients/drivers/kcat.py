"""kcat, a separate program; of the admin requests it has only the list of topics.

Records go in and out as text. A group member reads continuously in the background, so the records
it has printed are the records it has read.
"""

import json
import re
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable

from tests.clients.driver import (
    HEARTBEAT_MS,
    IMPATIENCE,
    SECONDS_MAX,
    SESSION_MS,
    Driver,
    Member,
    Received,
    Sent,
)

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
IMPATIENT = [
    word
    for name, value in IMPATIENCE.items()
    if name != "retry.backoff.max.ms"  # Debian's librdkafka is too old for that
    for word in ("-X", f"{name}={value}")
]
PARTITION = re.compile(r"\[(\d+)\]")


class KcatMember(Member):
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: deque[str] = deque()
        self._partitions: set[int] = set()
        self._readers = [
            threading.Thread(target=work, daemon=True) for work in (self._read_out, self._read_err)
        ]
        for reader in self._readers:
            reader.start()

    def _read_out(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)

    def _read_err(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if "rebalanced" not in line:
                continue
            named = {int(number) for number in PARTITION.findall(line)}
            if "revoke" in line:
                self._partitions = self._partitions - named
            else:
                self.rebalances += 1
                self._partitions = self._partitions | named

    def read(self) -> list[Received]:
        time.sleep(0.05)
        return self._take()

    def partitions(self) -> set[int]:
        return self._partitions

    def close(self) -> list[Received]:
        self._process.terminate()
        self._process.wait(SECONDS_MAX)
        for reader in self._readers:
            reader.join(SECONDS_MAX)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        return self._take()

    def _take(self) -> list[Received]:
        return [_received(self._lines.popleft()) for _ in range(len(self._lines))]


class KcatDriver(Driver):
    name = "kcat"
    sets_timestamps = False

    def topics(self) -> dict[str, int]:
        found = json.loads(self._kcat("-L", "-J"))["topics"]
        return {topic["topic"]: len(topic["partitions"]) for topic in found}

    def produce(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        codec: str = "none",
        is_idempotent: bool = False,
        records_per_batch: int = 1_000,
    ) -> None:
        batch = list(records)
        (headers,) = {record.headers for record in batch}
        lines = [b"%s\t%s\n" % (record.key or b"", record.value or b"") for record in batch]
        self._kcat(
            *("-P", "-t", topic, "-p", "0", "-K", "\t", "-Z", "-z", codec),
            *(word for key, value in headers for word in ("-H", f"{key}={value.decode()}")),
            *("-X", f"enable.idempotence={str(is_idempotent).lower()}"),
            *("-X", f"batch.num.messages={records_per_batch}"),
            stdin=b"".join(lines),
        )

    def consume(self, topic: str, count: int, *, offset: int = 0) -> list[Received]:
        where = ("-t", topic, "-p", "0", "-o", str(offset))
        printed = self._kcat("-C", *where, "-c", str(count), "-J")
        return [_received(line) for line in printed.splitlines()]

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        printed = self._kcat("-Q", "-t", f"{topic}:0:{timestamp_ms}")
        offset = int(printed.rpartition("offset")[2])
        return None if offset < 0 else offset

    def join(
        self,
        group: str,
        topic: str,
        *,
        instance: str | None = None,
        is_cooperative: bool = False,
    ) -> Member:
        settings = {
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": "cooperative-sticky" if is_cooperative else "range",
        }
        if instance is not None:
            settings["group.instance.id"] = instance
        options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
        assert KCAT is not None
        process = subprocess.Popen(
            [KCAT, "-b", self.servers, "-G", group, "-E", "-J", "-u", *options, topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return KcatMember(process)

    def _kcat(self, *arguments: str, stdin: bytes | None = None) -> str:
        assert KCAT is not None
        done = subprocess.run(
            [KCAT, "-b", self.servers, "-E", *IMPATIENT, *arguments],
            input=stdin,
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()


def _received(line: str) -> Received:
    found = json.loads(line)
    names, values = found.get("headers", [])[::2], found.get("headers", [])[1::2]
    return Received(
        found["partition"],
        found["offset"],
        found["ts"],
        _bytes(found["key"]),
        _bytes(found["payload"]),
        tuple((name, value.encode()) for name, value in zip(names, values, strict=True)),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
