"""Fetch sessions (KIP-227): a request holds only the changes since the last fetch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.model.identifiers import ZERO_UUID, TopicPartition
from ottla.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

BY_NAME_VERSION_MAX: Final = 12
"""Later versions of Fetch identify topics by id only."""
_NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_EPOCH_MAX: Final = 2**31 - 1


class Asked(NamedTuple):
    """The request for one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    bytes_max: int


@dataclass(slots=True)
class FetchSession:
    """The state of our session at one broker. Every failure starts a new session."""

    session_id: int = _NO_SESSION
    epoch: int = _FIRST_EPOCH
    partitions: dict[TopicPartition, Asked] = field(default_factory=dict)
    name_by_id: dict[bytes, str] = field(default_factory=dict)

    def request(
        self, wanted: Mapping[TopicPartition, Asked], settings: ConsumerSettings, bytes_max: int
    ) -> FetchRequest:
        """Return a request for exactly these partitions, and update the session."""
        changed = {n: asked for n, asked in wanted.items() if self.partitions.get(n) != asked}
        gone = [name for name in self.partitions if not self._goes_on(name, wanted)]
        forgotten = [] if self.epoch == _FIRST_EPOCH else self._forgotten(gone)
        self.partitions = dict(wanted)
        self.name_by_id = {asked.topic_id: name.topic for name, asked in wanted.items()}
        return FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=bytes_max,
            isolation_level=int(settings.isolation_level == "read_committed"),
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=_topics(wanted if self.epoch == _FIRST_EPOCH else changed),
            forgotten_topics_data=forgotten,
            rack_id=settings.client_rack,
        )

    def accept(self, session_id: int) -> None:
        """Continue in the broker's session, or without a session if the id is 0."""
        if session_id == _NO_SESSION:
            self.reset()
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def reset(self) -> None:
        """Start a new session with a full fetch: the broker may have evicted the old one."""
        self.session_id, self.epoch = _NO_SESSION, _FIRST_EPOCH
        self.partitions = {}

    def name_of(self, topic: FetchableTopicResponse) -> str | None:
        """Return the topic's name; a response identifies it by name or by id."""
        return topic.topic or self.name_by_id.get(topic.topic_id)

    def _goes_on(self, name: TopicPartition, wanted: Mapping[TopicPartition, Asked]) -> bool:
        """Whether a partition may stay in the session; a new topic id requires its removal."""
        return name in wanted and wanted[name].topic_id == self.partitions[name].topic_id

    def _forgotten(self, names: Iterable[TopicPartition]) -> list[ForgottenTopic]:
        by_topic: dict[tuple[str, bytes], list[int]] = {}
        for name in names:
            topic_id = self.partitions[name].topic_id
            by_topic.setdefault((name.topic, topic_id), []).append(name.partition)
        return [
            ForgottenTopic(topic=topic, topic_id=topic_id, partitions=numbers)
            for (topic, topic_id), numbers in by_topic.items()
        ]


def version_max_for(wanted: Mapping[TopicPartition, Asked], version: int) -> int:
    """Return the request version: a version with topic ids only if all topics have one."""
    has_ids = all(asked.topic_id != ZERO_UUID for asked in wanted.values())
    return version if has_ids else min(version, BY_NAME_VERSION_MAX)


def _topics(wanted: Mapping[TopicPartition, Asked]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for name, asked in wanted.items():
        topic = topics.setdefault(
            name.topic, FetchTopic(topic=name.topic, topic_id=asked.topic_id, partitions=[])
        )
        topic.partitions.append(
            FetchPartition(
                partition=name.partition,
                current_leader_epoch=asked.leader_epoch,
                fetch_offset=asked.offset,
                partition_max_bytes=asked.bytes_max,
            )
        )
    return list(topics.values())
