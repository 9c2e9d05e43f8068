"""The parameters of a Fetch request that apply to all of its partitions."""

from typing import NamedTuple, Self

from ottla.broker.data.message_format_conversion import CONVERTED_BYTES_MAX
from ottla.model.identifiers import BrokerId
from ottla.model.isolation_level import READ_COMMITTED
from ottla.replication.in_sync import Follower
from ottla.storage.log.leader_epochs import NO_EPOCH
from ottla.wire.messages.fetch import FetchRequest

WHOLE_SINCE = 3
BATCHES_SINCE = 4
_RACKS_SINCE = 11
_REPLICA_STATE_SINCE = 15


class FetchReader(NamedTuple):
    """The reader of a Fetch request and its limits, for all partitions."""

    bytes_max: int
    bytes_min: int
    is_committed_only: bool
    follower: Follower | None
    """The follower that sent the request; None for a consumer."""
    asked_ms: int | None
    """The time of the request, if it is to be recorded: once for each request."""
    rack: str
    is_leader_needed: bool
    is_cut_later: bool
    """Whether limits apply after conversion to message sets, which may be cut anywhere."""

    @classmethod
    def of(cls, request: FetchRequest, version: int, received_ms: int, bytes_max: int) -> Self:
        """Read the parameters from a request of any version."""
        bytes_max = min(request.max_bytes, bytes_max)
        if version < BATCHES_SINCE:
            bytes_max = min(bytes_max, CONVERTED_BYTES_MAX)
        return cls(
            bytes_max,
            min(request.min_bytes, bytes_max),
            request.isolation_level == READ_COMMITTED,
            _follower(request, version),
            received_ms,
            request.rack_id,
            version < _RACKS_SINCE,
            version < WHOLE_SINCE,
        )


def _follower(request: FetchRequest, version: int) -> Follower | None:
    if version < _REPLICA_STATE_SINCE:
        return None if request.replica_id < 0 else Follower(BrokerId(request.replica_id), NO_EPOCH)
    state = request.replica_state
    if state is None or state.replica_id < 0:
        return None
    return Follower(BrokerId(state.replica_id), state.replica_epoch)
