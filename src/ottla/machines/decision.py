"""The result of deciding: records to write, and the response once they are committed.

    request -> decide -> Decision(records, response)
                             |
                 append and replay, wait until committed, send the response

Deciding changes nothing. Replaying records is all that changes a machine, so that a machine that
replays the same log, on another broker or after a restart, is in the same state.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R, T]):
    """Records that must become durable atomically, and the response.

    A decision without records is a response about the replayed state; it too may be sent only when
    that state is committed.
    """

    records: tuple[R, ...]
    response: T
