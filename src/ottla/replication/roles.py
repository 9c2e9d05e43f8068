"""Who a partition's replicas are."""

from typing import Final, NamedTuple

NO_LEADER: Final = -1


class Follower(NamedTuple):
    """Who fetches as a replica, and in which of its lives."""

    broker_id: int
    broker_epoch: int


class Assignment(NamedTuple):
    """Who keeps a partition, as the metadata says, and which of them this broker is."""

    broker_id: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int
