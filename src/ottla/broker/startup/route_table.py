"""The table of routes: one row per API, with its handler.

Each function creates the handlers of some APIs from the parts of the broker that they need.
"""

from concurrent.futures import Executor
from functools import partial
from typing import Final

from ottla.broker.controller.controller_client import ActiveController
from ottla.broker.controller.metadata_log_server import MetadataFetch
from ottla.broker.controller.topic_creation import TopicCreation
from ottla.broker.coordinators.coordinator_runtime import CoordinatorWorld
from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.coordinators.transaction_services import TransactionServices
from ottla.broker.coordinators.transaction_verification import TransactionVerification
from ottla.broker.data.batch_validation import BatchValidation
from ottla.broker.data.fetch_sessions import FetchSessions
from ottla.broker.data.message_format_conversion import MessageFormatConversion
from ottla.broker.data.preferred_replicas import RACK_AWARE, PreferredReplicas
from ottla.broker.describing.client_telemetry import ClientTelemetry, LoggingSink
from ottla.broker.describing.metadata_view import CurrentLeaders, MetadataView
from ottla.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    renew_delegation_token,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from ottla.broker.handlers.metadata import DescribedTopics
from ottla.broker.handlers.unsupported import VERSIONS_AND_REFUSALS, UnsupportedHandler
from ottla.broker.hosting.live_config import LiveConfig
from ottla.broker.hosting.partition_log_dirs import PartitionLogDirs
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.replication.log_dir_moves import LogDirMoves
from ottla.broker.replication.replication_quotas import LeaderThrottle
from ottla.broker.requests.request_metrics import Meters
from ottla.broker.requests.routes import Route
from ottla.concurrency.yield_budget import TimeSlices
from ottla.environment.clock import Clock
from ottla.environment.disk import Disk
from ottla.environment.randomness import Randomness
from ottla.model.settings.broker_config import BrokerConfig
from ottla.wire.api_key import ApiKey

_OFFERED: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""Kafka offers these on PLAINTEXT listeners, too: a client with a SASL configuration then gets
ILLEGAL_SASL_STATE, and librdkafka does not report that the broker is too old. The other APIs stand
for features, which clients choose by ApiVersions."""


# -- records --------------------------------------------------------------------------------------


def produce_routes(
    world: CoordinatorWorld,
    leaders: CurrentLeaders,
    old_formats: MessageFormatConversion,
    threads: Executor,
    meters: Meters,
    transactions: TransactionServices,
    verification: TransactionVerification,
    slices: TimeSlices,
) -> dict[int, Route]:
    """Create the handlers that write records and transaction markers."""
    produce_ = produce.ProduceHandler(
        world.partitions,
        world.flushing,
        world.clock,
        leaders,
        old_formats,
        BatchValidation(threads),
        meters,
        world.notifier,
        world.has_valid_lease,
        verification,
    )
    markers = write_txn_markers.WriteTxnMarkersHandler(
        transactions.writing, world.flushing, world.notifier, slices, world.has_valid_lease
    )
    return {
        ApiKey.PRODUCE: Route(produce.VERSIONS, produce_.handle),
        ApiKey.WRITE_TXN_MARKERS: Route(write_txn_markers.VERSIONS, markers.handle),
    }


def fetch_routes(
    world: CoordinatorWorld,
    view: MetadataView,
    config: BrokerConfig,
    old_formats: MessageFormatConversion,
    meters: Meters,
    throttle: LeaderThrottle,
    slices: TimeSlices,
    metadata_fetch: MetadataFetch | None,
) -> dict[int, Route]:
    """Create the handler that reads records."""
    sessions_max = config.max_incremental_fetch_session_cache_slots
    handler = fetch.FetchHandler(
        world.partitions,
        world.notifier,
        FetchSessions(world.creation.randomness, sessions_max),
        CurrentLeaders(lambda: view.image),
        old_formats,
        config.fetch_max_bytes,
        meters,
        PreferredReplicas(view.published, config.replica_selector_class == RACK_AWARE),
        throttle,
        slices,
        metadata_fetch,
    )
    return {ApiKey.FETCH: Route(fetch.VERSIONS, handler.handle)}


def offset_routes(
    world: CoordinatorWorld, leaders: CurrentLeaders, slices: TimeSlices
) -> dict[int, Route]:
    """Create the handlers of a log's offsets, epochs and producers."""
    partitions = world.partitions
    offsets = list_offsets.ListOffsetsHandler(partitions, world.clock, slices)
    delete = delete_records.DeleteRecordsHandler(
        partitions, world.notifier, leaders.is_alive, slices
    )
    epochs = offset_for_leader_epoch.OffsetForLeaderEpochHandler(partitions, slices)
    producers = describe_producers.DescribeProducersHandler(partitions, slices)
    return {
        ApiKey.LIST_OFFSETS: Route(list_offsets.VERSIONS, offsets.handle),
        ApiKey.DELETE_RECORDS: Route(delete_records.VERSIONS, delete.handle),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Route(offset_for_leader_epoch.VERSIONS, epochs.handle),
        ApiKey.DESCRIBE_PRODUCERS: Route(describe_producers.VERSIONS, producers.handle),
    }


# -- topics and replicas --------------------------------------------------------------------------


def topic_routes(
    view: MetadataView,
    creation: TopicCreation,
    coordinator: GroupCoordinator,
    slices: TimeSlices,
    *,
    is_deletion_enabled: bool,
) -> dict[int, Route]:
    """Create the handlers that create, grow, delete and describe topics."""
    store, spread = creation.store, creation.spread
    metadata_ = metadata.MetadataHandler(
        view, creation, coordinator.open, DescribedTopics(view), slices
    )
    create = create_topics.CreateTopicsHandler(creation, spread)
    delete = delete_topics.DeleteTopicsHandler(store, is_deletion_enabled, spread)
    partitions = create_partitions.CreatePartitionsHandler(store, creation.randomness, spread)
    describe = describe_topic_partitions.DescribeTopicPartitionsHandler(view, slices)
    return {
        ApiKey.METADATA: Route(metadata.VERSIONS, metadata_.handle),
        ApiKey.CREATE_TOPICS: Route(create_topics.VERSIONS, create.handle, is_for_controller=True),
        ApiKey.DELETE_TOPICS: Route(delete_topics.VERSIONS, delete.handle, is_for_controller=True),
        ApiKey.CREATE_PARTITIONS: Route(
            create_partitions.VERSIONS, partitions.handle, is_for_controller=True
        ),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Route(
            describe_topic_partitions.VERSIONS, describe.handle
        ),
    }


def replica_routes(store: MetadataStore) -> dict[int, Route]:
    """Create the handlers of elections and moves."""
    elect = elect_leaders.ElectLeadersHandler(store)
    alter = alter_partition_reassignments.AlterPartitionReassignmentsHandler(store)
    listing = list_partition_reassignments.ListPartitionReassignmentsHandler(lambda: store.image)
    return {
        ApiKey.ELECT_LEADERS: Route(elect_leaders.VERSIONS, elect.handle, is_for_controller=True),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Route(
            alter_partition_reassignments.VERSIONS, alter.handle, is_for_controller=True
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Route(
            list_partition_reassignments.VERSIONS, listing.handle, is_for_controller=True
        ),
    }


def log_dir_routes(
    folders: PartitionLogDirs,
    moves: LogDirMoves,
    disk: Disk,
    threads: Executor,
    slices: TimeSlices,
) -> dict[int, Route]:
    """Create the handlers of log dirs."""
    describe = describe_log_dirs.DescribeLogDirsHandler(folders, disk, threads, slices)
    alter = alter_replica_log_dirs.AlterReplicaLogDirsHandler(moves)
    return {
        ApiKey.DESCRIBE_LOG_DIRS: Route(describe_log_dirs.VERSIONS, describe.handle),
        ApiKey.ALTER_REPLICA_LOG_DIRS: Route(alter_replica_log_dirs.VERSIONS, alter.handle),
    }


# -- the cluster ----------------------------------------------------------------------------------


def cluster_routes(
    view: MetadataView, controller: ActiveController, store: MetadataStore
) -> dict[int, Route]:
    """Create the handlers of brokers and features."""
    describe = describe_cluster.DescribeClusterHandler(view, controller)
    features = update_features.UpdateFeaturesHandler(store)
    return {
        ApiKey.DESCRIBE_CLUSTER: Route(describe_cluster.VERSIONS, describe.handle),
        ApiKey.UPDATE_FEATURES: Route(
            update_features.VERSIONS, features.handle, is_for_controller=True
        ),
    }


def config_routes(
    store: MetadataStore,
    live_config: LiveConfig,
    clock: Clock,
    randomness: Randomness,
    slices: TimeSlices,
) -> dict[int, Route]:
    """Create the handlers of settings, and of the metrics that clients push because of some."""
    static = live_config.static
    describe = describe_configs.DescribeConfigsHandler(store, live_config, slices)
    alter = alter_configs.AlterConfigsHandler(store)
    change = incremental_alter_configs.IncrementalAlterConfigsHandler(store, static.node_id)
    listing = list_config_resources.ListConfigResourcesHandler(store)
    telemetry = ClientTelemetry(clock, randomness, static.telemetry_max_bytes, LoggingSink())
    telemetry.take(store.image)
    store.subscribe(telemetry.on_change)
    asked = get_telemetry_subscriptions.GetTelemetrySubscriptionsHandler(telemetry)
    pushed = push_telemetry.PushTelemetryHandler(telemetry)
    return {
        ApiKey.DESCRIBE_CONFIGS: Route(describe_configs.VERSIONS, describe.handle),
        ApiKey.ALTER_CONFIGS: Route(alter_configs.VERSIONS, alter.handle, is_for_controller=True),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Route(
            incremental_alter_configs.VERSIONS, change.handle, is_for_controller=True
        ),
        ApiKey.LIST_CONFIG_RESOURCES: Route(list_config_resources.VERSIONS, listing.handle),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Route(
            get_telemetry_subscriptions.VERSIONS, asked.handle, telemetry.is_wanted
        ),
        ApiKey.PUSH_TELEMETRY: Route(push_telemetry.VERSIONS, pushed.handle, telemetry.is_wanted),
    }


def controller_routes(store: MetadataStore) -> dict[int, Route]:
    """Create the handlers of requests about brokers that only the controller can answer."""
    gone = unregister_broker.UnregisterBrokerHandler(store)
    return {
        ApiKey.UNREGISTER_BROKER: Route(
            unregister_broker.VERSIONS, gone.handle, is_for_controller=True
        )
    }


# -- groups and transactions ----------------------------------------------------------------------


def group_routes(
    world: CoordinatorWorld,
    view: MetadataView,
    coordinator: GroupCoordinator,
    transactions: TransactionServices,
    verification: TransactionVerification,
    slices: TimeSlices,
) -> dict[int, Route]:
    """Create the handlers of groups and their offsets."""
    store = world.creation.store
    leaders = CurrentLeaders(lambda: view.image)
    find = find_coordinator.FindCoordinatorHandler(
        leaders,
        {
            find_coordinator.GROUP: coordinator,
            find_coordinator.TRANSACTION: transactions.coordinator,
        },
    )
    join = join_group.JoinGroupHandler(coordinator, world.creation.randomness)
    sync = sync_group.SyncGroupHandler(coordinator)
    beat = heartbeat.HeartbeatHandler(coordinator)
    leave = leave_group.LeaveGroupHandler(coordinator)
    commit = offset_commit.OffsetCommitHandler(coordinator, store, slices)
    pending = txn_offset_commit.TxnOffsetCommitHandler(coordinator, store, verification)
    offsets = offset_fetch.OffsetFetchHandler(coordinator, store, slices)
    forget = offset_delete.OffsetDeleteHandler(coordinator, store)
    list_ = list_groups.ListGroupsHandler(coordinator)
    describe = describe_groups.DescribeGroupsHandler(coordinator)
    delete = delete_groups.DeleteGroupsHandler(coordinator)
    return {
        ApiKey.OFFSET_COMMIT: Route(offset_commit.VERSIONS, commit.handle),
        ApiKey.TXN_OFFSET_COMMIT: Route(txn_offset_commit.VERSIONS, pending.handle),
        ApiKey.OFFSET_FETCH: Route(offset_fetch.VERSIONS, offsets.handle),
        ApiKey.FIND_COORDINATOR: Route(find_coordinator.VERSIONS, find.handle),
        ApiKey.JOIN_GROUP: Route(join_group.VERSIONS, join.handle),
        ApiKey.HEARTBEAT: Route(heartbeat.VERSIONS, beat.handle),
        ApiKey.LEAVE_GROUP: Route(leave_group.VERSIONS, leave.handle),
        ApiKey.SYNC_GROUP: Route(sync_group.VERSIONS, sync.handle),
        ApiKey.DESCRIBE_GROUPS: Route(describe_groups.VERSIONS, describe.handle),
        ApiKey.LIST_GROUPS: Route(list_groups.VERSIONS, list_.handle),
        ApiKey.OFFSET_DELETE: Route(offset_delete.VERSIONS, forget.handle),
        ApiKey.DELETE_GROUPS: Route(delete_groups.VERSIONS, delete.handle),
    }


def transaction_routes(
    groups: GroupCoordinator, transactions: TransactionServices, store: MetadataStore
) -> dict[int, Route]:
    """Create the handlers of transactions and their producers."""
    coordinator = transactions.coordinator
    init = init_producer_id.InitProducerIdHandler(transactions.producer_ids, coordinator)
    add = add_partitions_to_txn.AddPartitionsToTxnHandler(coordinator, store)
    offsets = add_offsets_to_txn.AddOffsetsToTxnHandler(coordinator, groups)
    end = end_txn.EndTxnHandler(coordinator)
    describe = describe_transactions.DescribeTransactionsHandler(coordinator)
    list_ = list_transactions.ListTransactionsHandler(coordinator)
    return {
        ApiKey.INIT_PRODUCER_ID: Route(init_producer_id.VERSIONS, init.handle),
        ApiKey.ADD_PARTITIONS_TO_TXN: Route(add_partitions_to_txn.VERSIONS, add.handle),
        ApiKey.ADD_OFFSETS_TO_TXN: Route(add_offsets_to_txn.VERSIONS, offsets.handle),
        ApiKey.END_TXN: Route(end_txn.VERSIONS, end.handle),
        ApiKey.DESCRIBE_TRANSACTIONS: Route(describe_transactions.VERSIONS, describe.handle),
        ApiKey.LIST_TRANSACTIONS: Route(list_transactions.VERSIONS, list_.handle),
    }


# -- unsupported requests -------------------------------------------------------------------------


def security_routes() -> dict[int, Route]:
    """Create the handlers that refuse security requests, or return that nothing is set.

    Every broker handles them itself: the controller has no other data.
    """
    return {
        ApiKey.ALTER_CLIENT_QUOTAS: Route(
            alter_client_quotas.VERSIONS, alter_client_quotas.AlterClientQuotasHandler().handle
        ),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Route(
            alter_user_scram_credentials.VERSIONS,
            alter_user_scram_credentials.AlterUserScramCredentialsHandler().handle,
        ),
        ApiKey.CREATE_ACLS: Route(create_acls.VERSIONS, create_acls.CreateAclsHandler().handle),
        ApiKey.CREATE_DELEGATION_TOKEN: Route(
            create_delegation_token.VERSIONS,
            create_delegation_token.CreateDelegationTokenHandler().handle,
        ),
        ApiKey.DELETE_ACLS: Route(delete_acls.VERSIONS, delete_acls.DeleteAclsHandler().handle),
        ApiKey.DESCRIBE_ACLS: Route(
            describe_acls.VERSIONS, describe_acls.DescribeAclsHandler().handle
        ),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Route(
            describe_client_quotas.VERSIONS,
            describe_client_quotas.DescribeClientQuotasHandler().handle,
        ),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: Route(
            describe_delegation_token.VERSIONS,
            describe_delegation_token.DescribeDelegationTokenHandler().handle,
        ),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Route(
            describe_user_scram_credentials.VERSIONS,
            describe_user_scram_credentials.DescribeUserScramCredentialsHandler().handle,
        ),
        ApiKey.EXPIRE_DELEGATION_TOKEN: Route(
            expire_delegation_token.VERSIONS,
            expire_delegation_token.ExpireDelegationTokenHandler().handle,
        ),
        ApiKey.RENEW_DELEGATION_TOKEN: Route(
            renew_delegation_token.VERSIONS,
            renew_delegation_token.RenewDelegationTokenHandler().handle,
        ),
    }


def unsupported_routes() -> dict[int, Route]:
    """Create the handlers, and advertise the APIs for which clients need a clear error."""
    return {
        key: Route(
            versions, UnsupportedHandler(key).handle, is_offered=partial(_OFFERED.__contains__, key)
        )
        for key, (versions, _) in VERSIONS_AND_REFUSALS.items()
    }
