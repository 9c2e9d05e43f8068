"""Reads the facts about a Kafka cluster by its public APIs. Nothing is changed."""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from ottla.cli.migration.cluster_facts import ClusterFacts, NodeFacts
from ottla.clients.admin.admin_configs import ConfigResource, ConfigSource, ResourceType
from ottla.clients.admin.admin_offsets import OffsetSpec
from ottla.clients.admin.admin_topics import TopicDescription
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.admin.per_item_results import ItemsFailedError
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.cluster.connections import connect
from ottla.clients.errors import NoResponseError, UnreachableError, check, only
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, TopicPartition
from ottla.rpc.connection import SOFTWARE_NAME, SOFTWARE_VERSION, Connection
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
)
from ottla.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ottla.wire.schema import Message

METADATA_VERSION: Final = "metadata.version"
TOPICS_AT_ONCE: Final = 500
"""The topics in one request for settings: a response stays below a megabyte."""
_TIERED: Final = "remote.storage.enable"
_ANY: Final = 1
"""Matches every resource type, pattern type, operation and permission in a filter of ACLs."""
_GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
R = TypeVar("R", bound=Message)
V = TypeVar("V")


async def read_facts(view: ClusterView) -> ClusterFacts:
    """Ask a cluster for its facts; ApiError or OSError if a live broker does not answer."""
    admin = AsyncAdmin.over(view)
    described = await admin.cluster.describe(include_fenced=True)
    live = [BrokerId(row.broker_id) for row in described.brokers if not row.is_fenced]
    fenced = [BrokerId(row.broker_id) for row in described.brokers if row.is_fenced]
    nodes = {broker_id: await _broker(view, admin, broker_id) for broker_id in live}
    quorum = await _if_offered(view, _QUORUM, DescribeQuorumResponse)
    unread = set(fenced)
    for node_id, address in _addresses(quorum).items():
        if node_id in nodes:
            continue
        if (controller := await _controller(view, node_id, address)) is not None:
            nodes[node_id] = controller
        else:
            unread.add(node_id)
    topics = await admin.topics.list()
    scram = await _if_offered(view, _SCRAM, DescribeUserScramCredentialsResponse)
    return ClusterFacts(
        nodes=tuple(nodes[node_id] for node_id in sorted(nodes)),
        unread_nodes=tuple(sorted(unread - nodes.keys())),
        has_quorum=quorum is not None,
        level_by_feature=(await admin.cluster.features()).finalized,
        tiered_topics=await _tiered_topics(admin, [topic.name for topic in topics]),
        offline_partitions=tuple(_partitions(topics, is_offline=True)),
        old_format_partitions=await _old_format_partitions(admin, topics),
        groups_by_type=await _groups_by_type(admin),
        acl_count=await _acl_count(view),
        quota_count=await _quota_count(view),
        scram_users=() if scram is None else tuple(sorted(row.user for row in scram.results)),
    )


_QUORUM: Final = DescribeQuorumRequest(
    topics=[
        DescribeQuorumRequestTopic(
            topic_name="__cluster_metadata",
            partitions=[DescribeQuorumRequestPartition(partition_index=0)],
        )
    ]
)
_SCRAM: Final = DescribeUserScramCredentialsRequest(users=None)


# -- brokers and controllers ----------------------------------------------------------------------


async def _broker(view: ClusterView, admin: AsyncAdmin, broker_id: BrokerId) -> NodeFacts:
    resource = ConfigResource.broker(broker_id)
    entries = (await admin.configs.describe(resource))[resource]
    settings = {
        entry.name: entry.value or ""
        for entry in entries.values()
        if entry.source is not ConfigSource.DEFAULT_CONFIG
    }
    connection = await view.connection_to(broker_id)
    version = await _metadata_version_max(connection, view.settings.request_timeout_ms)
    return NodeFacts(broker_id, settings, version)


def _addresses(quorum: DescribeQuorumResponse | None) -> dict[BrokerId, Address]:
    """Return the first address of each controller."""
    if quorum is None:
        return {}
    return {
        BrokerId(node.node_id): Address(node.listeners[0].host, node.listeners[0].port)
        for node in quorum.nodes
        if node.listeners
    }


async def _controller(view: ClusterView, node_id: BrokerId, address: Address) -> NodeFacts | None:
    """Ask a controller on its own listener; None if this machine or client cannot reach it."""
    limit_ms = view.settings.request_timeout_ms
    resource = DescribeConfigsResource(
        resource_type=ResourceType.BROKER, resource_name=str(node_id), configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource])
    try:
        connection = await Connection.open(
            address,
            connect,
            client_id=view.settings.client_id,
            timeout_ms=view.settings.connect_timeout_ms,
        )
    except UnreachableError:
        return None
    try:
        answer = await connection.ask(request, DescribeConfigsResponse, timeout_ms=limit_ms)
        found = only(answer.results, "a controller")
        check(found.error_code, found.error_message or f"controller {node_id}")
        version = await _metadata_version_max(connection, limit_ms)
    except (ApiError, UnreachableError, NoResponseError):
        return None
    finally:
        connection.close()
    settings = {
        row.name: row.value or ""
        for row in found.configs
        if row.config_source != ConfigSource.DEFAULT_CONFIG
    }
    return NodeFacts(node_id, settings, version)


async def _metadata_version_max(connection: Connection, timeout_ms: int) -> int | None:
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
    )
    answer = await connection.ask(request, ApiVersionsResponse, timeout_ms=timeout_ms)
    check(answer.error_code, "the features of a node")
    return {row.name: row.max_version for row in answer.supported_features}.get(METADATA_VERSION)


# -- topics and groups ----------------------------------------------------------------------------


async def _tiered_topics(admin: AsyncAdmin, names: list[str]) -> tuple[str, ...]:
    tiered: list[str] = []
    for start in range(0, len(names), TOPICS_AT_ONCE):
        asked = [ConfigResource.topic(name) for name in names[start : start + TOPICS_AT_ONCE]]
        try:
            found = await admin.configs.describe(asked, keys=[_TIERED])
        except ItemsFailedError as error:
            found = _without_gone(error)
        tiered += [
            resource.name
            for resource, entries in found.items()
            if any(entry.value == "true" for entry in entries.values())
        ]
    return tuple(tiered)


async def _old_format_partitions(
    admin: AsyncAdmin, topics: Iterable[TopicDescription]
) -> tuple[TopicPartition, ...]:
    """Return the partitions that begin with messages without a leader epoch.

    Record batches have one. An older format has none, so the log has no epoch at its start.
    """
    names = list(_partitions(topics, is_offline=False))
    try:
        starts = await admin.offsets.find(dict.fromkeys(names, OffsetSpec.EARLIEST))
    except ItemsFailedError as error:
        starts = _without_gone(error)
    unknown = [name for name, start in starts.items() if start.leader_epoch < 0]
    try:
        ends = await admin.offsets.find(dict.fromkeys(unknown, OffsetSpec.LATEST))
    except ItemsFailedError as error:
        ends = _without_gone(error)
    return tuple(sorted(name for name, end in ends.items() if end.offset > starts[name].offset))


def _partitions(
    topics: Iterable[TopicDescription], *, is_offline: bool
) -> Iterable[TopicPartition]:
    return (
        TopicPartition(topic.name, partition.partition)
        for topic in topics
        for partition in topic.partitions
        if (partition.leader < 0) is is_offline
    )


def _without_gone(error: ItemsFailedError) -> dict[V, R]:
    """Return the results if the other topics were deleted meanwhile; raise any other failure."""
    if any(failure.code not in _GONE for failure in error.failed.values()):
        raise error
    return error.done


async def _groups_by_type(admin: AsyncAdmin) -> Mapping[str, tuple[str, ...]]:
    ids_by_type: dict[str, list[str]] = {}
    for group in await admin.groups.list():
        ids_by_type.setdefault(group.group_type.lower(), []).append(group.group_id)
    return {group_type: tuple(ids) for group_type, ids in ids_by_type.items()}


# -- security -------------------------------------------------------------------------------------


async def _acl_count(view: ClusterView) -> int:
    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    answer = await _if_offered(view, request, DescribeAclsResponse)
    if answer is None or answer.error_code == ErrorCode.SECURITY_DISABLED:
        return 0
    check(answer.error_code, answer.error_message or "the ACLs")
    return sum(len(resource.acls) for resource in answer.resources)


async def _quota_count(view: ClusterView) -> int:
    request = DescribeClientQuotasRequest(components=[], strict=False)
    answer = await _if_offered(view, request, DescribeClientQuotasResponse)
    if answer is None:
        return 0
    check(answer.error_code, answer.error_message or "the quotas")
    return len(answer.entries or ())


async def _if_offered(view: ClusterView, request: Message, answer: type[R]) -> R | None:
    """Ask any broker; None if the cluster does not offer the API."""
    try:
        found = await view.ask_any(request, answer)
    except ApiError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return None
        raise
    code = getattr(found, "error_code", ErrorCode.NONE)
    return None if code == ErrorCode.UNSUPPORTED_VERSION else found
