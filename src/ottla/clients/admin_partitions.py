"""Partitions: who keeps and leads them, moves between brokers and folders, elections."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ottla.clients.admin_topics import TopicAdmin
from ottla.clients.cluster_view import ClusterView
from ottla.clients.errors import check, error_code
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
Outcomes = dict[TopicPartition, ApiError | None]
"""What was wrong with each partition, if anything."""


class ElectionType(IntEnum):
    """What an election is held for."""

    PREFERRED = 0
    """The first replica leads if it is in sync."""
    UNCLEAN = 1
    """Somebody leads, even one that lacks what was committed."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """Who leads one partition, who has copies of it, and who could lead it."""

    name: TopicPartition
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]

    @property
    def has_leader(self) -> bool:
        """Whether anybody leads."""
        return self.leader >= 0


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition that is on its way to other brokers."""

    name: TopicPartition
    replicas: tuple[int, ...]
    """All that keep it now, old and new."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Who will keep it in the end."""
        return tuple(one for one in self.replicas if one not in self.removing)


class PartitionAdmin:
    """Calls about partitions."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def describe(self, topics: Collection[str] = ()) -> list[PartitionDescription]:
        """Describe the partitions of these topics, or of all if none is named.

        The controller is asked, who knows first. ApiError if one of them is not there. Clusters
        without DescribeTopicPartitions, which alone tells of eligible leaders, are asked for
        metadata.
        """

        async def ask() -> list[PartitionDescription]:
            try:
                return await self._described(topics)
            except ApiError as error:
                if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                    raise
            return await self._described_by_metadata(topics)

        return await self._view.retried(ask, final=(MISSING,))

    async def reassign(self, plan: Mapping[TopicPartition, Sequence[int] | None]) -> Outcomes:
        """Begin to move partitions to other brokers; None takes a move back that is under way."""
        request = AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(
                            partition_index=number,
                            replicas=_listed(plan[TopicPartition(topic, number)]),
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in _by_topic(plan).items()
            ],
            timeout_ms=self._view.settings.request_timeout_ms,
        )

        async def ask() -> Outcomes:
            answer = await self._view.ask_controller(request, AlterPartitionReassignmentsResponse)
            check(answer.error_code, answer.error_message)
            return {
                TopicPartition(topic.name, row.partition_index): _outcome(
                    row.error_code, row.error_message
                )
                for topic in answer.responses
                for row in topic.partitions
            }

        return await self._view.retried(ask)

    async def reassignments(self) -> dict[TopicPartition, Reassignment]:
        """Return every move that is under way."""
        request = ListPartitionReassignmentsRequest(
            topics=None, timeout_ms=self._view.settings.request_timeout_ms
        )

        async def ask() -> dict[TopicPartition, Reassignment]:
            answer = await self._view.ask_controller(request, ListPartitionReassignmentsResponse)
            check(answer.error_code, answer.error_message)
            moves = (
                Reassignment(
                    TopicPartition(topic.name, row.partition_index),
                    tuple(row.replicas),
                    tuple(row.adding_replicas),
                    tuple(row.removing_replicas),
                )
                for topic in answer.topics
                for row in topic.partitions
            )
            return {move.name: move for move in sorted(moves, key=lambda move: move.name)}

        return await self._view.retried(ask)

    async def elect(
        self, kind: ElectionType, partitions: Collection[TopicPartition] | None
    ) -> Outcomes:
        """Hold elections in these partitions; None asks for all in which one is needed."""
        request = ElectLeadersRequest(
            election_type=kind,
            topic_partitions=None
            if partitions is None
            else [
                TopicPartitions(topic=topic, partitions=numbers)
                for topic, numbers in _by_topic(partitions).items()
            ],
            timeout_ms=self._view.settings.request_timeout_ms,
        )

        async def ask() -> Outcomes:
            answer = await self._view.ask_controller(request, ElectLeadersResponse)
            check(answer.error_code, "the election")
            return {
                TopicPartition(topic.topic, row.partition_id): _outcome(
                    row.error_code, row.error_message
                )
                for topic in sorted(answer.replica_election_results, key=lambda topic: topic.topic)
                for row in topic.partition_result
            }

        return await self._view.retried(ask)

    async def move_to_folder(self, broker_id: int, name: TopicPartition, path: str) -> None:
        """Begin to move a broker's copy of a partition to another folder of that broker."""
        topic = AlterReplicaLogDirTopic(name=name.topic, partitions=[name.partition])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])

        async def ask() -> None:
            answer = await self._view.ask_broker(broker_id, request, AlterReplicaLogDirsResponse)
            for result in answer.results:
                for row in result.partitions:
                    detail = _FOLDER_DETAIL.get(error_code(row.error_code), "{name} is not moved")
                    check(row.error_code, detail.format(name=name, broker=broker_id, path=path))

        await self._view.retried(ask, final=(ErrorCode.REPLICA_NOT_AVAILABLE,))

    async def _described(self, topics: Collection[str]) -> list[PartitionDescription]:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in topics], cursor=None
        )
        found: list[PartitionDescription] = []
        while True:
            page = await self._view.ask_controller(request, DescribeTopicPartitionsResponse)
            for topic in page.topics:
                check(topic.error_code, f"there is no topic {topic.name!r}")
                found += [
                    PartitionDescription(
                        TopicPartition(topic.name or "", row.partition_index),
                        row.leader_id,
                        row.leader_epoch,
                        tuple(row.replica_nodes),
                        tuple(row.isr_nodes),
                        tuple(row.eligible_leader_replicas or ()),
                        tuple(row.offline_replicas),
                    )
                    for row in topic.partitions
                ]
            if page.next_cursor is None:
                return sorted(found, key=lambda row: row.name)
            request.cursor = page.next_cursor

    async def _described_by_metadata(self, topics: Collection[str]) -> list[PartitionDescription]:
        admin = TopicAdmin(self._view)
        found = await (admin.describe(topics) if topics else admin.list_all())
        return [
            PartitionDescription(
                TopicPartition(topic.name, row.partition),
                row.leader,
                row.leader_epoch,
                row.replicas,
                row.in_sync_replicas,
                (),
                row.offline_replicas,
            )
            for topic in found
            for row in topic.partitions
        ]


_FOLDER_DETAIL = {
    ErrorCode.LOG_DIR_NOT_FOUND: "broker {broker} has no folder {path}: `ottla cluster logdirs` "
    "shows those it has",
    ErrorCode.REPLICA_NOT_AVAILABLE: "broker {broker} keeps no {name}",
}


def _by_topic(names: Iterable[TopicPartition]) -> dict[str, list[int]]:
    numbers_by_topic: dict[str, list[int]] = {}
    for name in sorted(names):
        numbers_by_topic.setdefault(name.topic, []).append(name.partition)
    return numbers_by_topic


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _outcome(code: int, message: str | None) -> ApiError | None:
    found = error_code(code)
    return None if found is ErrorCode.NONE else ApiError(found, message or "")
