"""The actions of a quorum machine. Its driver executes them in order, and skips none.

Each action is complete before its successor begins. `PersistElection` is complete when its content
is synced. So a message never leaves before the facts that it promises are durable. Only `Sync` ends
later: its end is reported by `QuorumMachine.on_synced`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ottla.raft.election_state import ElectionState
from ottla.raft.snapshots import SnapshotId
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.fetch_snapshot import FetchSnapshotResponse
from ottla.wire.schema import Message


class Node(NamedTuple):
    """A node to send requests to; the id is None for a bootstrap server."""

    node_id: int | None
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PersistElection:
    """Write and sync `quorum-state`."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class Append:
    """Append a batch, which has its offset and epoch, to the log."""

    batch: bytes
    base_offset: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log: the batches from this offset on go."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Sync the log, and then report the end offset and the generation to `on_synced`."""

    end_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send a request. Its end is reported by `on_response`, or by `on_failure`."""

    correlation_id: int
    node: Node
    request: Message


@dataclass(frozen=True, slots=True)
class SendResponse:
    """Send the response to the request with this token.

    It has the fields of the newest version; `fit_response` resets the fields that the request's
    version does not have. The same holds for `SendRecords` and `SendSnapshot`.
    """

    token: object
    response: Message


@dataclass(frozen=True, slots=True)
class SendRecords:
    """Send a response to Fetch, with records of the log from this offset on.

    At least one batch is sent, and more within the limit.
    """

    token: object
    response: FetchResponse
    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class SendSnapshot:
    """Send a response to FetchSnapshot, with a piece of the file, and its size.

    A position outside of the file is POSITION_OUT_OF_RANGE.
    """

    token: object
    response: FetchSnapshotResponse
    snapshot_id: SnapshotId
    position: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class WriteSnapshot:
    """Write a piece of a snapshot that is being fetched; position 0 begins the file anew."""

    snapshot_id: SnapshotId
    position: int
    content: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Sync and rename the fetched snapshot, and begin an empty log at its end.

    The driver reports it by `on_snapshot_installed` before it reports any other event.
    """

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class DeleteBefore:
    """Delete the log before this snapshot's end, and older snapshots."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class Committed:
    """The log is committed up to here: the state machine may apply it."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The leader and the epoch; None if no leader is known in it."""

    epoch: int
    leader_id: int | None


Action = (
    PersistElection
    | Append
    | Truncate
    | Sync
    | SendRequest
    | SendResponse
    | SendRecords
    | SendSnapshot
    | WriteSnapshot
    | InstallSnapshot
    | DeleteBefore
    | Committed
    | LeaderChanged
)
