"""Cluster calls: brokers, features, the metadata quorum and log directories."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.clients.admin.per_item_results import ask_each, for_each, in_time
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import check, error_code, only
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.rpc.connection import SOFTWARE_NAME, SOFTWARE_VERSION
from ottla.wire.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
    ReplicaState,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from ottla.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UNKNOWN_BYTES: Final = -1
_FENCED_SINCE: Final = 2
_METADATA: Final = TopicPartition("__cluster_metadata", 0)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """The address and rack of a broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers, and the controller among them."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker, and the replicas in it."""

    broker_id: int
    path: str
    total_bytes: int
    usable_bytes: int
    size_by_partition: dict[TopicPartition, int]
    lag_by_future: dict[TopicPartition, int]
    """The lag of future replicas: moves between log directories that are in progress."""
    error: ErrorCode
    is_cordoned: bool = False
    """Whether it is closed to new partitions."""


_Folders = tuple[LogDirDescription, ...]


class FeatureLevels(NamedTuple):
    """The lowest and highest level of a feature."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class FeatureDescription:
    """The feature levels of the cluster, and the levels that the queried broker supports."""

    finalized: Mapping[str, int]
    """The level of each feature in use."""
    supported: Mapping[str, FeatureLevels]
    epoch: int
    """The epoch of the feature levels, raised by every change; -1 if there is none."""


class FeatureUpdateType(IntEnum):
    """The allowed changes of a feature's level."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    """A downgrade without loss of metadata."""
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A replica of the metadata log, and its progress."""

    replica_id: int
    directory_id: bytes
    """The id of its metadata directory; zeros if the voters have none (kraft.version 0)."""
    end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumEndpoint(NamedTuple):
    """An address of a controller, on one listener."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The voters, observers and leader of the metadata log."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints_by_voter: Mapping[int, tuple[QuorumEndpoint, ...]]
    """The addresses of controllers, if the broker knows them."""


class ClusterAdmin:
    """Cluster calls."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def describe(self, *, include_fenced: bool = False) -> ClusterDescription:
        """Describe the cluster; brokers without DescribeCluster are asked for metadata.

        With `include_fenced` the controller is asked; clusters that cannot report fenced brokers
        return a description without them.
        """
        if not include_fenced:
            return await in_time(self._view, self._describe)

        async def ask() -> ClusterDescription:
            controller = await self._view.controller_connection()
            if controller.version_for(DescribeClusterRequest) < _FENCED_SINCE:
                return await self._describe()
            request = DescribeClusterRequest(include_fenced_brokers=True)
            return _described(await self._view.ask_controller(request, DescribeClusterResponse))

        return await in_time(self._view, ask)

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove the registration of a permanently stopped broker."""

        async def ask() -> None:
            request = UnregisterBrokerRequest(broker_id=broker_id)
            response = await self._view.ask_controller(request, UnregisterBrokerResponse)
            check(response.error_code, response.error_message or f"broker {broker_id}")

        await in_time(self._view, ask)

    async def log_dirs(
        self, broker_ids: int | Iterable[int] | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        """Describe the log directories of these brokers, or of all live brokers."""
        if broker_ids is None:
            return await in_time(self._view, self._all_log_dirs)
        wanted = [broker_ids] if isinstance(broker_ids, int) else list(dict.fromkeys(broker_ids))

        async def ask(broker_id: int, _: list[int]) -> dict[int, _Folders | ApiError]:
            return {broker_id: await self._log_dirs_at(broker_id)}

        return await for_each(
            self._view, wanted, lambda ids: ask_each({one: [one] for one in ids}, ask)
        )

    async def _all_log_dirs(self) -> dict[int, _Folders]:
        """Ask all live brokers; a broker that fails meanwhile is left out."""
        await self._view.refresh([])
        ids = self._view.broker_ids
        found = await asyncio.gather(*map(self._log_dirs_at, ids))
        return dict(zip(ids, found, strict=True))

    async def _log_dirs_at(self, broker_id: int) -> _Folders:
        request = DescribeLogDirsRequest(topics=None)
        response = await self._view.ask_broker(broker_id, request, DescribeLogDirsResponse)
        check(response.error_code, f"the directories of broker {broker_id}")
        return tuple(_folder(broker_id, row) for row in response.results)

    async def versions_by_api(self) -> dict[int, tuple[int, int]]:
        """Return the first and last version by API number, from any broker."""
        await self._view.refresh([])
        connection = await self._view.connection_to(self._view.broker_ids[0])
        return connection.versions_by_api

    async def features(self) -> FeatureDescription:
        """Return the finalized and the supported levels of features."""

        async def ask() -> FeatureDescription:
            request = ApiVersionsRequest(
                client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
            )
            response = await self._view.ask_controller(request, ApiVersionsResponse)
            check(response.error_code, "the features of the cluster")
            return FeatureDescription(
                {row.name: row.max_version_level for row in response.finalized_features},
                {
                    row.name: FeatureLevels(row.min_version, row.max_version)
                    for row in response.supported_features
                },
                response.finalized_features_epoch,
            )

        return await in_time(self._view, ask)

    async def update_features(
        self,
        level_by_feature: Mapping[str, int],
        *,
        allow: FeatureUpdateType = FeatureUpdateType.UPGRADE,
        validate_only: bool = False,
    ) -> None:
        """Change the levels of features atomically; level 0 disables a feature."""
        request = UpdateFeaturesRequest(
            timeout_ms=self._view.settings.request_timeout_ms,
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=allow)
                for name, level in level_by_feature.items()
            ],
            validate_only=validate_only,
        )

        async def ask() -> None:
            response = await self._view.ask_controller(request, UpdateFeaturesResponse)
            check(response.error_code, response.error_message or "the features were not changed")
            for row in response.results:
                check(row.error_code, row.error_message or f"feature {row.feature}")

        await in_time(self._view, ask)

    async def quorum(self) -> QuorumDescription:
        """Describe the metadata quorum, in clusters that have one.

        UNSUPPORTED_VERSION from clusters with their metadata in ZooKeeper.
        """
        wanted = DescribeQuorumRequestPartition(partition_index=_METADATA.partition)
        topic = DescribeQuorumRequestTopic(topic_name=_METADATA.topic, partitions=[wanted])
        request = DescribeQuorumRequest(topics=[topic])

        async def ask() -> QuorumDescription:
            response = await self._view.ask_any(request, DescribeQuorumResponse)
            check(response.error_code, response.error_message or "the quorum")
            row = only(only(response.topics, "a topic").partitions, "a partition")
            check(row.error_code, row.error_message or "the quorum")
            return QuorumDescription(
                row.leader_id,
                row.leader_epoch,
                row.high_watermark,
                tuple(map(_replica, row.current_voters)),
                tuple(map(_replica, row.observers)),
                {
                    node.node_id: tuple(
                        QuorumEndpoint(one.name, one.host, one.port) for one in node.listeners
                    )
                    for node in response.nodes
                },
            )

        return await in_time(self._view, ask)

    async def add_voter(
        self, voter_id: int, directory_id: bytes, endpoints: Iterable[QuorumEndpoint]
    ) -> None:
        """Let a controller vote that runs and has caught up; return when the change is committed.

        DUPLICATE_VOTER if a voter has this id. REQUEST_TIMED_OUT while another change is pending.
        """
        listeners = [Listener(name=name, host=host, port=port) for name, host, port in endpoints]
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=self._view.settings.request_timeout_ms,
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=listeners,
        )

        async def ask() -> None:
            response = await self._view.ask_controller(request, AddRaftVoterResponse)
            check(response.error_code, response.error_message or f"voter {voter_id} was not added")

        await in_time(self._view, ask)

    async def remove_voter(self, voter_id: int, directory_id: bytes) -> None:
        """Take the vote from a controller, named with its directory; it may be gone for good.

        VOTER_NOT_FOUND if no voter has both ids. REQUEST_TIMED_OUT while another change is pending.
        """
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id
        )

        async def ask() -> None:
            response = await self._view.ask_controller(request, RemoveRaftVoterResponse)
            check(
                response.error_code, response.error_message or f"voter {voter_id} was not removed"
            )

        await in_time(self._view, ask)

    async def _describe(self) -> ClusterDescription:
        try:
            response = await self._view.ask_any(DescribeClusterRequest(), DescribeClusterResponse)
        except ApiError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            return await self._describe_by_metadata()
        return _described(response)

    async def _describe_by_metadata(self) -> ClusterDescription:
        response = await self._view.ask_any(MetadataRequest(topics=[]), MetadataResponse)
        brokers = (
            BrokerDescription(row.node_id, row.host, row.port, row.rack) for row in response.brokers
        )
        return _in_order(response.cluster_id or "", response.controller_id, brokers)


def _described(response: DescribeClusterResponse) -> ClusterDescription:
    check(response.error_code, response.error_message)
    brokers = (
        BrokerDescription(row.broker_id, row.host, row.port, row.rack, row.is_fenced)
        for row in response.brokers
    )
    return _in_order(response.cluster_id, response.controller_id, brokers)


def _in_order(
    cluster_id: str, controller_id: int, brokers: Iterable[BrokerDescription]
) -> ClusterDescription:
    in_order = sorted(brokers, key=lambda broker: broker.broker_id)
    return ClusterDescription(cluster_id, controller_id, tuple(in_order))


def _folder(broker_id: int, row: DescribeLogDirsResult) -> LogDirDescription:
    replicas = [
        (TopicPartition(topic.name, replica.partition_index), replica)
        for topic in row.topics
        for replica in topic.partitions
    ]
    return LogDirDescription(
        broker_id,
        row.log_dir,
        row.total_bytes,
        row.usable_bytes,
        {name: replica.partition_size for name, replica in replicas},
        {name: replica.offset_lag for name, replica in replicas if replica.is_future_key},
        error_code(row.error_code),
        row.is_cordoned,
    )


def _replica(row: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        row.replica_id,
        row.replica_directory_id,
        row.log_end_offset,
        row.last_fetch_timestamp,
        row.last_caught_up_timestamp,
    )
