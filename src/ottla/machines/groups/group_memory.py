"""How much memory groups take, and the limits on it.

Counted are the names, the metadata and the assignments that clients send, and a constant for the
objects around each of them. Each group has a limit, and so have all groups of a broker together.
Committed offsets are not counted: they are in the log, one for each partition, and expire.
"""

from typing import Final

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

MEMBER_BYTES: Final = 2_048
"""A member with its session, besides its request data."""
PROTOCOL_BYTES: Final = 256
"""A protocol that a member supports, besides its name and metadata."""
MEMBER_ID_BYTES: Final = 1_024
"""A member id that was given out and has not come back yet."""
PENDING_OFFSET_BYTES: Final = 1_024
"""An offset of a transaction that has not ended yet."""
SMALL_BYTES: Final = 16 << 10
SHARE_OF_LARGE: Final = 0.75
"""From this share of the total on, requests above `SMALL_BYTES` are refused, so that clients with
large metadata leave room for the members of other groups."""


class GroupMemory:
    """The memory of all groups of a broker together."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.used_bytes = 0

    def charge(self, size_bytes: int) -> None:
        """Count retained bytes; released bytes are negative."""
        self.used_bytes += size_bytes
        assert self.used_bytes >= 0, self.used_bytes

    def check(self, size_bytes: int) -> None:
        """Raise ApiError unless there is room for so much more.

        The error makes clients try again: there is room when other members have gone.
        """
        share = SHARE_OF_LARGE if size_bytes > SMALL_BYTES else 1
        if self.used_bytes + size_bytes > share * self._bytes_max:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"no room for {size_bytes} bytes: all groups take {self.used_bytes} bytes,"
                f" ottla.groups.max.bytes is {self._bytes_max}",
            )


class Usage:
    """The share of a group, or of a partition's pending offsets, in that memory.

    It counts locally from the start, and towards the total once it is shared: state loaded from the
    log counts only if its machine is used.
    """

    __slots__ = ("_memory", "used_bytes")

    def __init__(self) -> None:
        self.used_bytes = 0
        self._memory: GroupMemory | None = None

    def charge(self, size_bytes: int) -> None:
        """Count retained bytes; released bytes are negative."""
        self.used_bytes += size_bytes
        assert self.used_bytes >= 0, self.used_bytes
        if self._memory is not None:
            self._memory.charge(size_bytes)

    def share(self, memory: GroupMemory) -> None:
        """Let it count towards the total."""
        assert self._memory is None
        self._memory = memory
        memory.charge(self.used_bytes)

    def unshare(self) -> None:
        """Stop counting it."""
        if self._memory is not None:
            self._memory.charge(-self.used_bytes)
            self._memory = None


def text_bytes(text: str | None) -> int:
    """Return how much memory a text takes at most, besides its object."""
    if text is None:
        return 0
    return len(text) if text.isascii() else 4 * len(text)
