"""AllocateProducerIds (API 67): reserve a block of producer ids.

Sent by brokers to the controller, so that InitProducerId can be served locally (KIP-730).
"""

from ottla.wire.schema import Message, int16, int32, int64


class AllocateProducerIdsRequest(Message, versions=(0, 0), flexible_since=0):
    """Reserve producer ids for this broker."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AllocateProducerIdsResponse(Message, versions=(0, 0), flexible_since=0):
    """The block of ids that was reserved."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
