"""Brokers that come, and how the one that speaks is told from an earlier life of it."""

from typing import Final

from ottla.machines.decision import Decision
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    MetadataRecord,
    RegisterBrokerRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

EPOCH_TO_BE_GIVEN: Final = -1


def register_broker(image: ClusterImage, broker: BrokerImage) -> Decision[MetadataRecord, int]:
    """Admit a broker, and answer with its epoch.

    One without an epoch gets the offset of the record, as in Kafka: no other registration may ever
    have the same.
    """
    is_given = broker.broker_epoch != EPOCH_TO_BE_GIVEN
    record = RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch if is_given else image.end_offset,
        end_points=[
            BrokerEndpoint(
                name=one.name,
                host=one.host,
                port=one.port,
                security_protocol=one.security_protocol,
            )
            for one in broker.endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=first, max_supported_version=last)
            for name, (first, last) in broker.levels_by_feature.items()
        ],
        rack=broker.rack,
        fenced=broker.is_fenced,
        log_dirs=list(broker.log_dirs),
    )
    return Decision((record,), record.broker_epoch)


def check_broker_epoch(image: ClusterImage, broker_id: int, broker_epoch: int) -> None:
    """Raise ApiError STALE_BROKER_EPOCH unless this is the broker that registered last."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.broker_epoch != broker_epoch:
        registered = "not registered" if broker is None else f"at epoch {broker.broker_epoch}"
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is {registered}, and speaks with epoch {broker_epoch}",
        )
