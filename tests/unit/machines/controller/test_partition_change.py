"""A change of one partition: its leader is in the ISR, and the ISR is a part of the replicas."""

import pytest

from ottla.machines.controller.partition_change import PartitionChange
from ottla.metadata.image import PartitionImage

LED = PartitionImage(replicas=(1, 2, 3), isr=(1, 2), leader=1)


def change_of(partition: PartitionImage) -> PartitionChange:
    return PartitionChange(bytes(16), 0, partition, can_lead=lambda _: True, min_isr=2)


def test_a_replica_may_join_the_isr() -> None:
    change = change_of(LED)
    change.isr = (1, 2, 3)
    record = change.record()
    assert record is not None
    assert record.isr == [1, 2, 3]


@pytest.mark.parametrize("isr", [(1, 2, 4), (4,)])
def test_no_record_puts_a_broker_without_a_replica_into_the_isr(isr: tuple[int, ...]) -> None:
    change = change_of(LED)
    change.isr = isr
    with pytest.raises(AssertionError):
        change.record()
