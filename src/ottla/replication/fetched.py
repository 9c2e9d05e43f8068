"""The result of fetching one partition."""

from typing import Final, NamedTuple

from ottla.replication.traffic import Traffic
from ottla.storage.files.log_slice import LogSlice
from ottla.storage.log.leader_epochs import EpochEnd

NO_REPLICA: Final = -1


class Fetched(NamedTuple):
    """The records that a fetch gets of one partition, and the partition's offsets."""

    records: LogSlice
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    traffic: Traffic
    """Where it is to be counted that this was sent."""
    aborted: list[tuple[int, int]] | None = None
    """For read_committed: producer and first offset of each aborted transaction in the records."""
    diverging: EpochEnd | None = None
    """If the reader has something else than this log: up to where the two may agree."""
    preferred_replica: int = NO_REPLICA
    """A replica closer to the consumer, which should fetch from it instead."""
