"""A consumer's fetch session at one broker: each request decides anew which partitions to fetch."""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.model.identifiers import ZERO_UUID, TopicPartition
from ottla.rpc.fetch_session import BY_NAME_VERSION_MAX, FetchSession, PartitionKey
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest


class Asked(NamedTuple):
    """The request for one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    bytes_max: int


class ConsumerSession:
    """The state of our session at one broker. Every failure starts a new session."""

    def __init__(self) -> None:
        self._session = FetchSession()
        self.partitions: dict[TopicPartition, Asked] = {}
        self._name_by_id: dict[bytes, str] = {}

    def request(
        self, wanted: Mapping[TopicPartition, Asked], settings: ConsumerSettings, bytes_max: int
    ) -> FetchRequest:
        """Return a request for exactly these partitions, and update the session."""
        session, before = self._session, self.partitions
        for name, asked in before.items():
            if name not in wanted or wanted[name].topic_id != asked.topic_id:
                session.remove(_key(name, asked))
        for name, asked in wanted.items():
            if before.get(name) != asked:
                session.put(_key(name, asked))
        self.partitions = dict(wanted)
        self._name_by_id = {asked.topic_id: name.topic for name, asked in wanted.items()}
        request = session.request(self._entry)
        request.max_wait_ms = settings.fetch_max_wait_ms
        request.min_bytes = settings.fetch_min_bytes
        request.max_bytes = bytes_max
        request.isolation_level = int(settings.isolation_level == "read_committed")
        request.rack_id = settings.client_rack
        return request

    def accept(self, session_id: int) -> None:
        """Continue in the broker's session, or without a session if the id is 0."""
        self._session.accept(session_id)

    def reset(self) -> None:
        """Start a new session with a full fetch: the broker may have evicted the old session."""
        self._session.reset()

    def name_of(self, topic: FetchableTopicResponse) -> str | None:
        """Return the topic's name; a response identifies it by name or by id."""
        return topic.topic or self._name_by_id.get(topic.topic_id)

    def _entry(self, key: PartitionKey) -> FetchPartition:
        asked = self.partitions[TopicPartition(key.topic, key.partition)]
        return FetchPartition(
            partition=key.partition,
            current_leader_epoch=asked.leader_epoch,
            fetch_offset=asked.offset,
            partition_max_bytes=asked.bytes_max,
        )


def _key(name: TopicPartition, asked: Asked) -> PartitionKey:
    return PartitionKey(asked.topic_id, name.partition, name.topic)


def version_max_for(wanted: Mapping[TopicPartition, Asked], version: int) -> int:
    """Return the request version: a version with topic ids only if all topics have one."""
    has_ids = all(asked.topic_id != ZERO_UUID for asked in wanted.values())
    return version if has_ids else min(version, BY_NAME_VERSION_MAX)
