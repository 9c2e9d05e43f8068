"""Topics: made, listed, grown, deleted."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla.clients.cluster_view import ClusterView
from ottla.clients.errors import check
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.messages.metadata import MetadataResponseTopic

MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
BROKER_DEFAULT = -1
_BY_STATE_SINCE = 6


@dataclass(frozen=True, slots=True)
class TopicPartitionState:
    """Who leads one partition, and who has copies of it."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """The shape of a topic."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[TopicPartitionState, ...]

    @property
    def replication_factor(self) -> int:
        """How many copies the first partition has."""
        return len(self.partitions[0].replicas) if self.partitions else 0


class TopicAdmin:
    """Calls about topics."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def list_all(self) -> list[TopicDescription]:
        """Describe every topic, by name."""
        found = await self._view.retried(lambda: self._view.refresh(None))
        return sorted((described(topic) for topic in found), key=lambda topic: topic.name)

    async def describe(self, names: Collection[str]) -> list[TopicDescription]:
        """Describe these topics; ApiError names the first that is not there."""

        async def ask() -> list[TopicDescription]:
            topics = await self._view.refresh(names)
            for topic in topics:
                if topic.error_code == MISSING:
                    raise ApiError(MISSING, f"there is no topic {topic.name!r}")
                check(topic.error_code, f"topic {topic.name!r}")
            return [described(topic) for topic in topics]

        return await self._view.retried(ask, final=(MISSING,))

    async def create(
        self,
        names: Collection[str],
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> dict[str, ApiError | None]:
        """Make topics of one shape; say of each what was wrong, if anything."""
        settings = [CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()]
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    configs=settings,
                )
                for name in names
            ],
            timeout_ms=self._view.settings.request_timeout_ms,
            validate_only=validate_only,
        )

        async def ask() -> dict[str, ApiError | None]:
            answer = await self._view.ask_controller(request, CreateTopicsResponse)
            return {
                row.name: _outcome(row.error_code, row.error_message, row.name)
                for row in answer.topics
            }

        return await self._view.retried(ask)

    async def delete(self, names: Collection[str]) -> dict[str, ApiError | None]:
        """Delete topics; say of each what was wrong, if anything."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names],
            topic_names=list(names),
            timeout_ms=self._view.settings.request_timeout_ms,
        )

        async def ask() -> dict[str, ApiError | None]:
            controller = await self._view.controller_connection()
            if controller.version_for(DeleteTopicsRequest) < _BY_STATE_SINCE:
                request.topics = []
            answer = await self._view.ask_controller(request, DeleteTopicsResponse)
            return {
                row.name or "": _outcome(row.error_code, row.error_message, row.name or "")
                for row in answer.responses
            }

        outcomes = await self._view.retried(ask)
        self._view.forget(names)
        return outcomes

    async def grow(self, name: str, partitions: int, *, validate_only: bool = False) -> None:
        """Give a topic more partitions; the number is the new total."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=partitions, assignments=None)],
            timeout_ms=self._view.settings.request_timeout_ms,
            validate_only=validate_only,
        )

        async def ask() -> None:
            answer = await self._view.ask_controller(request, CreatePartitionsResponse)
            for row in answer.results:
                if failed := _outcome(row.error_code, row.error_message, row.name):
                    raise failed

        await self._view.retried(ask, final=(MISSING,))
        self._view.forget([name])


def described(topic: MetadataResponseTopic) -> TopicDescription:
    """Turn what metadata says into a description."""
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


def _outcome(code: int, message: str | None, name: str) -> ApiError | None:
    """Return what became of one topic; NOT_CONTROLLER is raised: somebody else is to be asked."""
    try:
        check(code, message or f"topic {name!r}")
    except ApiError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        if error.code is MISSING:
            return ApiError(MISSING, f"there is no topic {name!r}")
        return error
    return None
