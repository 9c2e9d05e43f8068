"""Blocks of producer ids."""

import pytest

from ottla.machines.controller.producer_ids import ProducerIdBlock
from ottla.metadata.records import ProducerIdsRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from tests.metadata_building import broker_record, controller_of, image_of, run


def test_each_block_begins_where_the_one_before_ends() -> None:
    controller = controller_of(image_of(broker_record(3), broker_record(5)))
    decision = controller.allocate_producer_ids(3, broker_epoch=3)
    assert decision.records == (
        ProducerIdsRecord(broker_id=3, broker_epoch=3, next_producer_id=1000),
    )
    assert run(controller, decision) == ProducerIdBlock(0, 1000)
    assert run(controller, controller.allocate_producer_ids(5, 5)) == ProducerIdBlock(1000, 2000)


@pytest.mark.parametrize(("broker_id", "broker_epoch"), [(3, 2), (3, 4), (4, 3)])
def test_an_earlier_life_of_a_broker_gets_none(broker_id: int, broker_epoch: int) -> None:
    controller = controller_of(image_of(broker_record(3)))
    with pytest.raises(ApiError) as refused:
        controller.allocate_producer_ids(broker_id, broker_epoch)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_no_id_is_given_twice_when_there_are_no_more() -> None:
    last = ProducerIdsRecord(next_producer_id=2**63 - 1000)
    controller = controller_of(image_of(broker_record(3), last))
    with pytest.raises(ApiError) as refused:
        controller.allocate_producer_ids(3, 3)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
