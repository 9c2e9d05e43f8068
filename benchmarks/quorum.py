"""A quorum of three controllers: starts, commits, and writes after the end of the leader.

Ottla's three processes are replicas of the metadata log without brokers, and a write is a record
that the leader proposes. Kafka's three processes are controllers, and a write is a change of a
dynamic default of the brokers, asked of the controllers directly. So Kafka's figures have a
request of a client in them, which takes less than a millisecond.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from benchmarks import quorum_partitions
from benchmarks.comparison import MILLISECONDS, SECONDS, Case, Peer, Unit
from benchmarks.imports import with_bytecode_in
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.rpc.connection import Connection
from ottla.rpc.errors import check
from ottla.runtime.network import KernelNetwork
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.cluster.quorum_processes import QuorumProcesses
from tests.interop.kafka_node import JARS, KafkaServer, free_ports

TITLE = "A quorum of three controllers"
VOTERS: Final = 3
COMMITS: Final = 300
STARTS: Final = 5
OUR_ENDS: Final = 20
KAFKAS_ENDS: Final = 4
REST_SECONDS: Final = 1.0
"""The time between a restart and the next end, in which the restarted node catches up."""
KAFKAS_REST_SECONDS: Final = 8.0
WRITE_SECONDS_MAX: Final = 60
BROKER: Final = 4
SETTING: Final = "log.cleaner.backoff.ms"
_PROPERTIES: Final = """\
process.roles=controller
node.id={node_id}
listeners=CONTROLLER://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters={voters}
listener.security.protocol.map=CONTROLLER:PLAINTEXT
log.dirs={directory}/data
"""


class Quorum(Protocol):
    """Three running controllers."""

    def start(self) -> float:
        """Start them; return the seconds until the first write is committed."""

    def commits(self) -> list[float]:
        """Return the seconds of commits, one after the other."""

    def end(self, number: signal.Signals) -> float:
        """End the leader; return the seconds until the next leader has committed a write."""

    def close(self) -> None:
        """Kill them."""


class OurQuorum:
    """Replicas without brokers."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir()
        self._processes = QuorumProcesses(folder, environment)

    def start(self) -> float:
        """See `Quorum`."""
        processes = self._processes
        began_ms = _now_ms()
        processes.start()
        for node_id in processes.ids:
            processes.wait_for("ready", nodes=(node_id,))
            processes.tell("propose 2", node_id)
        return (processes.wait_for("acked").time_ms - began_ms) / 1000

    def commits(self) -> list[float]:
        """See `Quorum`."""
        processes = self._processes
        processes.tell("propose 0")
        time.sleep(REST_SECONDS)
        mark = processes.mark()
        while processes.mark() < mark + COMMITS:
            time.sleep(0.1)
        times = [line.time_ms for line in processes.lines[mark:] if line.words[0] == "acked"]
        processes.tell("propose 2")
        return [(after - before) / 1000 for before, after in pairwise(times)]

    def end(self, number: signal.Signals) -> float:
        """See `Quorum`."""
        processes = self._processes
        leader, mark = processes.leader(), processes.mark()
        began_ms = _now_ms()
        processes.send(leader, number)
        others = tuple(one for one in processes.ids if one != leader)
        acked = processes.wait_for("acked", after=mark, nodes=others)
        processes.ended(leader)
        mark = processes.mark()
        processes.start(leader)
        processes.wait_for("ready", after=mark, nodes=(leader,))
        processes.tell("propose 2", leader)
        time.sleep(REST_SECONDS)
        return (acked.time_ms - began_ms) / 1000

    def close(self) -> None:
        """Kill them."""
        self._processes.close()


class KafkaQuorum:
    """Apache Kafka's controllers."""

    def __init__(self, folder: Path) -> None:
        self._ports = free_ports(VOTERS)
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(self._ports, start=1))
        self._nodes: list[KafkaServer] = []
        for index, port in enumerate(self._ports):
            directory = folder / f"kafka-{index + 1}"
            properties = _PROPERTIES.format(
                node_id=index + 1, port=port, voters=voters, directory=directory
            )
            self._nodes.append(KafkaServer(directory, properties))
        self._pids: list[int] = []
        self._loop = asyncio.new_event_loop()
        self._connections: dict[int, Connection] = {}
        self._leader = 0
        self._count = 0

    def start(self) -> float:
        """See `Quorum`."""
        for node in self._nodes:
            node.format()
        began = time.perf_counter()
        self._pids = [node.launch() for node in self._nodes]
        self._write()
        return time.perf_counter() - began

    def commits(self) -> list[float]:
        """See `Quorum`."""
        found = []
        for _ in range(COMMITS // 3):
            began = time.perf_counter()
            self._write()
            found.append(time.perf_counter() - began)
        return found

    def end(self, number: signal.Signals) -> float:
        """See `Quorum`."""
        leader = self._leader
        began = time.perf_counter()
        os.kill(self._pids[leader], number)
        while self._leader == leader:
            self._write()
        seconds = time.perf_counter() - began
        node = self._nodes[leader]
        if number is signal.SIGKILL:
            node.kill()
        else:
            node.stop()
        self._pids[leader] = node.launch()
        node.await_listener(self._ports[leader])
        time.sleep(KAFKAS_REST_SECONDS)
        return seconds

    def _write(self) -> None:
        """Change a setting; ask the controllers in turn until one of them does it."""
        self._loop.run_until_complete(self._write_somewhere())

    async def _write_somewhere(self) -> None:
        deadline = time.monotonic() + WRITE_SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                await self._ask(self._leader)
            except (ApiError, OSError, TimeoutError):
                self._leader = (self._leader + 1) % VOTERS
                await asyncio.sleep(0.002)
            else:
                return
        raise TimeoutError("no controller of Kafka is active")

    async def _ask(self, index: int) -> None:
        connection = self._connections.get(index)
        if connection is None or not connection.is_open:
            connection = self._connections[index] = await Connection.open(
                Address("127.0.0.1", self._ports[index]),
                KernelNetwork().connect,
                client_id="benchmark",
                timeout_ms=1000,
            )
        self._count += 1
        config = AlterableConfig(name=SETTING, value=str(15_000 + self._count % 2))
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[config])
        response = await connection.ask(
            IncrementalAlterConfigsRequest(resources=[resource]),
            IncrementalAlterConfigsResponse,
            timeout_ms=1000,
        )
        (done,) = response.responses
        check(done.error_code, done.error_message)

    def close(self) -> None:
        """Kill them."""
        for connection in self._connections.values():
            connection.close()
        self._loop.close()
        for node in self._nodes:
            node.kill()


def cases() -> Iterator[Case]:
    """Yield starts, commits and ends, beside Kafka's where its jars are."""
    with TemporaryDirectory() as folder:
        # Installed packages have byte code. This source may have none, and its processes would
        # spend half of their starts on it. The first start makes it, and is not counted.
        environment = with_bytecode_in(f"{folder}/bytecode")
        _start_once(OurQuorum(Path(folder) / "first", environment))
        ours = _measured(
            lambda number: OurQuorum(Path(folder) / f"ours-{number}", environment), OUR_ENDS
        )
        theirs: dict[str, list[float]] = {}
        if JARS.is_dir():
            kafka = Path(folder) / "kafka"
            theirs = _measured(lambda number: KafkaQuorum(kafka / str(number)), KAFKAS_ENDS)
    for work, unit, p50, p99 in (
        ("start to the first commit", SECONDS, 1.5, None),
        ("commits, one at a time", MILLISECONDS, 5, None),
        ("kill -9 of the leader to the next commit", SECONDS, 0.3, 0.6),
        ("SIGTERM to the leader to the next commit", SECONDS, None, 0.1),
    ):
        yield _case(work, unit, p50, ours[work], theirs.get(work, []))
        yield _case(f"{work}, p99", unit, p99, [_p99(ours[work])], _p99s(theirs.get(work, [])))
    yield from quorum_partitions.cases()


def _start_once(quorum: Quorum) -> None:
    try:
        quorum.start()
    finally:
        quorum.close()


def _measured(make: Callable[[int], Quorum], ends: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for number in range(STARTS):
        quorum = make(number)
        try:
            found.setdefault("start to the first commit", []).append(quorum.start())
            if number < STARTS - 1:
                continue
            found["commits, one at a time"] = quorum.commits()
            found["kill -9 of the leader to the next commit"] = [
                quorum.end(signal.SIGKILL) for _ in range(ends)
            ]
            found["SIGTERM to the leader to the next commit"] = [
                quorum.end(signal.SIGTERM) for _ in range(ends)
            ]
        finally:
            quorum.close()
    return found


def _case(
    work: str, unit: Unit, asked: float | None, ours: list[float], theirs: list[float]
) -> Case:
    figures = tuple(seconds * unit.factor for seconds in ours)
    peer = Peer("Kafka", lambda: None, None, tuple(seconds * unit.factor for seconds in theirs))
    return Case(
        work=work, unit=unit, ours=lambda: None, asked=asked, figures=figures, peers=(peer,)
    )


def _p99s(figures: list[float]) -> list[float]:
    return [_p99(figures)] if figures else []


def _p99(figures: list[float]) -> float:
    return sorted(figures)[max(round(len(figures) * 0.99) - 1, 0)]


def _now_ms() -> float:
    return time.monotonic_ns() / 1e6
