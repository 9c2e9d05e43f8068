"""The table of APIs: which request and which response belong to which key."""

from typing import Final, NamedTuple

from ottla.wire.api_key import ApiKey
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from ottla.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from ottla.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from ottla.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from ottla.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ottla.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ottla.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse
from ottla.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.wire.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)
from ottla.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from ottla.wire.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ottla.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.wire.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from ottla.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.wire.messages.vote import VoteRequest, VoteResponse
from ottla.wire.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from ottla.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.wire.schema import Message


class Api(NamedTuple):
    """The request and the response of one API. Both have the same versions."""

    request: type[Message]
    response: type[Message]


API_BY_KEY: Final[dict[int, Api]] = {
    ApiKey.PRODUCE: Api(ProduceRequest, ProduceResponse),
    ApiKey.FETCH: Api(FetchRequest, FetchResponse),
    ApiKey.LIST_OFFSETS: Api(ListOffsetsRequest, ListOffsetsResponse),
    ApiKey.METADATA: Api(MetadataRequest, MetadataResponse),
    ApiKey.OFFSET_COMMIT: Api(OffsetCommitRequest, OffsetCommitResponse),
    ApiKey.OFFSET_FETCH: Api(OffsetFetchRequest, OffsetFetchResponse),
    ApiKey.FIND_COORDINATOR: Api(FindCoordinatorRequest, FindCoordinatorResponse),
    ApiKey.JOIN_GROUP: Api(JoinGroupRequest, JoinGroupResponse),
    ApiKey.HEARTBEAT: Api(HeartbeatRequest, HeartbeatResponse),
    ApiKey.LEAVE_GROUP: Api(LeaveGroupRequest, LeaveGroupResponse),
    ApiKey.SYNC_GROUP: Api(SyncGroupRequest, SyncGroupResponse),
    ApiKey.DESCRIBE_GROUPS: Api(DescribeGroupsRequest, DescribeGroupsResponse),
    ApiKey.LIST_GROUPS: Api(ListGroupsRequest, ListGroupsResponse),
    ApiKey.SASL_HANDSHAKE: Api(SaslHandshakeRequest, SaslHandshakeResponse),
    ApiKey.API_VERSIONS: Api(ApiVersionsRequest, ApiVersionsResponse),
    ApiKey.CREATE_TOPICS: Api(CreateTopicsRequest, CreateTopicsResponse),
    ApiKey.DELETE_TOPICS: Api(DeleteTopicsRequest, DeleteTopicsResponse),
    ApiKey.DELETE_RECORDS: Api(DeleteRecordsRequest, DeleteRecordsResponse),
    ApiKey.INIT_PRODUCER_ID: Api(InitProducerIdRequest, InitProducerIdResponse),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Api(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    ApiKey.ADD_PARTITIONS_TO_TXN: Api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    ApiKey.ADD_OFFSETS_TO_TXN: Api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    ApiKey.END_TXN: Api(EndTxnRequest, EndTxnResponse),
    ApiKey.WRITE_TXN_MARKERS: Api(WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    ApiKey.TXN_OFFSET_COMMIT: Api(TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    ApiKey.DESCRIBE_ACLS: Api(DescribeAclsRequest, DescribeAclsResponse),
    ApiKey.CREATE_ACLS: Api(CreateAclsRequest, CreateAclsResponse),
    ApiKey.DELETE_ACLS: Api(DeleteAclsRequest, DeleteAclsResponse),
    ApiKey.DESCRIBE_CONFIGS: Api(DescribeConfigsRequest, DescribeConfigsResponse),
    ApiKey.ALTER_CONFIGS: Api(AlterConfigsRequest, AlterConfigsResponse),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    ApiKey.DESCRIBE_LOG_DIRS: Api(DescribeLogDirsRequest, DescribeLogDirsResponse),
    ApiKey.SASL_AUTHENTICATE: Api(SaslAuthenticateRequest, SaslAuthenticateResponse),
    ApiKey.CREATE_PARTITIONS: Api(CreatePartitionsRequest, CreatePartitionsResponse),
    ApiKey.CREATE_DELEGATION_TOKEN: Api(
        CreateDelegationTokenRequest, CreateDelegationTokenResponse
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: Api(RenewDelegationTokenRequest, RenewDelegationTokenResponse),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Api(
        ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
    ),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Api(
        DescribeDelegationTokenRequest, DescribeDelegationTokenResponse
    ),
    ApiKey.DELETE_GROUPS: Api(DeleteGroupsRequest, DeleteGroupsResponse),
    ApiKey.ELECT_LEADERS: Api(ElectLeadersRequest, ElectLeadersResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Api(
        IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api(
        AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Api(
        ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
    ),
    ApiKey.OFFSET_DELETE: Api(OffsetDeleteRequest, OffsetDeleteResponse),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Api(DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    ApiKey.ALTER_CLIENT_QUOTAS: Api(AlterClientQuotasRequest, AlterClientQuotasResponse),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Api(
        DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Api(
        AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
    ),
    ApiKey.VOTE: Api(VoteRequest, VoteResponse),
    ApiKey.BEGIN_QUORUM_EPOCH: Api(BeginQuorumEpochRequest, BeginQuorumEpochResponse),
    ApiKey.END_QUORUM_EPOCH: Api(EndQuorumEpochRequest, EndQuorumEpochResponse),
    ApiKey.DESCRIBE_QUORUM: Api(DescribeQuorumRequest, DescribeQuorumResponse),
    ApiKey.ALTER_PARTITION: Api(AlterPartitionRequest, AlterPartitionResponse),
    ApiKey.UPDATE_FEATURES: Api(UpdateFeaturesRequest, UpdateFeaturesResponse),
    ApiKey.ENVELOPE: Api(EnvelopeRequest, EnvelopeResponse),
    ApiKey.FETCH_SNAPSHOT: Api(FetchSnapshotRequest, FetchSnapshotResponse),
    ApiKey.DESCRIBE_CLUSTER: Api(DescribeClusterRequest, DescribeClusterResponse),
    ApiKey.DESCRIBE_PRODUCERS: Api(DescribeProducersRequest, DescribeProducersResponse),
    ApiKey.BROKER_REGISTRATION: Api(BrokerRegistrationRequest, BrokerRegistrationResponse),
    ApiKey.BROKER_HEARTBEAT: Api(BrokerHeartbeatRequest, BrokerHeartbeatResponse),
    ApiKey.UNREGISTER_BROKER: Api(UnregisterBrokerRequest, UnregisterBrokerResponse),
    ApiKey.DESCRIBE_TRANSACTIONS: Api(DescribeTransactionsRequest, DescribeTransactionsResponse),
    ApiKey.LIST_TRANSACTIONS: Api(ListTransactionsRequest, ListTransactionsResponse),
    ApiKey.ALLOCATE_PRODUCER_IDS: Api(AllocateProducerIdsRequest, AllocateProducerIdsResponse),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Api(
        ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Api(
        ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
    ),
    ApiKey.CONTROLLER_REGISTRATION: Api(
        ControllerRegistrationRequest, ControllerRegistrationResponse
    ),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Api(
        GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse
    ),
    ApiKey.PUSH_TELEMETRY: Api(PushTelemetryRequest, PushTelemetryResponse),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Api(AssignReplicasToDirsRequest, AssignReplicasToDirsResponse),
    ApiKey.LIST_CONFIG_RESOURCES: Api(ListConfigResourcesRequest, ListConfigResourcesResponse),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Api(
        DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: Api(ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse),
    ApiKey.SHARE_GROUP_DESCRIBE: Api(ShareGroupDescribeRequest, ShareGroupDescribeResponse),
    ApiKey.SHARE_FETCH: Api(ShareFetchRequest, ShareFetchResponse),
    ApiKey.SHARE_ACKNOWLEDGE: Api(ShareAcknowledgeRequest, ShareAcknowledgeResponse),
    ApiKey.ADD_RAFT_VOTER: Api(AddRaftVoterRequest, AddRaftVoterResponse),
    ApiKey.REMOVE_RAFT_VOTER: Api(RemoveRaftVoterRequest, RemoveRaftVoterResponse),
    ApiKey.UPDATE_RAFT_VOTER: Api(UpdateRaftVoterRequest, UpdateRaftVoterResponse),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Api(
        InitializeShareGroupStateRequest, InitializeShareGroupStateResponse
    ),
    ApiKey.READ_SHARE_GROUP_STATE: Api(ReadShareGroupStateRequest, ReadShareGroupStateResponse),
    ApiKey.WRITE_SHARE_GROUP_STATE: Api(WriteShareGroupStateRequest, WriteShareGroupStateResponse),
    ApiKey.DELETE_SHARE_GROUP_STATE: Api(
        DeleteShareGroupStateRequest, DeleteShareGroupStateResponse
    ),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Api(
        ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse
    ),
    ApiKey.STREAMS_GROUP_HEARTBEAT: Api(
        StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: Api(StreamsGroupDescribeRequest, StreamsGroupDescribeResponse),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Api(
        DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Api(
        AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Api(
        DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse
    ),
}
