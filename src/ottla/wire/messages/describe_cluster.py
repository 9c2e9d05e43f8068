"""DescribeCluster (API 60): describe the nodes of the cluster.

Took over from Metadata for this purpose (KIP-700). Since version 1 the endpoint type picks
brokers (1) or controllers (2) (KIP-919); since 2 fenced brokers can be included (KIP-1073).
"""

from ottla.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string


class DescribeClusterRequest(Message, versions=(0, 2), flexible_since=0):
    """Describe the cluster's brokers or controllers."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(default=1, since=1)
    include_fenced_brokers: bool = boolean(since=2)


class DescribeClusterBroker(Struct):
    """One node of the cluster."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, nullable_since=0)
    is_fenced: bool = boolean(since=2)


class DescribeClusterResponse(Message, versions=(0, 2), flexible_since=0):
    """The cluster and its nodes."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    endpoint_type: int = int8(default=1, since=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)
