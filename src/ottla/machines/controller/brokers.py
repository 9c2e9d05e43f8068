"""Brokers that come, and how the one that speaks is told from an earlier life of it."""

from collections.abc import Mapping, Sequence

from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage, Endpoint
from ottla.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    MetadataRecord,
    RegisterBrokerRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode


def register_broker(
    image: ClusterImage,
    broker_id: int,
    incarnation_id: bytes,
    endpoints: Sequence[Endpoint],
    *,
    rack: str | None = None,
    log_dirs: Sequence[bytes] = (),
    levels_by_feature: Mapping[str, tuple[int, int]] | None = None,
) -> Decision[MetadataRecord, int]:
    """Admit a broker that is active at once, and answer with its epoch.

    The epoch is the offset of the record, as in Kafka: no other registration ever has the same.
    """
    record = RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=incarnation_id,
        broker_epoch=image.end_offset,
        end_points=[
            BrokerEndpoint(
                name=one.name,
                host=one.host,
                port=one.port,
                security_protocol=one.security_protocol,
            )
            for one in endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=first, max_supported_version=last)
            for name, (first, last) in (levels_by_feature or {}).items()
        ],
        rack=rack,
        fenced=False,
        log_dirs=list(log_dirs),
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
