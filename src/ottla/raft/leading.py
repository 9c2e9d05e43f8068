"""The leader: it appends, answers fetches, counts them, and moves the high watermark.

A fetch at an offset acknowledges everything before it, since voters sync before they fetch on. The
high watermark is the greatest offset that a majority of the newest voter set has acknowledged,
once it is greater than the offset at which the epoch began: records of earlier epochs are
committed only together with one of this epoch. It never falls, even if voters change.
"""

from typing import TYPE_CHECKING, Any, Final

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import LeaderEpoch, Offset
from ottla.raft.actions import SendRecords, SendSnapshot
from ottla.raft.core import QuorumCore, Sent, refuse_wrong_cluster
from ottla.raft.election_state import ElectionState
from ottla.raft.log_outline import Position
from ottla.raft.messages import (
    NO_OFFSET,
    PARTITION,
    begin_request,
    fetch_response,
    fetch_snapshot_response,
    partition_of,
)
from ottla.raft.snapshots import SnapshotId
from ottla.raft.states import Leader, ParkedFetch, Progress
from ottla.raft.voters import ReplicaKey, VoterSet
from ottla.wire.messages import fetch, fetch_snapshot
from ottla.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.wire.records.batch import Buffer, RecordBatch, batch_at
from ottla.wire.records.quorum_control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    control_batch,
)
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from collections.abc import Callable

REPLICAS_MAX: Final = 10_000
"""Replicas with remembered fetches; the oldest fetch is forgotten first."""
UNTOLD_OFFSET: Final = 2**63 - 1
"""The high watermark of a Fetch before version 18, which has none."""
ANNOUNCE_MS: Final = 200
"""The pause after a BeginQuorumEpoch that did not arrive."""


def committed_offset(voters: VoterSet, ends: dict[ReplicaKey, int]) -> int:
    """Return the greatest offset that a majority of the voters has reached."""
    found = sorted((ends.get(key, NO_OFFSET) for key in voters.keys), reverse=True)
    return found[voters.majority - 1] if found else NO_OFFSET


def may_commit(state: Leader, offset: int) -> bool:
    """Whether an offset is above the beginning of the epoch, and above the high watermark."""
    if offset <= state.epoch_start_offset:
        return False
    return state.high_watermark is None or offset > state.high_watermark


class Leading:
    """The part of a quorum machine that leads."""

    def __init__(self, core: QuorumCore) -> None:
        self._core = core
        core.on_leadership_end = self.on_leadership_end
        self.on_change_end: Callable[[Leader], None] = lambda _: None

    # -- the begin and the end ------------------------------------------------------------------

    def begin(self, granted: set[ReplicaKey]) -> None:
        """Lead this epoch; its first batch names the leader."""
        core = self._core
        # Persisted before the first append. After a restart, a leader that has lost records of
        # its own epoch must know that it led, and not stand for election in this epoch again.
        core.elect(ElectionState(core.epoch, core.key.id, core.election.voted))
        deadline_ms = core.now_ms + core.settings.check_quorum_ms
        core.move(Leader(core.outline.end_offset, deadline_ms))
        self.append_control(self._first_records(granted))

    def _first_records(self, granted: set[ReplicaKey]) -> list[Message]:
        core = self._core
        voters, version = core.voters, core.history.kraft_version
        # Version 1 has directory ids, but Kafka 4.3 reads this record as version 0 in any case.
        records: list[Message] = [
            LeaderChangeMessage(
                version=0,
                leader_id=core.key.id,
                voters=[LeaderChangeVoter(voter_id=key.id) for key in voters.keys],
                granting_voters=[LeaderChangeVoter(voter_id=key.id) for key in sorted(granted)],
            )
        ]
        if version > 0 and core.history.voters_offset < 0:
            # The directory was formatted with them: now they get into the log.
            records.append(KRaftVersionRecord(version=0, k_raft_version=version))
            records.append(voters.record())
        return records

    def append_control(self, records: list[Message]) -> int:
        """Append a control batch, and return its offset."""
        core = self._core
        raw = control_batch(
            records,
            base_offset=core.outline.end_offset,
            leader_epoch=core.epoch,
            timestamp_ms=core.now_ms + core.wall_offset_ms,
        )
        core.append(batch_at(raw))
        core.sync()
        return batch_at(raw).base_offset

    def propose(self, raw: Buffer) -> int:
        """Append a batch of records in this epoch, and return the offset of its first record.

        NOT_LEADER_OR_FOLLOWER if this replica does not lead. The records are committed once the
        high watermark is above them, and lost if that does not happen in this epoch.
        """
        core = self._core
        if not isinstance(core.state, Leader):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this controller is not active")
        batch: RecordBatch = batch_at(bytearray(raw))
        assert not batch.is_control, "control records are the machine's own"
        batch.restamp(Offset(core.outline.end_offset), LeaderEpoch(core.epoch))
        core.append(batch)
        core.sync()
        return batch.base_offset

    def resign(self) -> None:
        """Give the leadership up; the voter with the most complete log should follow."""
        core, state = self._core, self._core.state
        assert isinstance(state, Leader), state

        def end_offset(key: ReplicaKey) -> int:
            progress = state.replicas.get(key)
            return NO_OFFSET if progress is None else progress.end_offset

        keys = [voter.key for voter in core.other_voters()]
        core.become_resigned(tuple(sorted(keys, key=end_offset, reverse=True)))

    def on_leadership_end(self, state: Leader) -> None:
        """Answer everything that waits for this leader."""
        for parked in state.parked.values():
            self._refuse_fetch(parked.token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        state.parked.clear()
        self.on_change_end(state)

    # -- polls ----------------------------------------------------------------------------------

    def poll(self, state: Leader) -> None:
        """Check the quorum, announce this leader, and answer parked fetches."""
        if self._has_lost_quorum(state):
            self.resign()
            return
        self._announce(state)
        self.update_high_watermark(state)
        for parked in list(state.parked.values()):
            self._answer(state, parked)

    def _has_lost_quorum(self, state: Leader) -> bool:
        core = self._core
        if core.is_only_voter:
            state.check_deadline_ms = core.now_ms + core.settings.check_quorum_ms
            return False
        return core.is_due(state.check_deadline_ms)

    def _announce(self, state: Leader) -> None:
        """Send BeginQuorumEpoch to the voters that do not fetch."""
        core = self._core
        pause_ms = core.settings.fetch_timeout_ms // 2
        for voter in core.other_voters():
            progress = state.replicas.get(voter.key)
            fetched_ms = None if progress is None else progress.fetched_at_ms
            times = [one for one in (fetched_ms, state.began_ms.get(voter.key)) if one is not None]
            node = core.address_of(voter)
            if node is None or (times and not core.is_due(max(times) + pause_ms)):
                continue
            if core.can_send(node, BeginQuorumEpochRequest):
                state.began_ms[voter.key] = core.now_ms
                core.wake(core.now_ms + pause_ms)
                core.send(node, begin_request(core.identity, voter.key, core.epoch))

    def on_begin_failure(self, sent: Sent) -> None:
        """Announce this leader again soon, but not at the pace of the backoff."""
        core, state = self._core, self._core.state
        if isinstance(state, Leader):
            pause_ms = core.settings.fetch_timeout_ms // 2
            for key in [key for key in state.began_ms if key.id == sent.node.node_id]:
                state.began_ms[key] = core.now_ms - pause_ms + ANNOUNCE_MS

    def update_high_watermark(self, state: Leader) -> None:
        """Move the high watermark to the offset that a majority has."""
        core = self._core
        ends = {key: progress.end_offset for key, progress in state.replicas.items()}
        ends[core.own_voter_key] = core.synced_end
        offset = committed_offset(core.voters, ends)
        if may_commit(state, offset):
            state.high_watermark = offset
            core.commit(offset)

    # -- Fetch ----------------------------------------------------------------------------------

    def on_fetch(self, token: object, request: FetchRequest) -> None:
        """Answer a Fetch, at once or later."""
        core, state = self._core, self._core.state
        try:
            refuse_wrong_cluster(core, request.cluster_id)
        except ApiError as error:
            core.respond(token, FetchResponse(error_code=error.code))
            return
        partition = partition_of(request, core.identity)
        if partition is None:
            core.respond(token, FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        replica = request.replica_state
        replica_id = request.replica_id if replica is None else replica.replica_id
        code = self._leader_refusal(partition.current_leader_epoch)
        numbers = (partition.fetch_offset, partition.last_fetched_epoch)
        if code is ErrorCode.NONE and min(numbers) < 0:
            code = ErrorCode.INVALID_REQUEST
        if code is not ErrorCode.NONE or not isinstance(state, Leader):
            self._refuse_fetch(token, code)
            return
        key = self._key_of(ReplicaKey(replica_id, partition.replica_directory_id))
        wait_ms = min(max(request.max_wait_ms, 0), core.settings.fetch_wait_ms)
        parked = ParkedFetch(token, request, key, core.now_ms + wait_ms)
        if core.outline.compare(*numbers) == Position():
            self._count(state, key, partition)
        if (earlier := state.parked.pop(key, None)) is not None:
            self._refuse_fetch(earlier.token, ErrorCode.NONE)
        self._answer(state, parked)

    def _key_of(self, key: ReplicaKey) -> ReplicaKey:
        """Return the key of the voter set, which may have no directory ids."""
        voter = self._core.voters.match(key)
        return key if voter is None else voter.key

    def _leader_refusal(self, epoch: int) -> ErrorCode:
        core = self._core
        if epoch > core.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(core.state, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if epoch == core.epoch else ErrorCode.FENCED_LEADER_EPOCH

    def _count(self, state: Leader, key: ReplicaKey, asked: Any) -> None:
        """Take a fetch as the acknowledgement of everything before its offset."""
        core, offset = self._core, asked.fetch_offset
        if key.id < 0:
            return  # A client that reads the log is no replica.
        progress = state.replicas.setdefault(key, Progress())
        if offset >= core.outline.end_offset:
            progress.caught_up_at_ms = core.now_ms
        elif progress.fetched_at_ms is not None and offset >= progress.leader_end_offset:
            progress.caught_up_at_ms = progress.fetched_at_ms
        progress.end_offset = offset
        is_told = asked.high_watermark != UNTOLD_OFFSET
        progress.high_watermark = asked.high_watermark if is_told else NO_OFFSET
        progress.leader_end_offset = core.outline.end_offset
        progress.fetched_at_ms = core.now_ms
        self.hear(state, key)
        self.update_high_watermark(state)
        if len(state.replicas) > REPLICAS_MAX:
            self._forget_observer(state)

    def hear(self, state: Leader, key: ReplicaKey) -> None:
        """Take a request of a voter as a sign of life."""
        core = self._core
        if not core.voters.has(key):
            return
        state.heard.add(key)
        others = sum(voter.key in state.heard for voter in core.other_voters())
        if others + core.is_voter >= core.voters.majority:
            state.check_deadline_ms = core.now_ms + core.settings.check_quorum_ms
            state.heard.clear()

    def _forget_observer(self, state: Leader) -> None:
        observers = [key for key in state.replicas if not self._core.voters.has(key)]
        if observers:
            oldest = min(observers, key=lambda key: state.replicas[key].fetched_at_ms or 0)
            del state.replicas[oldest]

    def _answer(self, state: Leader, parked: ParkedFetch) -> None:
        """Answer a fetch if there is anything to say, else park it."""
        core = self._core
        assert isinstance(parked.request, FetchRequest), parked
        asked = parked.request.topics[0].partitions[0]
        position = core.outline.compare(asked.fetch_offset, asked.last_fetched_epoch)
        known = NO_OFFSET if state.high_watermark is None else state.high_watermark
        has_records = asked.fetch_offset < core.outline.end_offset
        is_news = position != Position() or has_records or asked.high_watermark < known
        if not is_news and not core.is_due(parked.deadline_ms):
            state.parked[parked.key] = parked
            return
        state.parked.pop(parked.key, None)
        response = self._fetch_response(ErrorCode.NONE, position)
        if position != Position() or not has_records:
            core.respond(parked.token, response)
            return
        bytes_max = min(max(asked.partition_max_bytes, 0), core.settings.fetch_bytes_max)
        core.actions.append(SendRecords(parked.token, response, asked.fetch_offset, bytes_max))

    def _fetch_response(self, code: ErrorCode, position: Position) -> FetchResponse:
        core, state = self._core, self._core.state
        known = state.high_watermark if isinstance(state, Leader) else None
        diverging, snapshot_id = position
        partition = fetch.PartitionData(
            partition_index=PARTITION,
            error_code=code,
            high_watermark=NO_OFFSET if known is None else known,
            log_start_offset=core.outline.start_offset,
            records=b"",
        )
        if diverging is not None:
            partition.diverging_epoch = fetch.EpochEndOffset(
                epoch=diverging.epoch, end_offset=diverging.end_offset
            )
        if snapshot_id is not None:
            partition.snapshot_id = fetch.SnapshotId(
                end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch
            )
        return fetch_response(
            core.identity,
            partition,
            epoch=core.epoch,
            leader=core.leader,
            leader_id=core.election.leader_id,
        )

    def _refuse_fetch(self, token: object, code: ErrorCode) -> None:
        self._core.respond(token, self._fetch_response(code, Position()))

    # -- FetchSnapshot --------------------------------------------------------------------------

    def on_fetch_snapshot(self, token: object, request: FetchSnapshotRequest) -> None:
        """Send a piece of a snapshot."""
        core, state = self._core, self._core.state
        try:
            refuse_wrong_cluster(core, request.cluster_id)
        except ApiError as error:
            core.respond(token, FetchSnapshotResponse(error_code=error.code))
            return
        asked = partition_of(request, core.identity)
        if asked is None:
            core.respond(token, FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        snapshot_id = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        code = self._leader_refusal(asked.current_leader_epoch)
        if code is ErrorCode.NONE and snapshot_id not in core.outline.snapshots:
            code = ErrorCode.SNAPSHOT_NOT_FOUND
        elif code is ErrorCode.NONE and asked.position < 0:
            code = ErrorCode.POSITION_OUT_OF_RANGE
        response = self._snapshot_response(code, snapshot_id, asked.position)
        if code is not ErrorCode.NONE or not isinstance(state, Leader):
            core.respond(token, response)
            return
        key = ReplicaKey(request.replica_id, asked.replica_directory_id)
        self.hear(state, self._key_of(key))
        bytes_max = min(max(request.max_bytes, 0), core.settings.snapshot_bytes_max)
        core.actions.append(SendSnapshot(token, response, snapshot_id, asked.position, bytes_max))

    def _snapshot_response(
        self, code: ErrorCode, snapshot_id: SnapshotId, position: int
    ) -> FetchSnapshotResponse:
        core = self._core
        piece = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
            index=PARTITION,
            error_code=code,
            snapshot_id=fetch_snapshot.SnapshotId(
                end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch
            ),
            position=position,
            unaligned_records=b"",
        )
        return fetch_snapshot_response(
            core.identity,
            piece,
            epoch=core.epoch,
            leader=core.leader,
            leader_id=core.election.leader_id,
        )
