"""What a reader gets of one partition."""

from typing import Final, NamedTuple

from ottla.replication.traffic import Traffic
from ottla.storage.files.log_slice import LogSlice
from ottla.storage.log.leader_epochs import EpochEnd

NO_REPLICA: Final = -1


class Fetched(NamedTuple):
    """What a reader gets of one partition, and where the partition stands."""

    records: LogSlice
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    traffic: Traffic
    """Where it is to be counted that this was sent."""
    aborted: list[tuple[int, int]] | None = None
    """For who sees no open transaction: producer and first offset of the aborted ones in here."""
    diverging: EpochEnd | None = None
    """If the reader has something else than this log: up to where the two may agree."""
    preferred_replica: int = NO_REPLICA
    """Who is nearer to the reader, and should be asked instead."""
