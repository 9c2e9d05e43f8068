"""The cluster itself: its brokers, and what their disks hold."""

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.clients.cluster_view import ClusterView
from ottla.clients.errors import check, error_code
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

UNKNOWN_BYTES = -1
_FENCED_SINCE = 2


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """Where one broker is."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers, and which of them is the controller."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A folder of one broker, and what is in it."""

    broker_id: int
    path: str
    total_bytes: int
    usable_bytes: int
    size_by_partition: dict[TopicPartition, int]
    lag_by_future: dict[TopicPartition, int]
    """The copies that are to take over from those in another folder, and the records they lack."""
    error: ErrorCode


class ClusterAdmin:
    """Calls about brokers."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def describe(self) -> ClusterDescription:
        """Describe the cluster; old brokers, without DescribeCluster, are asked for metadata."""
        return await self._view.retried(self._describe)

    async def describe_all(self) -> ClusterDescription:
        """Describe the cluster with its fenced brokers, as the controller knows it.

        Clusters that cannot tell of fenced brokers are described without.
        """

        async def ask() -> ClusterDescription:
            controller = await self._view.controller_connection()
            if controller.version_for(DescribeClusterRequest) < _FENCED_SINCE:
                return await self._describe()
            request = DescribeClusterRequest(include_fenced_brokers=True)
            return _described(await self._view.ask_controller(request, DescribeClusterResponse))

        return await self._view.retried(ask)

    async def remove_broker(self, broker_id: int) -> None:
        """Let the cluster forget a broker that has been stopped for good."""

        async def ask() -> None:
            request = UnregisterBrokerRequest(broker_id=broker_id)
            answer = await self._view.ask_controller(request, UnregisterBrokerResponse)
            check(answer.error_code, answer.error_message or f"broker {broker_id}")

        await self._view.retried(ask)

    async def log_dirs(self, broker_id: int) -> list[LogDirDescription]:
        """Describe the folders of one broker."""

        async def ask() -> list[LogDirDescription]:
            request = DescribeLogDirsRequest(topics=None)
            answer = await self._view.ask_broker(broker_id, request, DescribeLogDirsResponse)
            check(answer.error_code, f"the folders of broker {broker_id}")
            return [
                LogDirDescription(
                    broker_id,
                    row.log_dir,
                    row.total_bytes,
                    row.usable_bytes,
                    {
                        TopicPartition(topic.name, replica.partition_index): replica.partition_size
                        for topic in row.topics
                        for replica in topic.partitions
                    },
                    {
                        TopicPartition(topic.name, replica.partition_index): replica.offset_lag
                        for topic in row.topics
                        for replica in topic.partitions
                        if replica.is_future_key
                    },
                    error_code(row.error_code),
                )
                for row in answer.results
            ]

        return await self._view.retried(ask)

    async def versions_by_api(self) -> dict[int, tuple[int, int]]:
        """Return what the first broker at hand speaks: first and last version by API number."""
        await self._view.refresh([])
        connection = await self._view.connection_to(self._view.broker_ids[0])
        return connection.versions_by_api

    async def _describe(self) -> ClusterDescription:
        try:
            answer = await self._view.ask_any(DescribeClusterRequest(), DescribeClusterResponse)
        except ApiError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            return await self._describe_by_metadata()
        return _described(answer)

    async def _describe_by_metadata(self) -> ClusterDescription:
        answer = await self._view.ask_any(MetadataRequest(topics=[]), MetadataResponse)
        brokers = (
            BrokerDescription(row.node_id, row.host, row.port, row.rack) for row in answer.brokers
        )
        return _in_order(answer.cluster_id or "", answer.controller_id, brokers)


def _described(answer: DescribeClusterResponse) -> ClusterDescription:
    check(answer.error_code, answer.error_message)
    brokers = (
        BrokerDescription(row.broker_id, row.host, row.port, row.rack, row.is_fenced)
        for row in answer.brokers
    )
    return _in_order(answer.cluster_id, answer.controller_id, brokers)


def _in_order(
    cluster_id: str, controller_id: int, brokers: Iterable[BrokerDescription]
) -> ClusterDescription:
    in_order = sorted(brokers, key=lambda broker: broker.broker_id)
    return ClusterDescription(cluster_id, controller_id, tuple(in_order))
