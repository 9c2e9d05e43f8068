"""The topic `_schemas` as the registry sees it: a log that at most one broker may append to.

The leader of `_schemas-0` is the only writer. An append names the leader epoch and the end of the
log that the decision was based on, so a decision on an old state cannot get into the log. Every
broker reads the committed part of the log and replays it; a response is sent after its own records
were replayed.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class SchemasRecord(NamedTuple):
    """One committed record of `_schemas`. `value` is None for a tombstone."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Leadership:
    """This broker leads `_schemas-0` in an epoch that began at `end_offset`."""

    epoch: int
    end_offset: int


class NotLeaderError(Exception):
    """This broker no longer leads `_schemas-0` in the epoch of the append; nothing was appended."""


class LeaderWithoutRegistryError(Exception):
    """The leader of `_schemas-0` has registered no address of a registry: no broker can write."""


class EndMovedError(Exception):
    """The log has other records at its end than the decision was based on; nothing was appended."""


class OutcomeUnknownError(Exception):
    """Records were appended, but were not committed in time; they may still be, or not."""


class SchemasLog(Protocol):
    """The log, on one broker. All methods belong to one event loop."""

    async def ensure_topic(self) -> None:
        """Create `_schemas` if it does not exist; OSError or ApiError if that fails."""
        ...

    def leadership(self) -> Leadership | None:
        """Return this broker's leadership; None if this broker does not lead."""
        ...

    async def append(
        self,
        records: tuple[tuple[bytes, bytes | None], ...],
        leadership: Leadership,
        end_offset: int,
    ) -> int:
        """Append keys and values atomically and wait until they are committed; return the new end.

        NotLeaderError, EndMovedError or OutcomeUnknownError otherwise.
        """
        ...

    async def end_offset(self) -> int:
        """Return the end of the committed log by its leader; ApiError if there is none."""
        ...

    def read(self, offset: int) -> AsyncIterator[list[SchemasRecord]]:
        """Yield committed records from an offset on, in order, for ever; wait at the end.

        An empty list says that everything that is committed now was yielded. ApiError
        OFFSET_OUT_OF_RANGE if the topic was deleted, or has lost committed records: the state has
        to be replayed from the start of a new log.
        """
        ...

    def leader_url(self) -> str | None:
        """Return the base URL of the leader's registry; None while no leader is known.

        LeaderWithoutRegistryError if the leader has none.
        """
        ...
