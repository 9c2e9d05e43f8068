"""The APIs that move records."""

from ottla.broker.data.batch_validation import BatchValidation
from ottla.broker.data.fetch_sessions import FetchSessions
from ottla.broker.data.message_format_conversion import OldFormats
from ottla.broker.data.preferred_replicas import RACK_AWARE, PreferredReplicas
from ottla.broker.describing.leader_hints import CurrentLeaders
from ottla.broker.handlers import (
    delete_records,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
    write_txn_markers,
)
from ottla.broker.requests.routes import Route
from ottla.broker.wiring.services import Services
from ottla.wire.api_key import ApiKey


def data_routes(services: Services) -> dict[int, Route]:
    """Create the handlers of records and their offsets."""
    partitions = services.partitions
    leaders = CurrentLeaders(lambda: services.view.image)
    old_formats = OldFormats(services.threads)
    has_valid_lease = _always if services.cluster is None else services.cluster.has_valid_lease
    produce_ = produce.ProduceHandler(
        partitions,
        services.flushing,
        services.clock,
        leaders,
        old_formats,
        BatchValidation(services.threads),
        services.meters,
        services.notifier,
        has_valid_lease,
        services.verification,
    )
    markers = write_txn_markers.WriteTxnMarkersHandler(
        services.transactions.writing,
        services.flushing,
        services.notifier,
        services.slices,
        has_valid_lease,
    )
    fetch_ = _fetch_handler(services, leaders, old_formats)
    offsets = list_offsets.ListOffsetsHandler(partitions, services.clock, services.slices)
    delete = delete_records.DeleteRecordsHandler(
        partitions, services.notifier, leaders.is_alive, services.slices
    )
    epochs = offset_for_leader_epoch.OffsetForLeaderEpochHandler(partitions, services.slices)
    producers = describe_producers.DescribeProducersHandler(partitions, services.slices)
    return {
        ApiKey.PRODUCE: Route(produce.VERSIONS, produce_.handle),
        ApiKey.FETCH: Route(fetch.VERSIONS, fetch_.handle),
        ApiKey.LIST_OFFSETS: Route(list_offsets.VERSIONS, offsets.handle),
        ApiKey.DELETE_RECORDS: Route(delete_records.VERSIONS, delete.handle),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Route(offset_for_leader_epoch.VERSIONS, epochs.handle),
        ApiKey.WRITE_TXN_MARKERS: Route(write_txn_markers.VERSIONS, markers.handle),
        ApiKey.DESCRIBE_PRODUCERS: Route(describe_producers.VERSIONS, producers.handle),
    }


def _fetch_handler(
    services: Services, leaders: CurrentLeaders, old_formats: OldFormats
) -> fetch.FetchHandler:
    config = services.config
    return fetch.FetchHandler(
        services.partitions,
        services.notifier,
        FetchSessions(services.randomness, config.max_incremental_fetch_session_cache_slots),
        leaders,
        old_formats,
        config.fetch_max_bytes,
        services.meters,
        PreferredReplicas(
            lambda: services.store.image, config.replica_selector_class == RACK_AWARE
        ),
        services.throttles.leader,
        services.slices,
        None if services.cluster is None else services.cluster.metadata_fetch,
    )


def _always() -> bool:
    return True
