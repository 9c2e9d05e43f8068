"""Partitions: replicas and leaders, moves between brokers and log directories, elections."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

from ottla.clients.admin.admin_topics import TopicAdmin
from ottla.clients.admin.per_item_results import (
    ItemsFailedError,
    for_each,
    in_time,
    one_or_several,
    outcome_of,
)
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import check, error_code
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition, numbers_by_topic
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
    DescribeTopicPartitionsResponsePartition,
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
    ListPartitionReassignmentsTopics,
)

_MISSING: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
K = TypeVar("K")
V = TypeVar("V")
_Outcomes = dict[TopicPartition, ApiError | None]


class ElectionType(IntEnum):
    """The kinds of elections."""

    PREFERRED = 0
    """The first replica leads if it is in sync."""
    UNCLEAN = 1
    """Any replica may lead, even if it lacks committed records."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """The leader, the replicas and the eligible leaders of a partition."""

    name: TopicPartition
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]

    @property
    def has_leader(self) -> bool:
        """Whether the partition has a leader."""
        return self.leader >= 0


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment in progress."""

    name: TopicPartition
    replicas: tuple[int, ...]
    """All current replicas, old and new."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(one for one in self.replicas if one not in self.removing)


_Described = dict[str, list[PartitionDescription] | ApiError]


class PartitionAdmin:
    """Calls about partitions."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def describe(self, topics: str | Iterable[str] = ()) -> list[PartitionDescription]:
        """Describe the partitions of these topics, or of all topics by default.

        The controller is asked, because it learns of changes first. If a topic does not exist, the
        error has the partitions of the others, by topic. In clusters without
        DescribeTopicPartitions, the only API with eligible leaders, metadata is asked for instead.
        """
        names = one_or_several(topics)
        if names:
            found = await for_each(self._view, names, self._described_or_not)
        else:
            found = _whole(await in_time(self._view, lambda: self._described_or_not(())))
        rows = (row for of_topic in found.values() for row in of_topic)
        return sorted(rows, key=lambda row: row.name)

    async def reassign(self, plan: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Start to move partitions to other brokers; None cancels a move in progress."""

        async def ask(waiting: Sequence[TopicPartition]) -> _Outcomes:
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
                    for topic, numbers in numbers_by_topic(waiting).items()
                ],
                timeout_ms=self._view.settings.request_timeout_ms,
            )
            response = await self._view.ask_controller(request, AlterPartitionReassignmentsResponse)
            check(response.error_code, response.error_message)
            return {
                (name := TopicPartition(topic.name, row.partition_index)): outcome_of(
                    row.error_code, row.error_message or f"partition {name}", None
                )
                for topic in response.responses
                for row in topic.partitions
            }

        await for_each(self._view, sorted(plan), ask, final=_MISSING)

    async def reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the ongoing reassignments: all, or only of these partitions."""
        request = ListPartitionReassignmentsRequest(
            topics=None
            if partitions is None
            else [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
                for topic, numbers in numbers_by_topic(partitions).items()
            ],
            timeout_ms=self._view.settings.request_timeout_ms,
        )

        async def ask() -> dict[TopicPartition, Reassignment]:
            response = await self._view.ask_controller(request, ListPartitionReassignmentsResponse)
            check(response.error_code, response.error_message)
            moves = (
                Reassignment(
                    TopicPartition(topic.name, row.partition_index),
                    tuple(row.replicas),
                    tuple(row.adding_replicas),
                    tuple(row.removing_replicas),
                )
                for topic in response.topics
                for row in topic.partitions
            )
            return {move.name: move for move in sorted(moves, key=lambda move: move.name)}

        return await in_time(self._view, ask)

    async def elect(
        self, kind: ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> list[TopicPartition]:
        """Hold elections in these partitions; None means every partition that needs an election.

        Return the partitions with a new leader. ELECTION_NOT_NEEDED for a partition that already
        has the right leader.
        """
        if partitions is not None:
            asked = sorted(partitions)
            return list(
                await for_each(
                    self._view, asked, lambda some: self._elect(kind, some), final=_MISSING
                )
            )
        found = await in_time(self._view, lambda: self._elect(kind, None))
        return list(_whole(found))

    async def move_to_log_dirs(
        self, broker_id: int, path_by_partition: Mapping[TopicPartition, str]
    ) -> None:
        """Start to move a broker's replicas to other log directories of that broker."""

        async def ask(waiting: Sequence[TopicPartition]) -> _Outcomes:
            paths = sorted({path_by_partition[name] for name in waiting})
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path,
                        topics=[
                            AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                            for topic, numbers in numbers_by_topic(
                                name for name in waiting if path_by_partition[name] == path
                            ).items()
                        ],
                    )
                    for path in paths
                ]
            )
            response = await self._view.ask_broker(broker_id, request, AlterReplicaLogDirsResponse)
            return {
                (name := TopicPartition(result.topic_name, row.partition_index)): outcome_of(
                    row.error_code,
                    _FOLDER_DETAIL.get(error_code(row.error_code), "{name} is not moved").format(
                        name=name, broker=broker_id, path=path_by_partition[name]
                    ),
                    None,
                )
                for result in response.results
                for row in result.partitions
            }

        final = (ErrorCode.REPLICA_NOT_AVAILABLE, *_MISSING)
        await for_each(self._view, path_by_partition, ask, final=final)

    async def _elect(
        self, kind: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> _Outcomes:
        request = ElectLeadersRequest(
            election_type=kind,
            topic_partitions=None
            if partitions is None
            else [
                TopicPartitions(topic=topic, partitions=numbers)
                for topic, numbers in numbers_by_topic(partitions).items()
            ],
            timeout_ms=self._view.settings.request_timeout_ms,
        )
        response = await self._view.ask_controller(request, ElectLeadersResponse)
        check(response.error_code, "the election")
        return {
            (name := TopicPartition(topic.topic, row.partition_id)): outcome_of(
                row.error_code, row.error_message or f"partition {name}", None
            )
            for topic in sorted(response.replica_election_results, key=lambda topic: topic.topic)
            for row in topic.partition_result
        }

    async def _described_or_not(self, topics: Sequence[str]) -> _Described:
        try:
            return await self._described(topics)
        except ApiError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
        return await self._described_by_metadata(topics)

    async def _described(self, topics: Sequence[str]) -> _Described:
        """Describe page by page; brokers limit the partitions in one response."""
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in topics], cursor=None
        )
        found: dict[str, list[PartitionDescription]] = {}
        failed: dict[str, ApiError] = {}
        while True:
            page = await self._view.ask_controller(request, DescribeTopicPartitionsResponse)
            for topic in page.topics:
                name = topic.name or ""
                if code := error_code(topic.error_code):
                    failed[name] = ApiError(code, f"there is no topic {name!r}")
                found.setdefault(name, []).extend(_described(name, row) for row in topic.partitions)
            if page.next_cursor is None:
                return {**found, **failed}
            request.cursor = page.next_cursor

    async def _described_by_metadata(self, topics: Sequence[str]) -> _Described:
        admin = TopicAdmin(self._view)
        failed: dict[str, ApiError] = {}
        try:
            found = (await admin.describe(topics)).values() if topics else await admin.list()
        except ItemsFailedError as error:
            found, failed = error.done.values(), error.failed
        described = {
            topic.name: [
                PartitionDescription(
                    TopicPartition(topic.name, row.partition),
                    row.leader,
                    row.leader_epoch,
                    row.replicas,
                    row.in_sync_replicas,
                    (),
                    row.offline_replicas,
                )
                for row in topic.partitions
            ]
            for topic in found
        }
        return {**described, **failed}


_FOLDER_DETAIL = {
    ErrorCode.LOG_DIR_NOT_FOUND: "broker {broker} has no directory {path}: `ottla cluster logdirs` "
    "shows those it has",
    ErrorCode.REPLICA_NOT_AVAILABLE: "broker {broker} keeps no {name}",
}


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _described(topic: str, row: DescribeTopicPartitionsResponsePartition) -> PartitionDescription:
    return PartitionDescription(
        TopicPartition(topic, row.partition_index),
        row.leader_id,
        row.leader_epoch,
        tuple(row.replica_nodes),
        tuple(row.isr_nodes),
        tuple(row.eligible_leader_replicas or ()),
        tuple(row.offline_replicas),
    )


def _whole(found: Mapping[K, V | ApiError]) -> dict[K, V]:
    """Return the results of items that the broker has chosen; ItemsFailedError if any failed."""
    failed = {item: error for item, error in found.items() if isinstance(error, ApiError)}
    done = {item: value for item, value in found.items() if not isinstance(value, ApiError)}
    if failed:
        raise ItemsFailedError(done, failed)
    return done
