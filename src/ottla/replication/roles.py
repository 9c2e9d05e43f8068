"""The replicas of a partition, and the role of this broker."""

from typing import Final, NamedTuple

NO_LEADER: Final = -1


class Follower(NamedTuple):
    """A fetching replica: broker id and broker epoch."""

    broker_id: int
    broker_epoch: int


class Assignment(NamedTuple):
    """The replicas in the metadata, and this broker's id."""

    broker_id: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int
