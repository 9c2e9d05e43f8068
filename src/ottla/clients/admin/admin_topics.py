"""Topics: create, list, describe, add partitions, delete."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla.clients.admin.per_item_results import for_each, in_time, one_or_several
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import error_code
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID, uuid_to_text
from ottla.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

BROKER_DEFAULT: Final = -1
_MISSING: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_DELETED_BY_ID_SINCE: Final = 6
_DESCRIBED_BY_ID_SINCE: Final = 12
"""Metadata has a field for ids since version 10, but accepts them only since version 12."""
_BY_NAME_ONLY: Final = "these brokers know topics by name only"
Topic = str | bytes
"""A topic's name, or its id as 16 bytes."""
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TopicPartitionState:
    """The leader and the replicas of a partition."""

    partition: int
    leader: int
    """-1 without a leader."""
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """The description of a topic."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[TopicPartitionState, ...]

    @property
    def replication_factor(self) -> int:
        """The replica count of the first partition."""
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or validated; old brokers return only its name."""

    name: str
    topic_id: bytes | None
    partitions: int | None
    replication_factor: int | None
    configs: Mapping[str, str | None]
    """All effective settings, including the brokers' defaults."""


class TopicAdmin:
    """Topic calls. Each takes one name or several, and returns results by name."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def list(self, *, include_internal: bool = True) -> tuple[TopicDescription, ...]:
        """Describe every topic, by name."""
        found = await in_time(self._view, lambda: self._view.refresh(None))
        topics = (described(row) for row in found if include_internal or not row.is_internal)
        return tuple(sorted(topics, key=lambda topic: topic.name))

    async def describe(self, topics: Topic | Iterable[Topic]) -> dict[Topic, TopicDescription]:
        """Describe topics by name or id; UNKNOWN_TOPIC_OR_PARTITION for an unknown topic."""

        async def ask(waiting: Sequence[Topic]) -> dict[Topic, TopicDescription | ApiError]:
            request = MetadataRequest(
                topics=[_metadata_topic(topic) for topic in waiting],
                allow_auto_topic_creation=False,
            )
            if any(isinstance(topic, bytes) for topic in waiting):
                await self._check_ids_are_known()
            response = await self._view.ask_any(request, MetadataResponse)
            found: dict[Topic, TopicDescription | ApiError] = {}
            for row in response.topics:
                outcome = _outcome(row.error_code, None, row.name or row.topic_id, described(row))
                found[row.topic_id] = outcome
                if row.name is not None:
                    found[row.name] = outcome
            return found

        return await for_each(self._view, _topics(topics), ask)

    async def create(
        self,
        names: str | Iterable[str],
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> dict[str, CreatedTopic]:
        """Create topics with the same parameters, or only validate the request.

        Assignments name the replicas of each partition, the preferred leader first; they replace
        both numbers. TOPIC_ALREADY_EXISTS for an existing topic.
        """

        async def ask(waiting: Sequence[str]) -> dict[str, CreatedTopic | ApiError]:
            request = CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=replication_factor,
                        assignments=[
                            CreatableReplicaAssignment(partition_index=number, broker_ids=list(ids))
                            for number, ids in (assignments or {}).items()
                        ],
                        configs=[
                            CreatableTopicConfig(name=key, value=value)
                            for key, value in (configs or {}).items()
                        ],
                    )
                    for name in waiting
                ],
                timeout_ms=self._view.settings.request_timeout_ms,
                validate_only=validate_only,
            )
            response = await self._view.ask_controller(request, CreateTopicsResponse)
            return {
                row.name: _outcome(row.error_code, row.error_message, row.name, _created(row))
                for row in response.topics
            }

        return await for_each(self._view, one_or_several(names), ask)

    async def create_partitions(
        self,
        count_by_topic: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> dict[str, int]:
        """Add partitions to topics; each number is the new total, and is returned.

        Assignments name the replicas of each added partition, by topic.
        """
        placed = assignments or {}

        async def ask(waiting: Sequence[str]) -> dict[str, int | ApiError]:
            request = CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(
                        name=name,
                        count=count_by_topic[name],
                        assignments=[
                            CreatePartitionsAssignment(broker_ids=list(ids)) for ids in placed[name]
                        ]
                        if name in placed
                        else None,
                    )
                    for name in waiting
                ],
                timeout_ms=self._view.settings.request_timeout_ms,
                validate_only=validate_only,
            )
            response = await self._view.ask_controller(request, CreatePartitionsResponse)
            return {
                row.name: _outcome(
                    row.error_code, row.error_message, row.name, count_by_topic[row.name]
                )
                for row in response.results
            }

        try:
            return await for_each(self._view, count_by_topic, ask, final=_MISSING)
        finally:
            self._view.forget(count_by_topic)

    async def delete(self, topics: Topic | Iterable[Topic]) -> dict[Topic, str]:
        """Delete topics with their records, by name or id; return the name of each."""
        wanted = _topics(topics)

        async def ask(waiting: Sequence[Topic]) -> dict[Topic, str | ApiError]:
            names = [topic for topic in waiting if isinstance(topic, str)]
            request = DeleteTopicsRequest(
                topics=[_doomed(topic) for topic in waiting],
                topic_names=names,
                timeout_ms=self._view.settings.request_timeout_ms,
            )
            controller = await self._view.controller_connection()
            if controller.version_for(DeleteTopicsRequest) < _DELETED_BY_ID_SINCE:
                if len(names) < len(waiting):
                    raise ApiError(ErrorCode.UNSUPPORTED_VERSION, _BY_NAME_ONLY)
                request.topics = []
            response = await self._view.ask_controller(request, DeleteTopicsResponse)
            found: dict[Topic, str | ApiError] = {}
            for row in response.responses:
                shown = row.name or row.topic_id
                outcome = _outcome(row.error_code, row.error_message, shown, row.name or "")
                found |= dict.fromkeys((row.name or "", row.topic_id), outcome)
            return found

        try:
            return await for_each(self._view, wanted, ask, final=_MISSING)
        finally:
            self._view.forget(topic for topic in wanted if isinstance(topic, str))

    async def _check_ids_are_known(self) -> None:
        controller = await self._view.controller_connection()
        if controller.version_for(MetadataRequest) < _DESCRIBED_BY_ID_SINCE:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, _BY_NAME_ONLY)


def described(topic: MetadataResponseTopic) -> TopicDescription:
    """Turn a topic's metadata into a description."""
    partitions = tuple(
        TopicPartitionState(
            row.partition_index,
            row.leader_id,
            row.leader_epoch,
            tuple(row.replica_nodes),
            tuple(row.isr_nodes),
            tuple(row.offline_replicas),
        )
        for row in sorted(topic.partitions, key=lambda row: row.partition_index)
    )
    return TopicDescription(topic.name or "", topic.topic_id, topic.is_internal, partitions)


def _created(row: CreatableTopicResult) -> CreatedTopic:
    return CreatedTopic(
        row.name,
        row.topic_id if row.topic_id != ZERO_UUID else None,
        row.num_partitions if row.num_partitions >= 0 else None,
        row.replication_factor if row.replication_factor >= 0 else None,
        {entry.name: entry.value for entry in row.configs or ()},
    )


def _topics(topics: Topic | Iterable[Topic]) -> list[Topic]:
    return [topics] if isinstance(topics, str | bytes) else list(dict.fromkeys(topics))


def _metadata_topic(topic: Topic) -> MetadataRequestTopic:
    if isinstance(topic, str):
        return MetadataRequestTopic(name=topic)
    return MetadataRequestTopic(topic_id=topic, name=None)


def _doomed(topic: Topic) -> DeleteTopicState:
    if isinstance(topic, str):
        return DeleteTopicState(name=topic)
    return DeleteTopicState(topic_id=topic)


def _outcome(code: int, message: str | None, topic: Topic, fine: V) -> V | ApiError:
    """Return the result of one topic."""
    found = error_code(code)
    if found is ErrorCode.NONE:
        return fine
    shown = f"topic {topic!r}" if isinstance(topic, str) else f"topic id {uuid_to_text(topic)}"
    if found in _MISSING:
        return ApiError(found, f"there is no {shown}")
    return ApiError(found, message or shown)
