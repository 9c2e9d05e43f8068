"""Pulls the controller's decisions from its broker: Fetch and FetchSnapshot.

It has a connection of its own, because a fetch waits for the controller's next decision. The broker
that it pulls from is the controller, as far as this broker knows: other requests for the controller
go there, too.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ottla.broker.controller.metadata_log_server import METADATA_TOPIC_ID
from ottla.broker.metadata_store.metadata_history import Batches, Snapshot
from ottla.broker.metadata_store.zookeeper.migration_nodes import QUORUM_LISTENER
from ottla.broker.peers.broker_clients import connect_to_broker
from ottla.environment.network import Network
from ottla.metadata.image import BrokerImage, Endpoint
from ottla.model.identifiers import BrokerId, Offset, TopicPartition
from ottla.model.topic_names import CLUSTER_METADATA_TOPIC
from ottla.rpc.connection import Connection
from ottla.rpc.errors import check, only
from ottla.rpc.partition_fetcher import PartitionFetcher
from ottla.wire.messages import fetch_snapshot
from ottla.wire.messages.fetch import FetchPartition, ReplicaState, SnapshotId
from ottla.wire.protocol_error import ProtocolError

FETCH_VERSION: Final = 17
FETCH_SNAPSHOT_VERSION: Final = 1
WAIT_MS: Final = 2000
"""How long the controller may keep a broker waiting for something new."""
TIMEOUT_MS: Final = 10_000
"""The additional time for a response."""
CONNECT_MS_MAX: Final = 5000
PIECE_BYTES_MAX: Final = 8 << 20
SNAPSHOT_BYTES_MAX: Final = 1 << 30
_METADATA_LOG: Final = PartitionFetcher(
    name=TopicPartition(CLUSTER_METADATA_TOPIC, 0),
    topic_id=METADATA_TOPIC_ID,
    wait_ms=WAIT_MS,
    version_max=FETCH_VERSION,
)


class ControllerMetadata:
    """Follows the metadata of the current controller. Belongs to one event loop."""

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        listener: str,
        network: Network,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._listener = listener
        self._network = network
        self._controller: BrokerImage | None = None
        self._connection: Connection | None = None
        self._on_controller: list[Callable[[], None]] = []

    @property
    def controller(self) -> BrokerImage | None:
        """The controller, while this broker follows one."""
        return self._controller

    @property
    def endpoint(self) -> Endpoint | None:
        """Where the controller listens for brokers, while this broker follows one."""
        controller = self._controller
        if controller is None:
            return None
        return controller.endpoint(self._listener) or controller.endpoint(QUORUM_LISTENER)

    def on_controller(self, listener: Callable[[], None]) -> None:
        """Call a listener when the followed broker changes, or is unknown."""
        self._on_controller.append(listener)

    async def pull(self, controller: BrokerImage, epoch: int, offset: Offset) -> Batches | Snapshot:
        """Return a controller's decisions after an offset of a term, or a snapshot.

        It waits up to WAIT_MS for a decision; there may still be none then. ApiError, OSError, or
        ProtocolError for a response that does not fit. A cancellation means that this broker is not
        the controller any more.
        """
        self._follow(controller)
        try:
            return await self._fetch(await self._connect(), epoch, offset)
        except asyncio.CancelledError:
            self._follow(None)
            raise
        except BaseException:
            self._disconnect()
            raise

    def close(self) -> None:
        """Stop following."""
        self._follow(None)

    def _follow(self, controller: BrokerImage | None) -> None:
        if controller == self._controller:
            return
        self._controller = controller
        self._disconnect()
        for listener in self._on_controller:
            listener()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _connect(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            endpoint = self.endpoint
            if endpoint is None:
                raise ConnectionError(f"the controller does not listen at {self._listener}")
            self._connection = await connect_to_broker(
                self._network,
                endpoint.host,
                endpoint.port,
                client_id=f"broker-{self._broker_id}-metadata",
                timeout_ms=CONNECT_MS_MAX,
            )
        return self._connection

    async def _fetch(
        self, connection: Connection, epoch: int, offset: Offset
    ) -> Batches | Snapshot:
        wanted = FetchPartition(
            fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=PIECE_BYTES_MAX
        )
        replica = ReplicaState(replica_id=self._broker_id, replica_epoch=self._broker_epoch())
        answer = await _METADATA_LOG.fetch(
            connection, wanted, timeout_ms=TIMEOUT_MS, replica=replica
        )
        if answer is None:
            raise ProtocolError("a response without the metadata")
        if answer.snapshot_id is not None:
            return await self._take_snapshot(connection, answer.snapshot_id)
        if answer.current_leader is None:
            raise ProtocolError("metadata of no term")
        return Batches(answer.current_leader.leader_epoch, bytes(answer.records or b""))

    async def _take_snapshot(self, connection: Connection, wanted: SnapshotId) -> Snapshot:
        data = bytearray()
        size = 1
        while len(data) < size:
            piece = await self._take_piece(connection, wanted, len(data))
            size = piece.size
            records = piece.unaligned_records or b""
            is_next = piece.position == len(data) and 0 < len(records) <= size - len(data)
            if size > SNAPSHOT_BYTES_MAX or not (is_next or size == 0):
                raise ProtocolError(
                    f"a snapshot of {size} bytes: {len(records)} of them at {piece.position},"
                    f" {len(data)} are here"
                )
            data += records
        return Snapshot(wanted.epoch, Offset(wanted.end_offset), bytes(data))

    async def _take_piece(
        self, connection: Connection, wanted: SnapshotId, position: int
    ) -> fetch_snapshot.FetchSnapshotResponsePartitionSnapshot:
        snapshot_id = fetch_snapshot.SnapshotId(end_offset=wanted.end_offset, epoch=wanted.epoch)
        partition = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
            current_leader_epoch=wanted.epoch, snapshot_id=snapshot_id, position=position
        )
        topic = fetch_snapshot.FetchSnapshotRequestTopicSnapshot(
            name=CLUSTER_METADATA_TOPIC, partitions=[partition]
        )
        request = fetch_snapshot.FetchSnapshotRequest(
            replica_id=self._broker_id, max_bytes=PIECE_BYTES_MAX, topics=[topic]
        )
        response = await connection.ask(
            request,
            fetch_snapshot.FetchSnapshotResponse,
            version_max=FETCH_SNAPSHOT_VERSION,
            timeout_ms=TIMEOUT_MS,
        )
        check(response.error_code, "another broker")
        piece = only(
            [piece for topic in response.topics for piece in topic.partitions], "a snapshot"
        )
        check(piece.error_code, "another broker")
        return piece
