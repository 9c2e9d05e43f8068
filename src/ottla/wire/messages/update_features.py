"""UpdateFeatures (API 57): raise or lower the levels of cluster features.

A level of 0 removes the feature (KIP-584). Since version 1 the upgrade type is 1 for an
upgrade, 2 for a safe downgrade, 3 for an unsafe one (KIP-778). Version 2 reports no results for
single features.
"""

from ottla.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Struct):
    """The new level of a feature."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=1)
    upgrade_type: int = int8(default=1, since=1)


class UpdateFeaturesRequest(Message, versions=(0, 2), flexible_since=0):
    """Bring these features to new levels, or only check that it could be done."""

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1)


class UpdatableFeatureResult(Struct):
    """Whether one feature's level was changed."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


class UpdateFeaturesResponse(Message, versions=(0, 2), flexible_since=0):
    """The outcome of the feature update."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=2, ignorable=True)
