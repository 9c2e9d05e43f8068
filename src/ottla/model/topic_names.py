"""Legal and colliding topic names, and the partition of an internal topic for a name."""

import re
from functools import lru_cache
from struct import unpack
from typing import Final

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

NAME_CHARACTERS_MAX: Final = 249
"""Ensures that a partition's directory, with its number behind the name, is a legal file name."""
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset(
    {CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC}
)
"""The topics that Metadata marks as internal. The metadata log is never shown to clients."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
_SHOWN_CHARACTERS_MAX: Final = 100

NAMES_KEPT_MAX: Final = 10_000
"""The size of the cache: names in use are mapped several times per transaction and heartbeat."""


def check_topic_name(name: str) -> None:
    """Raise ApiError INVALID_TOPIC_EXCEPTION, which says why, unless the name is legal."""
    if not name:
        raise _invalid("a topic needs a name")
    if name in {".", ".."}:
        raise _invalid(f"{name!r} cannot be the name of a topic")
    if len(name) > NAME_CHARACTERS_MAX:
        raise _invalid(
            f"a topic's name of {len(name)} characters exceeds the limit of {NAME_CHARACTERS_MAX}"
        )
    if not _LEGAL.fullmatch(name):
        raise _invalid(
            f"{name[:_SHOWN_CHARACTERS_MAX]!r} has a character that is none of a-z, A-Z, 0-9, '.',"
            " '_' and '-'"
        )


def folded(name: str) -> str | None:
    """Return the common form of names that collide, or None for a name that cannot.

    Names that differ only in '.' and '_' collide: they would be equal in the names of metrics.
    """
    return name.replace(".", "_") if "." in name or "_" in name else None


def _invalid(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, detail)


@lru_cache(NAMES_KEPT_MAX)
def partition_of_name(name: str, partition_count: int) -> int:
    """Return the number of the partition, as Kafka finds it for groups and transactions."""
    return abs(_java_hash(name)) % partition_count


def _java_hash(text: str) -> int:
    """Return the result of Java's String.hashCode, as a signed number."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for unit in unpack(f">{len(units) // 2}H", units):
        code = (31 * code + unit) & 0xFFFFFFFF
    # Kafka's abs() maps the smallest number, which has no positive counterpart, to 0.
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return 0 if signed == -(1 << 31) else signed
