"""The features of a cluster: first levels, claims, and changes of levels (KIP-584, KIP-778).

Clients choose their behaviour by finalized levels: transactions version 2, the groups of Kafka 4,
share groups. Ottla finalizes only features that it has. As a broker in the cluster of another
controller it claims more: a broker that does not know a finalized feature may not register.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.machines.controller.config_checks import MIN_ISR
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import EVERY_BROKER, ClusterImage, ResourceType
from ottla.metadata.metadata_version import (
    CONTROLLER_REGISTRATIONS_SINCE,
    ELR_SINCE,
    KRAFT_VERSION_FEATURE,
    LEVELS_WITH_NEW_METADATA,
    METADATA_VERSION_FEATURE,
    NEWEST_METADATA_VERSION,
    OLDEST_METADATA_VERSION,
    TRANSACTIONS_SINCE,
    release_of,
)
from ottla.metadata.records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId

TRANSACTION_VERSION_FEATURE: Final = "transaction.version"
ELR_VERSION_FEATURE: Final = "eligible.leader.replicas.version"
SUPPORTED_LEVELS: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION_FEATURE: (OLDEST_METADATA_VERSION, NEWEST_METADATA_VERSION),
    KRAFT_VERSION_FEATURE: (0, 1),
    TRANSACTION_VERSION_FEATURE: (0, 2),
    ELR_VERSION_FEATURE: (0, 1),
}
"""The first and the last level of each feature that Ottla has. Level 2 of transaction.version ends
every transaction with a new epoch (KIP-890)."""
CLAIMED_LEVELS: Final[Mapping[str, tuple[int, int]]] = {
    **SUPPORTED_LEVELS,
    "group.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}
"""The levels that a broker names when it registers. Coordinators of groups that it does not have
are placed on other brokers."""
UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
_FIRST_LEVELS: Final = {TRANSACTION_VERSION_FEATURE: 2}
_FIRST_LEVELS_OF_QUORUM: Final = {
    TRANSACTION_VERSION_FEATURE: (2, 24),
    ELR_VERSION_FEATURE: (1, 26),
}
"""The level of each feature in a new cluster, and the metadata.version from which it has it."""


class FeatureUpdate(NamedTuple):
    """A requested level of a feature."""

    name: str
    level: int
    upgrade_type: int


# -- the first levels -----------------------------------------------------------------------------


def bootstrap(image: ClusterImage) -> Decision[MetadataRecord, None]:
    """Decide on the first levels of a store without metadata transactions."""
    if METADATA_VERSION_FEATURE in image.level_by_feature:
        return Decision((), None)
    levels = {METADATA_VERSION_FEATURE: NEWEST_METADATA_VERSION, **_FIRST_LEVELS}
    return Decision(tuple(_levels(levels)), None)


def first_levels(metadata_version: int = NEWEST_METADATA_VERSION) -> dict[str, int]:
    """Return the levels of a new quorum of that release; kraft.version is not in records."""
    found = {
        name: level
        for name, (level, since) in _FIRST_LEVELS_OF_QUORUM.items()
        if metadata_version >= since
    }
    return {METADATA_VERSION_FEATURE: metadata_version, **found}


def bootstrap_quorum(
    image: ClusterImage, settings: ControllerSettings, records: Sequence[MetadataRecord]
) -> Decision[MetadataRecord, None]:
    """Decide on the first records of a quorum's log; none if the log has a metadata.version.

    They are one metadata transaction, where the level has such. With eligible leader replicas, the
    number in sync is a setting of the cluster: all brokers have to agree on it.
    """
    if METADATA_VERSION_FEATURE in image.level_by_feature:
        return Decision((), None)
    written: list[MetadataRecord] = list(records) or list(_levels(first_levels()))
    levels = {one.name: one.feature_level for one in written if isinstance(one, FeatureLevelRecord)}
    if METADATA_VERSION_FEATURE not in levels:
        levels[METADATA_VERSION_FEATURE] = NEWEST_METADATA_VERSION
        written = [*_levels({METADATA_VERSION_FEATURE: NEWEST_METADATA_VERSION}), *written]
    if levels.get(ELR_VERSION_FEATURE, 0) > 0:
        written += _min_isr_of_all(image, settings)
    if levels[METADATA_VERSION_FEATURE] >= TRANSACTIONS_SINCE:
        begin = BeginTransactionRecord(name="Bootstrap records")
        written = [begin, *written, EndTransactionRecord()]
    return Decision(tuple(written), None)


def _levels(levels: Mapping[str, int]) -> Iterator[MetadataRecord]:
    return (FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items())


def _min_isr_of_all(image: ClusterImage, settings: ControllerSettings) -> list[MetadataRecord]:
    if MIN_ISR in image.configs.get(EVERY_BROKER, {}):
        return []
    return [
        ConfigRecord(
            resource_type=ResourceType.BROKER,
            resource_name="",
            name=MIN_ISR,
            value=str(settings.topic_defaults.min_insync_replicas),
        )
    ]


# -- changes of levels ----------------------------------------------------------------------------


def update_features(
    image: ClusterImage,
    settings: ControllerSettings,
    updates: Sequence[FeatureUpdate],
    *,
    kraft_version: int | None = None,
    voters: Iterable[int] = (),
) -> Decision[MetadataRecord, None]:
    """Change all of these levels; ApiError INVALID_UPDATE_VERSION if any of them is invalid.

    Every registered broker and controller, and each of the `voters`, has to have the new level.
    """
    records: list[MetadataRecord] = []
    wanted = {one.name: one.level for one in updates}
    for update in updates:
        level = image.level_by_feature.get(update.name, 0)
        if update.name == KRAFT_VERSION_FEATURE:
            level = kraft_version or 0
        complaint = (
            _complaint(update, level)
            or _complaint_of_nodes(image, update, voters)
            or _complaint_of_feature(image, update, level, wanted)
        )
        if complaint is not None:
            raise _refusal(update, complaint)
        if update.name == KRAFT_VERSION_FEATURE:
            if update.level != level and kraft_version is None:
                raise _refusal(update, "only a quorum of controllers has such a level")
        elif update.level != level:
            records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
            if update.name == ELR_VERSION_FEATURE:
                records += _min_isr_of_all(image, settings)
    return Decision(tuple(records), None)


def _refusal(update: FeatureUpdate, complaint: str) -> ApiError:
    detail = f"{update.name[:100]} cannot be at level {update.level}: {complaint}"
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, detail)


def _complaint(update: FeatureUpdate, level: int) -> str | None:
    if update.upgrade_type not in {UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE}:
        return f"there is no upgrade type {update.upgrade_type}"
    supported = SUPPORTED_LEVELS.get(update.name)
    if supported is None:
        return None if update.level == level == 0 else "Ottla does not have that feature"
    first, last = supported
    if not first <= update.level <= last:
        return f"Ottla has levels {first} to {last} of it"
    if update.level < level and update.upgrade_type == UPGRADE:
        return f"it is at level {level}, and an upgrade was asked for"
    if update.level > level and update.upgrade_type != UPGRADE:
        return f"it is at level {level}, and a downgrade was asked for"
    return None


def _complaint_of_nodes(
    image: ClusterImage, update: FeatureUpdate, voters: Iterable[int]
) -> str | None:
    """Return which node cannot have this level."""
    for broker in image.brokers.values():
        first, last = broker.levels_by_feature.get(update.name, (0, 0))
        if not broker.levels_by_feature:
            continue  # in ZooKeeper, the levels of a broker that is away are not known
        if not first <= update.level <= last:
            return f"broker {broker.broker_id} has levels {first} to {last} of it"
    if image.metadata_version < CONTROLLER_REGISTRATIONS_SINCE:
        return None
    for controller in image.controllers.values():
        first, last = controller.levels_by_feature.get(update.name, (0, 0))
        if not first <= update.level <= last:
            return f"controller {controller.controller_id} has levels {first} to {last} of it"
    unknown = sorted(one for one in voters if BrokerId(one) not in image.controllers)
    return f"controller {unknown[0]} has not registered its levels yet" if unknown else None


def _complaint_of_feature(
    image: ClusterImage, update: FeatureUpdate, level: int, wanted: Mapping[str, int]
) -> str | None:
    """Return why a feature cannot go from its level to another."""
    if update.name == KRAFT_VERSION_FEATURE and update.level < level:
        return f"it is at level {level}, and never falls"
    if update.name == METADATA_VERSION_FEATURE and update.level < level:
        lost = [one for one in LEVELS_WITH_NEW_METADATA if update.level < one <= level]
        if lost:
            return f"{release_of(max(lost))} has brought new metadata, which a downgrade would lose"
    if update.name == ELR_VERSION_FEATURE and update.level != level:
        metadata_version = wanted.get(METADATA_VERSION_FEATURE, image.metadata_version)
        if metadata_version < ELR_SINCE:
            return f"it needs metadata.version {ELR_SINCE} ({release_of(ELR_SINCE)})"
        if update.level < level:
            return "Ottla always keeps eligible leader replicas"
    return None
