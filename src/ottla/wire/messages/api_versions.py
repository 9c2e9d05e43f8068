"""ApiVersions (API 18): learn which APIs and features a broker offers.

Usually a client's first request. The response to an unknown version is in version 0, with
UNSUPPORTED_VERSION, and the response header is always version 0. Features came with version 3
(KIP-584).
"""

from ottla.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, versions=(0, 4), flexible_since=3):
    """Ask for the supported API versions, and name the client's software."""

    client_software_name: str = string(since=3, ignorable=True)
    client_software_version: str = string(since=3, ignorable=True)


class ApiVersion(Struct):
    """The versions of one API that are spoken here."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    """The levels of one feature that this broker could run at."""

    name: str = string(since=3)
    min_version: int = int16(since=3)
    max_version: int = int16(since=3)


class FinalizedFeatureKey(Struct):
    """The level of one feature that the cluster runs at."""

    name: str = string(since=3)
    max_version_level: int = int16(since=3)
    min_version_level: int = int16(since=3)


class ApiVersionsResponse(Message, versions=(0, 4), flexible_since=3):
    """The APIs and features on offer."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, since=3, ignorable=True, tag=0
    )
    finalized_features_epoch: int = int64(default=-1, since=3, ignorable=True, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, since=3, ignorable=True, tag=2
    )
    zk_migration_ready: bool = boolean(since=3, ignorable=True, tag=3)
