"""Registrations of brokers and controllers, and broker epochs, which fence earlier incarnations."""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.machines.controller.broker_sessions import BrokerSessions
from ottla.machines.controller.leadership import Leadership
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.difference import controller_record, registration_record
from ottla.metadata.image import (
    BrokerImage,
    ClusterImage,
    ControllerImage,
    Endpoint,
    ZkMigrationState,
)
from ottla.metadata.metadata_version import (
    CONTROLLER_REGISTRATIONS_SINCE,
    KRAFT_VERSION_FEATURE,
    LOG_DIRS_SINCE,
    METADATA_VERSION_FEATURE,
)
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, Offset, uuid_to_text
from ottla.wire.messages import broker_registration, controller_registration
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest
from ottla.wire.messages.controller_registration import ControllerRegistrationRequest

EPOCH_TO_BE_GIVEN: Final = -1
_RESERVED_DIRECTORIES: Final = 100
"""Directory ids below this stand for states of replicas (KIP-858)."""


def register_broker(image: ClusterImage, broker: BrokerImage) -> Decision[MetadataRecord, int]:
    """Register a broker, and return its epoch.

    A broker without an epoch gets the offset of the record, as in Kafka: it is unique among all
    registrations.
    """
    record = registration_record(broker)
    if record.broker_epoch == EPOCH_TO_BE_GIVEN:
        record.broker_epoch = image.end_offset
    return Decision((record,), record.broker_epoch)


def check_broker_epoch(image: ClusterImage, broker_id: BrokerId, broker_epoch: int) -> None:
    """Raise ApiError STALE_BROKER_EPOCH unless this is the broker that registered last."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.broker_epoch != broker_epoch:
        registered = "not registered" if broker is None else f"at epoch {broker.broker_epoch}"
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is {registered}, and speaks with epoch {broker_epoch}",
        )


# -- registration with a quorum -------------------------------------------------------------------


def register(
    image: ClusterImage,
    settings: ControllerSettings,
    sessions: BrokerSessions,
    request: BrokerRegistrationRequest,
    kraft_version: int,
    now_ms: int,
) -> Decision[MetadataRecord, int]:
    """Register a broker of a quorum's cluster, and return its epoch.

    A new incarnation is fenced, and gets the end offset of the log as its epoch. It leaves every
    ISR before its registration; unless it names the epoch at which it stopped cleanly, it also
    loses its eligibility to lead. The same incarnation keeps its epoch and its state.

    ApiError INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION while another incarnation may
    run, BROKER_ID_NOT_REGISTERED for a broker of ZooKeeper, INVALID_REGISTRATION for its
    log dirs, UNSUPPORTED_VERSION if it cannot do a finalized level.
    """
    broker = _broker(image, request)
    known = image.brokers.get(broker.broker_id)
    is_same = known is not None and known.incarnation_id == broker.incarnation_id
    _check_cluster(image, request)
    if known is not None and not is_same and may_run(known, broker, sessions, now_ms):
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another incarnation of broker {broker.broker_id} is in service; if that has just"
            " been stopped, its session expires soon",
        )
    if image.metadata_version >= LOG_DIRS_SINCE:
        _check_log_dirs(image, broker)
    _check_levels(image, broker, kraft_version)
    records: list[MetadataRecord] = []
    if known is None or not is_same:
        has_lost_tail = known is None or request.previous_broker_epoch != known.broker_epoch
        leadership = Leadership(image, settings, leaving=frozenset([broker.broker_id]))
        records += leadership.leave(broker.broker_id, has_lost_tail=has_lost_tail)
    records.append(registration_record(broker))
    registered_offset = Offset(image.end_offset + len(records) - 1)
    sessions.register(broker.broker_id, broker.broker_epoch, registered_offset, now_ms)
    return Decision(tuple(records), broker.broker_epoch)


def may_run(
    known: BrokerImage, successor: BrokerImage, sessions: BrokerSessions, now_ms: int
) -> bool:
    """Return whether a registered incarnation may still run beside its successor.

    A broker locks its log dirs as long as it runs. If the successor has all of them, the registered
    incarnation is dead, and a broker that was killed is back at once. Kafka waits for the session.
    A session in ZooKeeper is waited for, too: it would bring the former incarnation back.
    """
    if successor.broker_id in sessions.in_zookeeper and not successor.is_in_zookeeper:
        return True
    has_its_log_dirs = bool(known.log_dirs) and set(known.log_dirs) <= set(successor.log_dirs)
    return not has_its_log_dirs and sessions.is_valid(known, now_ms)


def _broker(image: ClusterImage, request: BrokerRegistrationRequest) -> BrokerImage:
    """Return a broker as it will be registered."""
    known = image.brokers.get(BrokerId(request.broker_id))
    epoch = _next_epoch(image, known)
    if known is not None and known.incarnation_id != request.incarnation_id:
        known = None
    return BrokerImage(
        broker_id=BrokerId(request.broker_id),
        broker_epoch=epoch if known is None else known.broker_epoch,
        incarnation_id=request.incarnation_id,
        endpoints=_endpoints(request.listeners),
        rack=request.rack,
        is_fenced=known is None or known.is_fenced,
        is_shutting_down=known is not None and known.is_shutting_down,
        log_dirs=tuple(request.log_dirs),
        levels_by_feature=_levels(request.features),
        cordoned_log_dirs=() if known is None else known.cordoned_log_dirs,
    )


def _next_epoch(image: ClusterImage, known: BrokerImage | None) -> int:
    """Return the epoch of the next incarnation of a broker: leaders count on rising epochs.

    It is the offset of the record, as in Kafka. During a migration it is the next number: the
    incarnation after that may register in ZooKeeper, and get the number of a transaction there. As
    each registration is written to ZooKeeper, these numbers are ahead. After the migration the
    former epoch may be above the offsets of the log.
    """
    former = -1 if known is None else known.broker_epoch
    if image.zk_migration_state == ZkMigrationState.MIGRATION:
        return former + 1
    return max(image.end_offset, former + 1)


def _check_cluster(image: ClusterImage, request: BrokerRegistrationRequest) -> None:
    if request.cluster_id != image.cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {request.broker_id} belongs to cluster {request.cluster_id[:100]}, this is"
            f" {image.cluster_id}",
        )
    if request.is_migrating_zk_broker:
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, "brokers with metadata in ZooKeeper cannot register"
        )


def _check_log_dirs(image: ClusterImage, broker: BrokerImage) -> None:
    """Raise ApiError INVALID_REGISTRATION unless these log dirs belong to one broker alone."""
    if not broker.log_dirs:
        raise _invalid(f"broker {broker.broker_id} has no log dirs")
    if any(int.from_bytes(one) < _RESERVED_DIRECTORIES for one in broker.log_dirs):
        raise _invalid(f"broker {broker.broker_id} has a log dir with a reserved id")
    if len(set(broker.log_dirs)) != len(broker.log_dirs):
        raise _invalid(f"broker {broker.broker_id} has two log dirs with the same id")
    for other in image.brokers.values():
        shared = set(other.log_dirs) & set(broker.log_dirs)
        if shared and other.broker_id != broker.broker_id:
            raise _invalid(
                f"log dir {uuid_to_text(min(shared))} belongs to broker {other.broker_id}"
            )


def _check_levels(image: ClusterImage, broker: BrokerImage, kraft_version: int) -> None:
    """Raise ApiError unless the broker can do every finalized level."""
    if METADATA_VERSION_FEATURE not in broker.levels_by_feature:
        raise _invalid(f"broker {broker.broker_id} does not name {METADATA_VERSION_FEATURE}")
    finalized = {**image.level_by_feature, KRAFT_VERSION_FEATURE: kraft_version}
    for name, level in finalized.items():
        first, last = broker.levels_by_feature.get(name, (0, 0))
        if level and not first <= level <= last:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{name} is finalized at level {level}, and broker {broker.broker_id} has levels"
                f" {first} to {last}",
            )


def register_controller(
    image: ClusterImage, request: ControllerRegistrationRequest
) -> Decision[MetadataRecord, None]:
    """Take note of a controller's addresses and features; ApiError UNSUPPORTED_VERSION."""
    if image.metadata_version < CONTROLLER_REGISTRATIONS_SINCE:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version {image.metadata_version} has no registrations of controllers",
        )
    controller = ControllerImage(
        controller_id=BrokerId(request.controller_id),
        incarnation_id=request.incarnation_id,
        endpoints=_endpoints(request.listeners),
        levels_by_feature=_levels(request.features),
        is_zk_migration_ready=request.zk_migration_ready,
    )
    if image.controllers.get(controller.controller_id) == controller:
        return Decision((), None)
    return Decision((controller_record(controller),), None)


def _endpoints(
    listeners: Iterable[broker_registration.Listener | controller_registration.Listener],
) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(one.name, one.host, one.port, one.security_protocol) for one in listeners)


def _levels(
    features: Iterable[broker_registration.Feature | controller_registration.Feature],
) -> Mapping[str, tuple[int, int]]:
    return {one.name: (one.min_supported_version, one.max_supported_version) for one in features}


def _invalid(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REGISTRATION, detail)
