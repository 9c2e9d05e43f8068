"""`_schemas` on a real broker: the log that the registry of a broker decides on.

The registry has an event loop of its own, so that work on a large schema cannot hold up the broker.
Each method here crosses to the broker's loop once. The checks of an append and the append itself
are one step on the broker's loop, without a suspension in between.

Records come from the leader: from its log on the leader itself, else by Fetch over a connection to
the leader. A local follower is not read, because it learns the high watermark only with its next
fetch, up to half a second later. The response to a forwarded write would wait for that.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Hashable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from ottla.broker.hosting.replication_wait import PendingReplication, committed
from ottla.broker.peers.broker_clients import BrokerClients
from ottla.broker.startup.broker_service import BrokerAccess
from ottla.clients.consumer.fetching.fetched_batches import AbortedBatches
from ottla.concurrency.sleep import pause
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, LeaderEpoch, Offset, TopicPartition
from ottla.model.isolation_level import READ_COMMITTED
from ottla.model.settings.listeners import REGISTRY_ENDPOINT
from ottla.registry.schemas_log import (
    EndMovedError,
    Leadership,
    LeaderWithoutRegistryError,
    NotLeaderError,
    OutcomeUnknownError,
    SchemasRecord,
)
from ottla.replication.partition import Partition
from ottla.rpc.errors import check, only
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import batches
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.record import records_of

T = TypeVar("T")

SCHEMAS_TOPIC: Final = "_schemas"
SCHEMAS: Final = TopicPartition(SCHEMAS_TOPIC, 0)
REPLICAS_MAX: Final = 3
RECORD_BYTES_MAX: Final = 8 << 20
"""max.message.bytes of a new topic: a schema of 1 MiB takes several times that as JSON."""
READ_BYTES: Final = 1 << 20
"""How much is read at a time."""
WAIT_MS: Final = 1_000
"""How long a read waits at the end of the log before it looks for another leader."""
RETRY_MS: Final = 100
"""How soon a read tries again after the leader could not be reached."""
APPEND_MS_MAX: Final = 10_000
"""How long an append waits for its replicas."""
CREATE_MS_MAX: Final = 10_000
"""How long a new topic may be without a leader."""
REQUEST_MS_MAX: Final = 5_000

_CHANGED: Final = "schemas-topic"
"""Notified when the replicas, or the leader, of the topic have changed."""
_FETCH_VERSION: Final = 16
_LIST_OFFSETS_VERSION: Final = 7
_LATEST: Final = -1
_EARLIEST: Final = -2
_NO_SESSION_EPOCH: Final = -1
LOST: Final = ErrorCode.OFFSET_OUT_OF_RANGE
"""The code of a read if the log no longer continues the state that was replayed from it."""
NOOP: Final = b'{"keytype":"NOOP","magic":0}'
"""The key of a record in place of a gap: compaction or a transaction has left offsets without
records, and a state that skips them never reaches the end of the log."""


def _new_topic(replicas: int) -> CreatableTopic:
    configs = {
        "cleanup.policy": "compact",
        "max.message.bytes": str(RECORD_BYTES_MAX),
        # With three replicas an acknowledged schema survives the loss of a disk.
        "min.insync.replicas": "2" if replicas > 2 else "1",
    }
    return CreatableTopic(
        name=SCHEMAS_TOPIC,
        num_partitions=1,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=name, value=text) for name, text in configs.items()],
    )


class _Part(NamedTuple):
    """Some batches of the log, as bytes, and the aborted transactions in them."""

    data: bytes
    stable_offset: int
    """The last stable offset: the records before it are committed, or aborted."""
    aborted: Sequence[AbortedTransaction] = ()


class BrokerSchemasLog:
    """The Protocol SchemasLog on a running broker. Belongs to the registry's event loop.

    It is of one incarnation of the topic: if that is deleted, a new log begins with a new state.
    """

    def __init__(self, broker: BrokerAccess) -> None:
        self._broker = broker
        self._partition = _SchemasPartition(broker)

    async def open(self) -> None:
        """Follow the metadata from now on."""
        await self._on_broker(self._partition.open())

    async def close(self) -> None:
        """Close the connections to other brokers."""
        await self._on_broker(self._partition.close())

    async def ensure_topic(self) -> None:
        """Create the topic if it does not exist; return once it has a leader.

        An existing topic is used as it is. ApiError INVALID_PARTITIONS if it has several
        partitions; other ApiErrors if it cannot be created.
        """
        await self._on_broker(self._partition.ensure_topic())

    def leadership(self) -> Leadership | None:
        """Return this broker's leadership; None if this broker does not lead, or may not know.

        Reads the state of the broker's loop from another thread. `append` checks it again.
        """
        return self._partition.leadership()

    async def append(
        self,
        records: tuple[tuple[bytes, bytes | None], ...],
        leadership: Leadership,
        end_offset: int,
    ) -> int:
        """Append in one batch, and wait for the replicas in sync; return the new end.

        NotLeaderError, EndMovedError: nothing is appended. OutcomeUnknownError: a failover, or
        replicas that do not respond. ApiError NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE and the other
        codes of Produce: nothing is appended, and an immediate retry fails in the same way.
        """
        assert records, "an append without records"
        now_ms = self._broker.clock.now_ms()
        builder = BatchBuilder()
        for key, value in records:
            builder.append(now_ms, key, value)
        batch = builder.build()
        return await self._on_broker(self._partition.append(batch, leadership, end_offset))

    async def end_offset(self) -> int:
        """Return the last stable offset of the leader; 0 without a topic.

        ApiError LEADER_NOT_AVAILABLE if no leader responds.
        """
        return await self._on_broker(self._partition.end_offset())

    async def read(self, offset: int) -> AsyncIterator[list[SchemasRecord]]:
        """Yield committed records from an offset on; an empty list at the end of the log.

        Without a topic there is an empty list, too. ApiError OFFSET_OUT_OF_RANGE if the topic was
        deleted, or has lost committed records by an unclean election: read a new log into an empty
        state then.
        """
        reading = _Reading(self._partition, offset)
        is_at_end = False
        while True:
            part = await self._on_broker(reading.next_part(WAIT_MS if is_at_end else 0))
            if part is None:
                is_at_end = True
                continue
            found = _records_from(part, reading.offset)
            if found:
                yield found
                reading.offset = found[-1].offset + 1
            is_at_end = reading.offset >= part.stable_offset
            if is_at_end:
                yield []

    def leader_url(self) -> str | None:
        """Return the registered address of the registry in the process of the leader.

        LeaderWithoutRegistryError if another broker leads, and has registered no address.
        """
        return self._partition.leader_url()

    async def _on_broker(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._broker.loop))


def _records_from(part: _Part, offset: int) -> list[SchemasRecord]:
    """Return the records from an offset on; a gap at the end is a record of its own.

    OSError for a damaged batch: another leader, or a repaired replica, may have it whole.
    """
    try:
        return _decoded(part, offset)
    except ProtocolError as error:
        raise OSError(f"{SCHEMAS} is damaged after offset {offset}: {error}") from error


def _decoded(part: _Part, offset: int) -> list[SchemasRecord]:
    end_offset = offset
    found: list[SchemasRecord] = []
    left_out = AbortedBatches(part.aborted)
    for batch in batches(part.data):
        end_offset = batch.end_offset
        if not left_out.includes(batch):
            found += (
                SchemasRecord(one.offset, one.timestamp_ms, one.key, one.value, one.headers)
                for one in records_of(batch)
                if one.offset >= offset
            )
    if not part.data:  # the leader has no batch between here and the last stable offset
        end_offset = part.stable_offset
    if end_offset > (found[-1].offset + 1 if found else offset):
        found.append(SchemasRecord(end_offset - 1, 0, NOOP, None))
    return found


class _SchemasPartition:
    """The part that runs on the broker's loop."""

    def __init__(self, broker: BrokerAccess) -> None:
        self._broker = broker
        self._told: tuple[PartitionImage, ...] = ()
        self.replayed_topic_id: bytes | None = None
        """The topic that is read: a decision on its records is appended to no other topic."""
        # A fetch may wait at the leader, and a connection has one request at a time.
        self._readers = BrokerClients(broker.peers, "schemas-reader")
        self._askers = BrokerClients(broker.peers, "schemas")
        self._asking = asyncio.Lock()

    async def open(self) -> None:
        """Follow the metadata from now on."""
        self._broker.subscribe(self._on_change)

    async def close(self) -> None:
        """Close the connections to other brokers."""
        self._readers.close()
        self._askers.close()

    def _on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        self._readers.on_change(image, records)
        self._askers.on_change(image, records)
        topic = image.topics.get(SCHEMAS_TOPIC)
        partitions = () if topic is None else topic.partitions
        if partitions != self._told:
            self._told = partitions
            self._broker.notifier.notify(_CHANGED)

    # -- without waiting ------------------------------------------------------------------------

    @property
    def _image(self) -> ClusterImage:
        return self._broker.peers.image()

    @property
    def topic_id(self) -> bytes | None:
        """The id of the topic, if it exists."""
        topic = self._image.topics.get(SCHEMAS_TOPIC)
        return None if topic is None else topic.topic_id

    @property
    def broker_id(self) -> int:
        """The id of this broker."""
        return self._broker.config.node_id

    def _leader_id(self) -> BrokerId | None:
        topic = self._image.topics.get(SCHEMAS_TOPIC)
        if topic is None or topic.partitions[0].leader not in self._image.brokers:
            return None
        return topic.partitions[0].leader

    def led(self) -> Partition | None:
        """Return the partition if this broker leads it, and may say so."""
        partition = self._broker.partitions.find(SCHEMAS)
        if partition is None or partition.in_sync is None or not self._broker.has_valid_lease():
            return None
        if self.replayed_topic_id not in {None, partition.topic_id}:
            return None
        return partition

    def leadership(self) -> Leadership | None:
        """Return this broker's leadership, if it leads."""
        partition = self.led()
        if partition is None:
            return None
        # The epoch first: a new epoch sets it last, and an old epoch is refused by `append`.
        epoch, in_sync = partition.leader_epoch, partition.in_sync
        return None if in_sync is None else Leadership(epoch, in_sync.epoch_start_offset)

    def leader_url(self) -> str | None:
        """Return the base URL of the leader's registry."""
        leader_id = self._leader_id()
        broker = None if leader_id is None else self._image.brokers.get(leader_id)
        if broker is None:
            return None
        endpoint = broker.endpoint(REGISTRY_ENDPOINT)
        if endpoint is None:
            if leader_id != self.broker_id:
                raise LeaderWithoutRegistryError(f"broker {leader_id} leads {SCHEMAS}")
            return None
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        return f"http://{host}:{endpoint.port}"

    # -- writing --------------------------------------------------------------------------------

    async def append(self, batch: bytearray, leadership: Leadership, end_offset: int) -> int:
        """Append one batch of the leader of this epoch at this offset."""
        partition = self.led()
        if partition is None or partition.leader_epoch != leadership.epoch:
            raise NotLeaderError(f"{SCHEMAS} is not led here in epoch {leadership.epoch}")
        if partition.log.end_offset != end_offset:
            detail = f"{SCHEMAS} ends at {partition.log.end_offset}, not at {end_offset}"
            raise EndMovedError(detail)
        partition.check_enough_in_sync()
        now_ms = self._broker.clock.now_ms()
        appended = partition.append_as_leader(memoryview(batch), now_ms)
        new_end_offset = Offset(appended.last_offset + 1)
        if await self._broker.flushing.flush_where_due([partition]):
            raise OutcomeUnknownError(f"{SCHEMAS} could not be flushed")
        (error,) = await committed(
            self._broker.notifier,
            [PendingReplication(partition, new_end_offset, LeaderEpoch(leadership.epoch))],
            self._deadline_ms(APPEND_MS_MAX),
            self._broker.has_valid_lease,
        )
        if error is not None:
            raise OutcomeUnknownError(str(error))
        return new_end_offset

    async def ensure_topic(self) -> None:
        """Create the topic if it does not exist, and wait for its leader."""
        if self.topic_id is None:
            replicas = max(1, min(REPLICAS_MAX, self._active_brokers()))
            (result,) = await self._broker.creation.create([_new_topic(replicas)])
            check(
                result.error_code,
                f"the topic {SCHEMAS_TOPIC} cannot be created: {result.error_message}",
                fine={ErrorCode.TOPIC_ALREADY_EXISTS},
            )
        deadline_ms = self._deadline_ms(CREATE_MS_MAX)
        while not self._has_leader():
            if self._broker.clock.monotonic_ms() >= deadline_ms:
                raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{SCHEMAS} has no leader")
            await self._news(RETRY_MS)
        topic = self._image.topics[SCHEMAS_TOPIC]
        if len(topic.partitions) != 1:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"the topic {SCHEMAS_TOPIC} has {len(topic.partitions)} partitions and must"
                " have one: delete it, or copy its records to a topic with one partition",
            )

    def _active_brokers(self) -> int:
        return sum(broker.is_active for broker in self._image.brokers.values())

    def _has_leader(self) -> bool:
        leader_id = self._leader_id()
        if leader_id == self.broker_id:
            return self.led() is not None
        return leader_id is not None

    # -- reading --------------------------------------------------------------------------------

    async def end_offset(self) -> int:
        """Return the last stable offset of the leader."""
        if self.topic_id is None:
            return 0
        return await self.listed_offset(_LATEST)

    async def listed_offset(self, timestamp: int) -> int:
        """Return the leader's response to ListOffsets; ApiError if there is none."""
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=READ_COMMITTED,
            topics=[
                ListOffsetsTopic(
                    name=SCHEMAS_TOPIC,
                    partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)],
                )
            ],
        )
        leader_id = self._leader_id()
        if leader_id is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{SCHEMAS} has no leader")
        if leader_id == self.broker_id and self.led() is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{SCHEMAS} may be led elsewhere")
        try:
            async with self._asking:
                response = await self._askers.ask(
                    leader_id,
                    request,
                    _LIST_OFFSETS_VERSION,
                    ListOffsetsResponse,
                    timeout_ms=REQUEST_MS_MAX,
                )
        except OSError as error:
            detail = f"broker {leader_id}, the leader of {SCHEMAS}, does not respond: {error}"
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, detail) from error
        row = only(only(response.topics, "a topic").partitions, "a partition")
        check(row.error_code, f"the end of {SCHEMAS} on broker {leader_id}")
        return row.offset

    async def read_here(self, partition: Partition, offset: int) -> _Part:
        """Read from the log of this broker, which leads; on a thread, because it may block."""
        found = partition.read(Offset(offset), READ_BYTES, is_committed_only=True)
        records = found.records
        if not records.size_bytes:
            return _Part(b"", found.last_stable_offset)
        loop = self._broker.loop
        data = await loop.run_in_executor(self._broker.threads, records.read)
        aborted = [
            AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
            for producer_id, first_offset in found.aborted or ()
        ]
        return _Part(data, found.last_stable_offset, aborted)

    async def read_there(self, leader_id: BrokerId, offset: int, wait_ms: int) -> _Part:
        """Fetch from the leader; OSError or ApiError if that fails."""
        assert self.topic_id is not None
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=READ_BYTES)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1 if wait_ms else 0,
            max_bytes=READ_BYTES,
            session_epoch=_NO_SESSION_EPOCH,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=[wanted])],
        )
        timeout_ms = REQUEST_MS_MAX + wait_ms
        response = await self._readers.ask(
            leader_id, request, _FETCH_VERSION, FetchResponse, timeout_ms=timeout_ms
        )
        what = f"a fetch of {SCHEMAS} from offset {offset}"
        check(response.error_code, what)
        row: PartitionData = only(only(response.responses, "a topic").partitions, "a partition")
        check(row.error_code, what)
        data = bytes(row.records or b"")
        return _Part(data, row.last_stable_offset, row.aborted_transactions or ())

    async def news(self, partition: Partition, offset: int, wait_ms: int) -> None:
        """Wait until the leader has more than an offset, or another broker leads."""
        if partition.last_stable_offset <= offset:
            await self._news(wait_ms)

    async def _news(self, wait_ms: int) -> None:
        await self._wait([SCHEMAS, _CHANGED], wait_ms)

    async def changed(self, wait_ms: int) -> None:
        """Wait until the leader, or the topic, may be another."""
        await self._wait([_CHANGED], wait_ms)

    async def _wait(self, names: Sequence[Hashable], wait_ms: int) -> None:
        notifier = self._broker.notifier
        if not await notifier.wait_any(names, self._deadline_ms(wait_ms)) and notifier.is_closed:
            # The broker stops, and its notifier waits for nothing: a caller's loop would spin, and
            # no other coroutine of the broker would run.
            await pause(min(wait_ms, RETRY_MS))

    def place(self) -> "tuple[bytes | None, BrokerId | None, Partition | None]":
        """Return the topic's id, its leader, and the partition if this broker leads it."""
        return self.topic_id, self._leader_id(), self.led()

    def _deadline_ms(self, timeout_ms: int) -> int:
        return self._broker.clock.monotonic_ms() + timeout_ms


class _Reading:
    """One reader's position in one incarnation of the topic. Runs on the broker's loop."""

    def __init__(self, partition: _SchemasPartition, offset: int) -> None:
        self._partition = partition
        self.offset = offset

    async def next_part(self, wait_ms: int) -> _Part | None:
        """Return the next batches, or none at the end of the log; None if no leader responds.

        At the end it waits, but no longer than this. ApiError OFFSET_OUT_OF_RANGE if the topic has
        lost records that were committed.
        """
        topic_id, leader_id, led = self._partition.place()
        if self._partition.replayed_topic_id not in {None, topic_id}:
            raise ApiError(LOST, f"the topic {SCHEMAS_TOPIC} was deleted")
        if topic_id is None:
            if wait_ms:
                await self._partition.changed(wait_ms)
            return _Part(b"", 0)
        self._partition.replayed_topic_id = topic_id
        try:
            return await self._read(leader_id, led, wait_ms)
        except ApiError as error:
            if error.code is LOST:
                await self._go_to_start(error)
                return None
        except OSError:
            pass
        await self._partition.changed(RETRY_MS)
        return None

    async def _read(
        self, leader_id: BrokerId | None, led: Partition | None, wait_ms: int
    ) -> _Part | None:
        if led is not None:
            if wait_ms:
                await self._partition.news(led, self.offset, wait_ms)
            return await self._partition.read_here(led, self.offset)
        if leader_id is None or leader_id == self._partition.broker_id:
            await self._partition.changed(RETRY_MS)
            return None
        return await self._partition.read_there(leader_id, self.offset, wait_ms)

    async def _go_to_start(self, error: ApiError) -> None:
        """Go from offset 0 to the start of a log without its first records."""
        start_offset = await self._partition.listed_offset(_EARLIEST)
        if self.offset or not start_offset:
            raise error
        self.offset = start_offset
