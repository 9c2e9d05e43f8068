"""The limits of a client's request."""

from typing import Final

from ottla.metadata.image import ClusterImage
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.settings import shown

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
PARTITIONS_MAX: Final = 200_000
"""The limit of a cluster; a request above it is the mistake of a client."""
CONFIG_BYTES_MAX: Final = (1 << 15) - 1
"""The longest text that the protocol can give back in every version."""


def check_partition_room(image: ClusterImage, count: int) -> None:
    """Raise ApiError POLICY_VIOLATION if a request for so many in all goes too far."""
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"more than {PARTITIONS_PER_REQUEST_MAX} new partitions in one request",
        )
    if image.partition_count + count > PARTITIONS_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION, f"a cluster has at most {PARTITIONS_MAX} partitions"
        )


def check_config_size(name: str, text: str) -> None:
    """Raise ApiError INVALID_CONFIG for a value that is too long to be sent in responses."""
    if len(text.encode()) > CONFIG_BYTES_MAX:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"the value of {shown(name)} has more than {CONFIG_BYTES_MAX} bytes",
        )
