"""Fetches of one partition without a fetch session, from any broker that has the partition."""

from dataclasses import dataclass

from ottla.model.identifiers import ZERO_UUID, TopicPartition
from ottla.model.isolation_level import READ_UNCOMMITTED
from ottla.rpc.connection import Connection
from ottla.rpc.errors import check, only
from ottla.rpc.fetch_session import BY_NAME_VERSION_MAX
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from ottla.wire.schema import EVERY_VERSION

_NO_SESSION_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFetcher:
    """The part that all fetches of a partition share. It neither retries nor looks for leaders."""

    name: TopicPartition
    topic_id: bytes
    """ZERO_UUID if the topic has none: then requests name it."""
    wait_ms: int = 0
    """How long the broker may wait for the first record; 0 to respond at once."""
    isolation_level: int = READ_UNCOMMITTED
    rack: str = ""
    version_max: int = EVERY_VERSION

    async def fetch(
        self,
        connection: Connection,
        wanted: FetchPartition,
        *,
        timeout_ms: int,
        replica: ReplicaState | None = None,
    ) -> PartitionData | None:
        """Return the data of the partition; None from a broker that throttles.

        The broker has `timeout_ms` besides the time that it may wait. ApiError for an error code,
        whether of the request or of the partition.
        """
        request = FetchRequest(
            max_wait_ms=self.wait_ms,
            min_bytes=1 if self.wait_ms else 0,
            max_bytes=wanted.partition_max_bytes,
            isolation_level=self.isolation_level,
            session_epoch=_NO_SESSION_EPOCH,
            topics=[FetchTopic(topic=self.name.topic, topic_id=self.topic_id, partitions=[wanted])],
            rack_id=self.rack,
        )
        if replica is not None:
            request.replica_state = replica
        has_id = self.topic_id != ZERO_UUID
        response = await connection.ask(
            request,
            FetchResponse,
            version_max=self.version_max if has_id else BY_NAME_VERSION_MAX,
            timeout_ms=timeout_ms + self.wait_ms,
        )
        what = f"a fetch of {self.name} from offset {wanted.fetch_offset}"
        check(response.error_code, what)
        rows = [row for topic in response.responses for row in topic.partitions]
        if not rows:
            return None
        row = only(rows, "a partition")
        check(row.error_code, what)
        return row
