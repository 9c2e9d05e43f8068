"""The effects of a broker's arrival and departure on its partitions."""

from ottla.machines.controller.leadership import Leadership
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    UnregisterBrokerRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId

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


def _registered(image: ClusterImage, broker_id: BrokerId) -> BrokerImage:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker {broker_id} is registered")
    return broker
