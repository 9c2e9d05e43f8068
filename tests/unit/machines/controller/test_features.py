"""Feature levels: allowed changes, and the errors for others."""

import pytest

from ottla.machines.controller.features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    update_features,
)
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import FeatureLevelRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

IMAGE = ClusterImage("cluster", level_by_feature={"group.version": 1})
SUPPORTED = {"group.version": (0, 2), "share.version": (0, 1)}


def decide(*updates: FeatureUpdate) -> list[tuple[str, int]]:
    records = update_features(IMAGE, updates, SUPPORTED).records
    assert all(isinstance(record, FeatureLevelRecord) for record in records)
    return [(record.name, record.feature_level) for record in records]  # type: ignore[union-attr]


def test_levels_rise_and_fall_as_asked() -> None:
    assert decide(FeatureUpdate("group.version", 2, UPGRADE)) == [("group.version", 2)]
    assert decide(FeatureUpdate("group.version", 0, SAFE_DOWNGRADE)) == [("group.version", 0)]
    assert decide(FeatureUpdate("group.version", 1, UPGRADE)) == []


@pytest.mark.parametrize(
    ("update", "complaint"),
    [
        (FeatureUpdate("group.version", 3, UPGRADE), "levels 0 to 2"),
        (FeatureUpdate("group.version", -1, SAFE_DOWNGRADE), "levels 0 to 2"),
        (FeatureUpdate("group.version", 0, UPGRADE), "an upgrade was asked for"),
        (FeatureUpdate("group.version", 2, SAFE_DOWNGRADE), "a downgrade was asked for"),
        (FeatureUpdate("group.version", 2, 9), "no upgrade type 9"),
        (FeatureUpdate("other.version", 1, UPGRADE), "does not have that feature"),
    ],
)
def test_one_that_cannot_be_changed_changes_none(update: FeatureUpdate, complaint: str) -> None:
    with pytest.raises(ApiError, match=complaint) as refusal:
        decide(FeatureUpdate("share.version", 1, UPGRADE), update)
    assert refusal.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert update.name in refusal.value.detail
