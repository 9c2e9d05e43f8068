"""Broker registrations, and the broker epochs that fence earlier incarnations."""

from typing import Final

from ottla.machines.decision import Decision
from ottla.metadata.difference import registration_record
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId

EPOCH_TO_BE_GIVEN: Final = -1


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
