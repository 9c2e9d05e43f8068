"""Producer ids, which no two producers may share: brokers get them in blocks."""

from typing import Final, NamedTuple

from ottla.machines.controller.brokers import check_broker_epoch
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord, ProducerIdsRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, ProducerId

PRODUCER_IDS_PER_BLOCK: Final = 1000
PRODUCER_ID_MAX: Final = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    """Producer ids that one broker may assign. Unused ids are lost when it stops."""

    first: int
    end: int
    """The first id after the block."""


def allocate_producer_ids(
    image: ClusterImage, broker_id: BrokerId, broker_epoch: int
) -> Decision[MetadataRecord, ProducerIdBlock]:
    """Decide on the next block for a broker, which names the epoch that it registered with."""
    check_broker_epoch(image, broker_id, broker_epoch)
    block = ProducerIdBlock(image.next_producer_id, image.next_producer_id + PRODUCER_IDS_PER_BLOCK)
    if block.end > PRODUCER_ID_MAX:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given away")
    record = ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=ProducerId(block.end)
    )
    return Decision((record,), block)
