"""Fetches the lost ranges of a replica from its leader, and has the damaged segments rewritten.

The fetch is a consumer's, in the leader's epoch: it reads committed records, and does not report
the progress of the replica. The replica must not lead or follow meanwhile.
"""

from typing import Final

from ottla.broker.maintenance.log_scrubber import ScrubThreads
from ottla.broker.peers.broker_clients import connect_to_broker
from ottla.broker.replication.fetcher_world import FetcherWorld
from ottla.broker.replication.replica_fetcher import FETCH_VERSION
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset
from ottla.replication.partition import Partition
from ottla.rpc.connection import Connection
from ottla.rpc.partition_fetcher import PartitionFetcher
from ottla.storage.compaction.segment_swap import OversizedSegmentError
from ottla.storage.files.damage import Damage
from ottla.storage.log.log import PartitionLog
from ottla.storage.recovery.repair import Repair, RepairError, UnfitBatchError, repairs
from ottla.wire.messages.fetch import FetchPartition

_LACKING: Final = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_OUT_OF_RANGE})


class LackingError(Exception):
    """The leader does not have the lost range, or only in a form that does not fit."""


class ReplicaRepair:
    """Repairs one replica at a time. Belongs to one event loop."""

    def __init__(self, world: FetcherWorld, threads: ScrubThreads) -> None:
        self._world = world
        self._threads = threads

    async def repair(self, partition: Partition) -> None:
        """Return when nothing is damaged any more.

        LackingError if the leader cannot help; RepairError, ApiError or an
        `OSError` if it is to be tried again.
        """
        world, log = self._world, partition.log
        endpoint = world.endpoint_of(partition.leader_id)
        if endpoint is None:
            raise ConnectionError(f"the address of broker {partition.leader_id} is unknown")
        connection = await connect_to_broker(
            world.network,
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{world.broker_id}-repair",
            timeout_ms=world.settings.timeout_ms,
        )
        try:
            leader = _Leader(connection, partition, world)
            for repair in repairs(log, world.clock.now_ms(), self._threads.urgent.wait):
                await self._repair_segment(leader, log, repair)
        finally:
            connection.close()

    async def _repair_segment(self, leader: "_Leader", log: PartitionLog, repair: Repair) -> None:
        # Check that the leader has the beginning of the lost range before copying anything.
        first = await leader.fetch(repair.damage[0].offset)
        try:
            for damage in repair.damage:
                data = first if damage is repair.damage[0] else None
                await self._fill(repair, leader, damage, data)
            await self._threads.run(repair.finish)
            leader.check()
            repair.take_over(log, self._world.clock.now_ms())
        except BaseException as error:
            repair.discard()
            if isinstance(error, UnfitBatchError | OversizedSegmentError):
                raise LackingError(str(error)) from error
            raise

    async def _fill(
        self, repair: Repair, leader: "_Leader", damage: Damage, data: memoryview | None
    ) -> None:
        offset = damage.offset
        while offset < damage.end_offset:
            if data is None:
                data = await leader.fetch(offset)
            taken_to = await self._threads.run(repair.take, damage, data)
            if taken_to <= offset:
                raise RepairError(f"the leader has nothing at offset {offset} yet")
            offset, data = Offset(taken_to), None


class _Leader:
    """The leader of a partition, as long as it leads in the same epoch."""

    def __init__(self, connection: Connection, partition: Partition, world: FetcherWorld) -> None:
        self._connection = connection
        self._partition = partition
        self._world = world
        self._epoch = partition.leader_epoch
        self._log = partition.log
        self._fetcher = PartitionFetcher(
            name=partition.name, topic_id=partition.topic_id, version_max=FETCH_VERSION
        )

    def check(self) -> None:
        """Raise RepairError if the replica is led or followed otherwise than at the beginning."""
        partition = self._partition
        is_same = partition.leader_epoch == self._epoch and partition.log is self._log
        if not is_same or partition.in_sync is not None:
            raise RepairError(f"{partition.name} has another leader")

    async def fetch(self, offset: Offset) -> memoryview:
        """Return batches from the batch with this offset on; LackingError if there is none."""
        partition, settings = self._partition, self._world.settings
        wanted = FetchPartition(
            partition=partition.name.partition,
            current_leader_epoch=self._epoch,
            fetch_offset=offset,
            partition_max_bytes=settings.partition_bytes_max,
        )
        try:
            row = await self._fetcher.fetch(
                self._connection, wanted, timeout_ms=settings.timeout_ms
            )
        except ApiError as error:
            self.check()
            if error.code in _LACKING:
                raise LackingError(f"broker {partition.leader_id}: {error}") from error
            raise
        self.check()
        if row is None:
            raise RepairError(f"the leader has nothing at offset {offset} yet")
        return memoryview(bytes(row.records or b""))
