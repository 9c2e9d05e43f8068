"""The levels of metadata.version, and the record versions that belong to them.

A cluster writes records as the level that it has finalized says, not in the newest known version:
a broker of an older release must be able to read them.
"""

from typing import Final

from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

METADATA_VERSION_FEATURE: Final = "metadata.version"
KRAFT_VERSION_FEATURE: Final = "kraft.version"
"""The feature of the quorum itself: its level is in control records, not in the image."""
OLDEST_METADATA_VERSION: Final = 7
"""3.3-IV3: the oldest level of Kafka 4."""
NEWEST_METADATA_VERSION: Final = 30
"""4.3-IV0. From here on, every record is written in its newest version."""
MIGRATION_SINCE: Final = 8
SCRAM_SINCE: Final = 11
TRANSACTIONS_SINCE: Final = 13
DELEGATION_TOKENS_SINCE: Final = 14
CONTROLLER_REGISTRATIONS_SINCE: Final = 15
LOG_DIRS_SINCE: Final = 17
ELR_SINCE: Final = 23
CORDONED_LOG_DIRS_SINCE: Final = 30
LEVELS_WITH_NEW_METADATA: Final = frozenset(
    {
        OLDEST_METADATA_VERSION,
        MIGRATION_SINCE,
        SCRAM_SINCE,
        TRANSACTIONS_SINCE,
        DELEGATION_TOKENS_SINCE,
        CONTROLLER_REGISTRATIONS_SINCE,
        LOG_DIRS_SINCE,
        ELR_SINCE,
        CORDONED_LOG_DIRS_SINCE,
    }
)
"""The levels that brought new records or fields; a downgrade below such a level loses metadata."""
_LEVEL_BY_VERSION: Final[dict[type[MetadataRecord], tuple[int, ...]]] = {
    RegisterBrokerRecord: (0, 7, MIGRATION_SINCE, LOG_DIRS_SINCE, CORDONED_LOG_DIRS_SINCE),
    BrokerRegistrationChangeRecord: (0, 7, LOG_DIRS_SINCE, CORDONED_LOG_DIRS_SINCE),
    PartitionRecord: (0, LOG_DIRS_SINCE, ELR_SINCE),
    PartitionChangeRecord: (0, LOG_DIRS_SINCE, ELR_SINCE),
}
"""For each version of a kind, the level that allows it; the other kinds have one version."""
_RELEASES: Final = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}


def record_version(kind: type[MetadataRecord], metadata_version: int) -> int:
    """Return the version in which a kind of record is written at this level."""
    levels = _LEVEL_BY_VERSION.get(kind)
    if levels is None:
        return 0
    return sum(level <= metadata_version for level in levels) - 1


def release_of(metadata_version: int) -> str:
    """Return Kafka's name of a level, such as 4.3-IV0."""
    return _RELEASES.get(metadata_version, str(metadata_version))


def level_of(release: str) -> int | None:
    """Return the level of a release, such as 4.3-IV0, or the newest level of 4.3."""
    exact = [level for level, name in _RELEASES.items() if name == release]
    of_release = [level for level, name in _RELEASES.items() if name.startswith(f"{release}-IV")]
    return max(exact or of_release, default=None)
