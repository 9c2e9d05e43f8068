"""Feature levels: the first, allowed changes, and the errors for others."""

from dataclasses import replace

import pytest

from ottla.machines.controller.features import (
    CLAIMED_LEVELS,
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    first_levels,
)
from ottla.metadata.image import BrokerImage, ClusterImage, ControllerImage
from ottla.metadata.records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)
from ottla.metadata.security_records import UserScramCredentialRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from tests.metadata_building import CLUSTER_ID, controller_of, uuid_of

ELR = "eligible.leader.replicas.version"
MIN_ISR = ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1")


def level(name: str, number: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=number)


NEWEST = [level(name, number) for name, number in first_levels().items()]


def at(**levels: int) -> ClusterImage:
    """Return the image of a cluster with these levels, and a broker and a controller of today."""
    broker = BrokerImage(1, 0, uuid_of(1), (), levels_by_feature=CLAIMED_LEVELS)
    controller = ControllerImage(9, uuid_of(9), (), CLAIMED_LEVELS)
    return ClusterImage(
        CLUSTER_ID,
        brokers={1: broker},
        controllers={9: controller},
        level_by_feature={name.replace("_", "."): number for name, number in levels.items()},
    )


def update(image: ClusterImage, *updates: FeatureUpdate, **options: int) -> list[MetadataRecord]:
    controller = controller_of(image)
    return list(controller.update_features(updates, voters=[9], **options).records)


# -- the first levels -----------------------------------------------------------------------------


def test_a_quorum_begins_with_the_levels_that_ottla_supports() -> None:
    assert first_levels() == {"metadata.version": 30, "transaction.version": 2, ELR: 1}
    assert first_levels(24) == {"metadata.version": 24, "transaction.version": 2}
    assert first_levels(7) == {"metadata.version": 7}


def test_the_first_records_are_a_transaction_with_the_number_in_sync() -> None:
    controller = controller_of(ClusterImage(CLUSTER_ID))
    user = UserScramCredentialRecord(name="u")
    given = [*NEWEST, user]
    begin = BeginTransactionRecord(name="Bootstrap records")
    assert controller.bootstrap(given).records == (begin, *given, MIN_ISR, EndTransactionRecord())
    assert controller.bootstrap([]).records == (
        begin,
        *NEWEST,
        MIN_ISR,
        EndTransactionRecord(),
    )
    assert controller.bootstrap([user]).records[1:-1] == (level("metadata.version", 30), user)


def test_an_old_level_has_no_transaction_and_no_number_in_sync() -> None:
    controller = controller_of(ClusterImage(CLUSTER_ID))
    assert controller.bootstrap([level("metadata.version", 12)]).records == (
        level("metadata.version", 12),
    )


def test_a_log_that_has_begun_is_left_as_it_is() -> None:
    assert controller_of(at(metadata_version=29)).bootstrap(NEWEST).records == ()


# -- changes --------------------------------------------------------------------------------------


def test_levels_rise_and_fall_as_asked() -> None:
    image = at(metadata_version=29, transaction_version=1)
    newest = FeatureUpdate("metadata.version", 30, UPGRADE)
    assert update(image, newest) == [level("metadata.version", 30)]
    assert update(image, FeatureUpdate("transaction.version", 0, SAFE_DOWNGRADE)) == [
        level("transaction.version", 0)
    ]
    assert update(image, FeatureUpdate("transaction.version", 1, UPGRADE)) == []
    assert update(image, newest, validate_only=True) == []


def test_a_downgrade_loses_no_metadata() -> None:
    down = FeatureUpdate("metadata.version", 23, SAFE_DOWNGRADE)
    assert update(at(metadata_version=29), down) == [level("metadata.version", 23)]
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        with pytest.raises(ApiError, match=r"4\.0-IV1 has brought new metadata"):
            update(at(metadata_version=29), FeatureUpdate("metadata.version", 22, kind))
    with pytest.raises(ApiError, match=r"4\.3-IV0 has brought new metadata"):
        update(at(metadata_version=30), FeatureUpdate("metadata.version", 29, SAFE_DOWNGRADE))


def test_eligible_leader_replicas_set_the_number_in_sync_for_all_brokers() -> None:
    wanted = FeatureUpdate(ELR, 1, UPGRADE)
    assert update(at(metadata_version=29), wanted) == [level(ELR, 1), MIN_ISR]
    with pytest.raises(ApiError, match=r"needs metadata.version 23 \(4.0-IV1\)"):
        update(at(metadata_version=22), wanted)
    both = update(at(metadata_version=22), FeatureUpdate("metadata.version", 23, UPGRADE), wanted)
    assert both == [level("metadata.version", 23), level(ELR, 1), MIN_ISR]
    kept = replace(at(metadata_version=29), level_by_feature={"metadata.version": 29, ELR: 1})
    with pytest.raises(ApiError, match="always keeps eligible leader replicas"):
        update(kept, FeatureUpdate(ELR, 0, SAFE_DOWNGRADE))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (FeatureUpdate("transaction.version", 3, UPGRADE), "levels 0 to 2"),
        (FeatureUpdate("transaction.version", -1, SAFE_DOWNGRADE), "levels 0 to 2"),
        (FeatureUpdate("transaction.version", 0, UPGRADE), "an upgrade was asked for"),
        (FeatureUpdate("transaction.version", 2, SAFE_DOWNGRADE), "a downgrade was asked for"),
        (FeatureUpdate("transaction.version", 2, 9), "no upgrade type 9"),
        (FeatureUpdate("metadata.version", 31, UPGRADE), "levels 7 to 30"),
        (FeatureUpdate("metadata.version", 6, UNSAFE_DOWNGRADE), "levels 7 to 30"),
        (FeatureUpdate("group.version", 1, UPGRADE), "Ottla does not have that feature"),
        (FeatureUpdate("other.version", 1, UPGRADE), "Ottla does not have that feature"),
        (
            FeatureUpdate("kraft.version", 1, UPGRADE),
            "only a quorum of controllers",
        ),
    ],
)
def test_a_level_that_cannot_be_changed_changes_none(change: FeatureUpdate, complaint: str) -> None:
    image = at(metadata_version=29, transaction_version=1)
    with pytest.raises(ApiError, match=complaint) as refusal:
        update(image, FeatureUpdate("metadata.version", 30, UPGRADE), change)
    assert refusal.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert change.name in refusal.value.detail


def test_the_level_of_the_quorum_may_be_named() -> None:
    same = FeatureUpdate("kraft.version", 1, UPGRADE)
    assert update(at(metadata_version=29), same, kraft_version=1) == []


def test_the_level_of_the_quorum_rises_without_a_record_and_never_falls() -> None:
    image = at(metadata_version=29)
    assert update(image, FeatureUpdate("kraft.version", 1, UPGRADE), kraft_version=0) == []
    with pytest.raises(ApiError, match="it is at level 1, and never falls"):
        update(image, FeatureUpdate("kraft.version", 0, UNSAFE_DOWNGRADE), kraft_version=1)


def test_every_node_has_to_have_the_new_level() -> None:
    image = at(metadata_version=29)
    newest = FeatureUpdate("metadata.version", 30, UPGRADE)
    old = {"metadata.version": (29, 29)}
    with pytest.raises(ApiError, match="broker 1 has levels 29 to 29"):
        update(
            replace(image, brokers={1: replace(image.brokers[1], levels_by_feature=old)}), newest
        )
    controllers = {9: replace(image.controllers[9], levels_by_feature=old)}
    with pytest.raises(ApiError, match="controller 9 has levels 29 to 29"):
        update(replace(image, controllers=controllers), newest)
    with pytest.raises(ApiError, match="controller 9 has not registered"):
        update(replace(image, controllers={}), newest)
    before = at(metadata_version=14)
    assert update(
        replace(before, controllers={}), FeatureUpdate("metadata.version", 15, UPGRADE)
    ) == [level("metadata.version", 15)]
