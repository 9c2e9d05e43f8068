"""One replica of the metadata log in a process of its own, which proposes while it leads.

Lines on the standard output, each with the monotonic time in milliseconds:

    ready                     the replica is open
    leader EPOCH              it leads; `follower EPOCH LEADER` otherwise
    acked EPOCH OFFSET VALUE  a record that it has proposed is committed

Commands on the standard input: `propose MILLISECONDS` proposes a record in this rhythm whenever the
replica leads; with 0, each record after the commit of its predecessor. `dump` prints all committed
values, `values VALUE …`. SIGTERM stops it in order.
"""

import argparse
import asyncio
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from ottla.broker.quorum.quorum_log import LogSettings
from ottla.broker.quorum.replica_life import ReplicaWorld
from ottla.model.api_error import ApiError
from ottla.model.identifiers import BrokerId, LeaderEpoch, Offset
from ottla.raft.settings import QuorumSettings
from ottla.raft.snapshots import SnapshotId
from ottla.runtime import cold_reads
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import KernelDisk
from ottla.runtime.network import KernelNetwork
from ottla.runtime.randomness import SystemRandomness
from tests.metadata_building import uuid_of
from tests.quorum_nodes import QuorumNode, first_voters, voter

HOST = "127.0.0.1"
NO_PAUSE = 0


def say(*words: object) -> None:
    now_ms = time.monotonic_ns() / 1e6
    sys.stdout.write(" ".join(map(str, (f"{now_ms:.3f}", *words))) + "\n")
    sys.stdout.flush()


class Teller:
    """Prints every change of the leader."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id

    def on_leader(self, epoch: LeaderEpoch, leader_id: BrokerId | None) -> None:
        if leader_id == self._node_id:
            say("leader", epoch)
        else:
            say("follower", epoch, leader_id)

    def on_committed(self, high_watermark: Offset) -> None:
        pass

    def on_snapshot(self, snapshot_id: SnapshotId) -> None:
        pass


class Proposer:
    """Proposes records while the node leads."""

    def __init__(self, node: QuorumNode, node_id: int) -> None:
        self._node = node
        self._node_id = node_id
        self._count = 0
        self._task: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, pause_ms: float) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.ensure_future(self._propose_all(pause_ms))

    async def _propose_all(self, pause_ms: float) -> None:
        while True:
            if not self._node.replica.is_leader:
                await self._node.watcher.changed.wait()
                continue
            committing = asyncio.ensure_future(self._propose())
            if pause_ms == NO_PAUSE:
                await committing
            else:
                self._running.add(committing)
                committing.add_done_callback(self._running.discard)
                await asyncio.sleep(pause_ms / 1000)

    async def _propose(self) -> None:
        replica = self._node.replica
        epoch = replica.epoch
        self._count += 1
        value = f"{self._node_id}-{epoch}-{self._count}"
        try:
            offset = self._node.propose(value.encode())
        except ApiError:
            return
        while replica.is_leader and replica.epoch == epoch:
            if replica.high_watermark > offset:
                say("acked", epoch, offset, value)
                return
            await self._node.watcher.changed.wait()


async def serve(arguments: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    ports = [int(port) for port in arguments.ports.split(",")]
    voters = [
        voter(number, HOST, port, uuid_of(number)) for number, port in enumerate(ports, start=1)
    ]
    with ThreadPoolExecutor(2) as threads:
        world = ReplicaWorld(
            KernelDisk(), KernelNetwork(), SystemClock(), SystemRandomness(), threads
        )
        node = await QuorumNode.start(
            world,
            arguments.folder,
            voters[arguments.id - 1],
            cold_reads=cold_reads,
            threads=threads,
            first=first_voters(*voters),
            settings=QuorumSettings(),
            log_settings=LogSettings(),
        )
        node.replica.listen(Teller(arguments.id))
        say("ready")
        if node.replica.is_leader:
            say("leader", node.replica.epoch)
        stopping = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stopping.set)
        proposer = Proposer(node, arguments.id)

        def on_command() -> None:
            line = sys.stdin.readline().split()
            if line[:1] == ["propose"]:
                proposer.begin(float(line[1]))
            elif line[:1] == ["dump"]:
                say("values", *(value.decode() for value in node.values()))
            elif not line:
                loop.remove_reader(sys.stdin)

        loop.add_reader(sys.stdin, on_command)
        await stopping.wait()
        await node.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--id", type=int, required=True)
    parser.add_argument("--ports", required=True)
    parser.add_argument("--folder", required=True)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
