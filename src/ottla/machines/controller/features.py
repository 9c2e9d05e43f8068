"""The known features, and changes of their levels (KIP-584).

Clients choose their behaviour by these levels: transactions version 2, the groups of Kafka 4, share
groups. A feature that is not listed here is unsupported, and never reported.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla.machines.controller.machine import (
    METADATA_VERSION,
    METADATA_VERSION_FEATURE,
    TRANSACTION_VERSION,
    TRANSACTION_VERSION_FEATURE,
)
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import FeatureLevelRecord, MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

SUPPORTED_LEVELS: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION_FEATURE: (METADATA_VERSION, METADATA_VERSION),
    TRANSACTION_VERSION_FEATURE: (0, TRANSACTION_VERSION),
}
"""The first and the last level of each feature that this broker can do."""
UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


class FeatureUpdate(NamedTuple):
    """A requested level of a feature."""

    name: str
    level: int
    upgrade_type: int


def update_features(
    image: ClusterImage,
    updates: Sequence[FeatureUpdate],
    supported: Mapping[str, tuple[int, int]] = SUPPORTED_LEVELS,
) -> Decision[MetadataRecord, None]:
    """Change all of these levels; ApiError INVALID_UPDATE_VERSION if any of them is invalid."""
    records: list[MetadataRecord] = []
    for update in updates:
        level = image.level_by_feature.get(update.name, 0)
        complaint = _complaint(update, level, supported.get(update.name))
        if complaint is not None:
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{update.name[:100]} cannot be at level {update.level}: {complaint}",
            )
        if update.level != level:
            records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
    return Decision(tuple(records), None)


def _complaint(update: FeatureUpdate, level: int, supported: tuple[int, int] | None) -> str | None:
    if update.upgrade_type not in {UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE}:
        return f"there is no upgrade type {update.upgrade_type}"
    if supported is None:
        return None if update.level == level == 0 else "this broker does not have that feature"
    first, last = supported
    if not first <= update.level <= last:
        return f"this broker has levels {first} to {last} of it"
    if update.level < level and update.upgrade_type == UPGRADE:
        return f"it is at level {level}, and an upgrade was asked for"
    if update.level > level and update.upgrade_type != UPGRADE:
        return f"it is at level {level}, and a downgrade was asked for"
    return None
