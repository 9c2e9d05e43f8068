"""The effects of a broker's arrival and departure on its partitions, and its heartbeats.

In a cluster with a quorum, heartbeats steer the state of a broker (KIP-631):

    register --> FENCED <--> UNFENCED --> CONTROLLED_SHUTDOWN --> SHUTDOWN_NOW
                 until it knows           its leaderships         every active broker
                 its registration         move                    knows the new leaders

A broker also becomes FENCED when its session expires, and may stop from any state in which it leads
nothing. With ZooKeeper, sessions there decide instead.
"""

from enum import Enum
from functools import partial

from ottla.machines.controller.broker_sessions import BrokerSessions
from ottla.machines.controller.brokers import check_broker_epoch
from ottla.machines.controller.leadership import Leadership
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import BrokerImage, ClusterImage, PartitionImage
from ottla.metadata.metadata_version import CORDONED_LOG_DIRS_SINCE, LOG_DIRS_SINCE
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    UnregisterBrokerRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, Offset
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

FENCED = 1
UNFENCED = -1


def forget_tail(
    image: ClusterImage, settings: ControllerSettings, broker_id: BrokerId
) -> Decision[MetadataRecord, None]:
    """Revoke the eligibility of a broker that has lost its unsynced tail."""
    leadership = Leadership(image, settings, leaving=frozenset([broker_id]))
    return Decision(tuple(leadership.leave(broker_id, has_lost_tail=True)), None)


def fence_broker(
    image: ClusterImage,
    settings: ControllerSettings,
    broker_id: BrokerId,
    gone: frozenset[int] = frozenset(),
) -> Decision[MetadataRecord, None]:
    """Fence a broker; no records if it is fenced already.

    Brokers in `gone`, which are away as well, are not elected in its place.
    """
    broker = _registered(image, broker_id)
    if broker.is_fenced:
        return Decision((), None)
    record = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.broker_epoch, fenced=FENCED
    )
    leadership = Leadership(image, settings, leaving=gone | {broker_id})
    return Decision((record, *leadership.leave(broker_id)), None)


def unfence_broker(
    image: ClusterImage, settings: ControllerSettings, broker_id: BrokerId
) -> Decision[MetadataRecord, None]:
    """Put a broker into service: it may lead, and come into sync."""
    broker = _registered(image, broker_id)
    if not broker.is_fenced:
        return Decision((), None)
    record = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.broker_epoch, fenced=UNFENCED
    )
    leadership = Leadership(image, settings, coming=frozenset([broker_id]))
    return Decision((record, *leadership.come(broker_id)), None)


def shut_down_broker(
    image: ClusterImage, settings: ControllerSettings, broker_id: BrokerId
) -> Decision[MetadataRecord, int]:
    """Move the leaderships of a broker that is about to stop.

    The response is the number of partitions that it still leads, because no other replica can.
    """
    broker = _registered(image, broker_id)
    records: list[MetadataRecord] = []
    if not broker.is_shutting_down:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=broker.broker_epoch, in_controlled_shutdown=1
            )
        )
    leadership = Leadership(image, settings, leaving=frozenset([broker_id]))
    moved = [
        record
        for place in leadership.places(lambda one: broker_id in one.isr and len(one.isr) > 1)
        if (record := leadership.without(place, broker_id)) is not None
    ]
    stays = sum(1 for _ in leadership.places(lambda one: one.isr == (broker_id,)))
    return Decision((*records, *moved), stays)


def unregister_broker(
    image: ClusterImage, settings: ControllerSettings, broker_id: BrokerId
) -> Decision[MetadataRecord, None]:
    """Remove a broker for good; it has to be out of service, or goes out of it now."""
    broker = _registered(image, broker_id)
    leadership = Leadership(image, settings, leaving=frozenset([broker_id]))
    gone = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch)
    return Decision((*leadership.leave(broker_id), gone), None)


class BrokerState(Enum):
    """The state of a broker of a quorum's cluster; a heartbeat asks for the next."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    """Its leaderships move to other brokers."""
    SHUTDOWN_NOW = "shutdown now"
    """It may stop: it is fenced, and its session is over."""


def heartbeat(
    image: ClusterImage,
    settings: ControllerSettings,
    sessions: BrokerSessions,
    request: BrokerHeartbeatRequest,
    now_ms: int,
) -> Decision[MetadataRecord, BrokerHeartbeatResponse]:
    """Decide on the next state of a broker; ApiError STALE_BROKER_EPOCH.

    Log dirs that have failed, or that are cordoned, wait while the state changes: every heartbeat
    names them.
    """
    broker_id = BrokerId(request.broker_id)
    check_broker_epoch(image, broker_id, request.broker_epoch)
    broker = image.brokers[broker_id]
    sessions.heard(broker, Offset(request.current_metadata_offset), now_ms)
    has_caught_up = sessions.has_seen_registration(broker, Offset(request.current_metadata_offset))
    state = _next_state(image, sessions, broker, request, has_caught_up, now_ms)
    records: tuple[MetadataRecord, ...] = ()
    if state is BrokerState.CONTROLLED_SHUTDOWN:
        records = shut_down_broker(image, settings, broker_id).records
        sessions.begin_shutdown(broker, Offset(image.end_offset + len(records) - 1), now_ms)
    elif state is BrokerState.UNFENCED:
        records = unfence_broker(image, settings, broker_id).records
    else:
        records = fence_broker(image, settings, broker_id).records
    if state is BrokerState.SHUTDOWN_NOW:
        sessions.forget(broker_id)
    response = BrokerHeartbeatResponse(
        is_caught_up=has_caught_up,
        is_fenced=state in {BrokerState.FENCED, BrokerState.SHUTDOWN_NOW},
        should_shut_down=state is BrokerState.SHUTDOWN_NOW,
    )
    return Decision(records or _log_dir_changes(image, settings, broker, request), response)


def _next_state(
    image: ClusterImage,
    sessions: BrokerSessions,
    broker: BrokerImage,
    request: BrokerHeartbeatRequest,
    has_caught_up: bool,
    now_ms: int,
) -> BrokerState:
    if broker.is_fenced:
        if request.want_shut_down:
            return BrokerState.SHUTDOWN_NOW
        wants_service = not request.want_fence
        return BrokerState.UNFENCED if wants_service and has_caught_up else BrokerState.FENCED
    if request.want_fence and not broker.is_shutting_down:
        return BrokerState.SHUTDOWN_NOW if request.want_shut_down else BrokerState.FENCED
    if request.want_shut_down and not broker.is_shutting_down:
        return (
            BrokerState.CONTROLLED_SHUTDOWN
            if _leads_with_others(image, broker.broker_id)
            else BrokerState.SHUTDOWN_NOW
        )
    if broker.is_shutting_down:
        return _end_of_shutdown(image, sessions, broker, now_ms)
    return BrokerState.UNFENCED


def _end_of_shutdown(
    image: ClusterImage, sessions: BrokerSessions, broker: BrokerImage, now_ms: int
) -> BrokerState:
    """Return whether the other brokers know that this broker leads nothing that they could lead."""
    if _leads_with_others(image, broker.broker_id):
        return BrokerState.CONTROLLED_SHUTDOWN
    wanted = sessions.begin_shutdown(broker, Offset(image.end_offset - 1), now_ms)
    reached = sessions.lowest_active_offset(image.brokers.values())
    is_over = reached is None or reached >= wanted
    return BrokerState.SHUTDOWN_NOW if is_over else BrokerState.CONTROLLED_SHUTDOWN


def _leads_with_others(image: ClusterImage, broker_id: BrokerId) -> bool:
    """Return whether a broker leads a partition that another replica could lead."""
    return any(
        partition.leader == broker_id and len(partition.isr) > 1
        for topic in image.topics.values()
        for partition in topic.partitions
    )


def _log_dir_changes(
    image: ClusterImage,
    settings: ControllerSettings,
    broker: BrokerImage,
    request: BrokerHeartbeatRequest,
) -> tuple[MetadataRecord, ...]:
    """Let the replicas in failed log dirs leave their ISRs; take note of cordoned log dirs."""
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.broker_epoch
    )
    moved: list[MetadataRecord] = []
    failed = set(broker.log_dirs) & set(request.offline_log_dirs)
    if failed and image.metadata_version >= LOG_DIRS_SINCE:
        record.log_dirs = [one for one in broker.log_dirs if one not in failed]
        leadership = Leadership(image, settings, leaving=frozenset([broker.broker_id]))
        moved += [
            change
            for place in leadership.places(partial(_is_in, broker.broker_id, failed))
            if (change := leadership.without(place, broker.broker_id)) is not None
        ]
    cordoned = request.cordoned_log_dirs
    if cordoned is not None and image.metadata_version >= CORDONED_LOG_DIRS_SINCE:
        known = [one for one in cordoned if one in broker.log_dirs]
        if set(known) != set(broker.cordoned_log_dirs):
            record.cordoned_log_dirs = known
    # No log dirs mean no change: a broker without any stops by itself.
    is_changed = bool(record.log_dirs) or record.cordoned_log_dirs is not None
    return (*moved, record) if is_changed else tuple(moved)


def _is_in(broker_id: BrokerId, log_dirs: set[bytes], partition: PartitionImage) -> bool:
    """Return whether the replica of a broker is in one of these log dirs."""
    placed = zip(partition.replicas, partition.directories, strict=False)
    return any(replica == broker_id and log_dir in log_dirs for replica, log_dir in placed)


def fence_expired(
    image: ClusterImage, settings: ControllerSettings, sessions: BrokerSessions, now_ms: int
) -> Decision[MetadataRecord, BrokerId | None]:
    """Fence the broker that is silent for the longest time; return it, if its session is over.

    One broker at a time: the next decision goes by the image without it. None of the silent
    brokers is elected in its place.
    """
    expired = sessions.expired(image.brokers.values(), now_ms)
    if not expired:
        return Decision((), None)
    sessions.forget(expired[0])
    return Decision(
        fence_broker(image, settings, expired[0], frozenset(expired)).records, expired[0]
    )


def _registered(image: ClusterImage, broker_id: BrokerId) -> BrokerImage:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker {broker_id} is registered")
    return broker
