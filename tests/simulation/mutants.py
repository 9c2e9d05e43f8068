"""Replication as it was once wrong, in Kafka or in thought: each must be found out."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from ottla.replication.in_sync import InSync
from ottla.replication.partition import Partition


@contextmanager
def truncating_to_the_high_watermark() -> Iterator[None]:
    """A new follower cuts off what it does not know to be committed, as before KIP-101."""
    follow = Partition.follow

    def cutting(self: Partition, leader_id: int, leader_epoch: int) -> None:
        follow(self, leader_id, leader_epoch)
        self.log.truncate_to(self.high_watermark)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Partition, "follow", cutting)
        yield


@contextmanager
def committing_on_what_is_only_proposed() -> Iterator[None]:
    """A leader counts only those that it wants to be in sync, before the controller has agreed."""

    def committed_to(self: InSync, leader_end_offset: int, min_isr: int) -> int | None:
        wanted = self.proposed or self.isr
        if len(wanted) < min_isr:
            return None
        ends = [self.followers[one].end_offset for one in wanted if one != self.leader]
        return min([leader_end_offset, *ends])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InSync, "committed_to", committed_to)
        yield


@contextmanager
def forgetting_who_was_proposed() -> Iterator[None]:
    """A leader counts only those that it knows to be in sync, not those it has asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InSync, "maximal", property(lambda self: self.isr))
        yield


@contextmanager
def joining_at_the_high_watermark() -> Iterator[None]:
    """A follower may join with less than what was there before the leader: KAFKA-7128."""

    def may_join(self: InSync, broker_id: int, high_watermark: int) -> bool:
        if self.proposed is not None or broker_id in self.isr:
            return False
        return self.followers[broker_id].end_offset >= high_watermark

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InSync, "may_join", may_join)
        yield


@contextmanager
def committing_with_too_few() -> Iterator[None]:
    """The high watermark moves however few are in sync, as before KIP-966."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Partition, "min_isr", property(lambda self: 1))
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    one.__name__: one
    for one in (
        truncating_to_the_high_watermark,
        committing_on_what_is_only_proposed,
        forgetting_who_was_proposed,
        joining_at_the_high_watermark,
        committing_with_too_few,
    )
}
