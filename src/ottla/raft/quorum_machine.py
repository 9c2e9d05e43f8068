"""One replica of the metadata log as a state machine without I/O.

Events go in: a message, a response, a failed request, a synced log, the time. Each returns actions
for the driver, in order (`actions.py`). The states and the moves between them are the table in
`states.py`, and each move is asserted against it. After each event the machine polls its state:
everything due happens at once, and `wake_ms` is the time of the next poll.

The parts:

    elections      votes, PreVotes, BeginQuorumEpoch, EndQuorumEpoch
    leading        appends, answers to Fetch and FetchSnapshot, the high watermark, check-quorum
    following      Fetch and FetchSnapshot of a follower, cuts of its log
    describing     DescribeQuorum
    voter_changes  AddRaftVoter, RemoveRaftVoter, and joining by itself
    voter_updates  UpdateRaftVoter, and the upgrade of kraft.version
    core           the facts and the moves that the parts share

The driver must keep these rules:

- It executes the actions of one event before it reports another event.
- After a pause it reports the messages that have come before it reports the time: a deadline that
  has passed during the pause says nothing about the leader.
- At the start it syncs the log, and reads the control records up to its end.
"""

from collections.abc import Mapping
from typing import Final

from ottla.environment.randomness import Randomness
from ottla.raft.actions import Action, DeleteBefore, LeaderChanged, Node
from ottla.raft.core import QuorumCore, Sent, is_vote_for
from ottla.raft.describing import Describing
from ottla.raft.election_state import ElectionState
from ottla.raft.elections import Elections
from ottla.raft.following import Following
from ottla.raft.leading import Leading
from ottla.raft.log_outline import ControlHistory, LogOutline
from ottla.raft.settings import Identity, QuorumSettings
from ottla.raft.snapshots import SnapshotId, SnapshotStart
from ottla.raft.states import (
    CANDIDATE,
    Ballot,
    Follower,
    Leader,
    Nominee,
    Progress,
    Resigned,
    State,
    Unattached,
)
from ottla.raft.voter_changes import VoterChanges
from ottla.raft.voter_updates import VoterUpdates
from ottla.raft.voters import ReplicaKey
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest
from ottla.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.wire.messages.vote import VoteRequest, VoteResponse
from ottla.wire.records.batch import Buffer
from ottla.wire.schema import Message

POLLS_MAX: Final = 20
"""Moves that follow from a single event; more would be a loop."""


class QuorumMachine:
    """See above. `start` comes first, and `on_...` reports events."""

    def __init__(
        self,
        identity: Identity,
        settings: QuorumSettings,
        dice: Randomness,
        election: ElectionState,
        outline: LogOutline,
        history: ControlHistory,
    ) -> None:
        self.core = QuorumCore(identity, settings, dice, election, outline, history)
        self.elections = Elections(self.core)
        self.leading = Leading(self.core)
        self.following = Following(self.core)
        self.describing = Describing(self.core)
        self.voter_changes = VoterChanges(self.core, self.leading)
        self.voter_updates = VoterUpdates(self.core, self.leading, self.voter_changes)

    # -- questions ------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state of the present role."""
        return self.core.state

    @property
    def epoch(self) -> int:
        """The present epoch."""
        return self.core.epoch

    @property
    def leader_id(self) -> int | None:
        """The leader of the present epoch, if it is known."""
        return self.core.election.leader_id

    @property
    def is_in_touch(self) -> bool:
        """Whether this replica leads, or its leader has answered within the fetch timeout."""
        state = self.core.state
        if isinstance(state, Follower):
            return state.has_fetched and self.core.now_ms < state.deadline_ms
        return isinstance(state, Leader)

    @property
    def high_watermark(self) -> int:
        """The offset up to which this replica knows the log as committed."""
        return self.core.high_watermark

    @property
    def kraft_version(self) -> int:
        """The newest level of kraft.version in the log, committed or not."""
        return self.core.history.kraft_version

    @property
    def progress(self) -> Mapping[ReplicaKey, Progress]:
        """The last fetches of the other replicas from this leader; empty if it does not lead."""
        state = self.core.state
        return state.replicas if isinstance(state, Leader) else {}

    @property
    def wake_ms(self) -> int | None:
        """The time at which `on_time` is due."""
        return self.core.wake_ms

    # -- the start and the stop -----------------------------------------------------------------

    def start(self, now_ms: int) -> list[Action]:
        """Enter the state that the files of the last run demand."""
        core = self.core
        core.now_ms = now_ms
        election = core.election
        has_own_vote = is_vote_for(election, core.key)
        if core.outline.last_epoch > election.epoch:
            core.elect(ElectionState(core.outline.last_epoch))
            core.move(Unattached(core.first_deadline_ms()))
        elif election.leader_id == core.key.id and (election.voted is None or has_own_vote):
            self._start_after_leadership()
        elif election.leader_id is not None and election.leader_id != core.key.id:
            self._start_with_leader(election.leader_id)
        elif has_own_vote and core.may_stand:
            ballot = Ballot(is_pre_vote=False, granted={core.own_voter_key})
            core.move(Nominee(CANDIDATE, core.election_deadline_ms(), ballot))
        else:
            core.move(Unattached(core.first_deadline_ms()))
        core.actions.append(LeaderChanged(core.epoch, core.election.leader_id))
        return self._poll()

    def _start_after_leadership(self) -> None:
        core = self.core
        if core.is_only_voter:
            core.elect(ElectionState(core.epoch + 1))
            core.move(Unattached(core.now_ms))
        else:
            core.move(Resigned(core.first_deadline_ms(), ()))

    def _start_with_leader(self, leader_id: int) -> None:
        core = self.core
        voter = core.voters.voter(leader_id)
        node = None if voter is None else core.address_of(voter)
        if node is None:
            core.move(Unattached(core.first_deadline_ms()))
        else:
            core.become_follower(core.epoch, leader_id, node)

    def stop(self, now_ms: int) -> list[Action]:
        """Give a leadership up, if there is one: the voters learn it, and elect another leader."""
        self.core.now_ms = now_ms
        if isinstance(self.core.state, Leader):
            self.leading.resign()
        return self._poll()

    # -- events ---------------------------------------------------------------------------------

    def on_time(self, now_ms: int) -> list[Action]:
        """Do everything due at this time."""
        core = self.core
        core.now_ms = now_ms
        for correlation_id, sent in list(core.requests.items()):
            if core.now_ms >= sent.deadline_ms:
                self._fail(correlation_id)
        return self._poll()

    def on_request(self, token: object, request: Message, now_ms: int) -> list[Action]:
        """Answer a request of another replica or of an admin client, now or later."""
        self.core.now_ms = now_ms
        match request:
            case VoteRequest():
                self.elections.on_vote(token, request)
            case BeginQuorumEpochRequest():
                self.elections.on_begin(token, request)
            case EndQuorumEpochRequest():
                self.elections.on_end(token, request)
            case FetchRequest():
                self.leading.on_fetch(token, request)
            case FetchSnapshotRequest():
                self.leading.on_fetch_snapshot(token, request)
            case DescribeQuorumRequest():
                self.describing.on_describe(token, request)
            case _:
                self._change_voters(token, request)
        return self._poll()

    def _change_voters(self, token: object, request: Message) -> None:
        match request:
            case AddRaftVoterRequest():
                self.voter_changes.on_add(token, request)
            case RemoveRaftVoterRequest():
                self.voter_changes.on_remove(token, request)
            case UpdateRaftVoterRequest():
                self.voter_updates.on_update(token, request)
            case _:
                raise AssertionError(f"{type(request).__name__} is none of the quorum's requests")

    def on_response(self, correlation_id: int, response: Message, now_ms: int) -> list[Action]:
        """Handle the response to a request of this machine; late ones change nothing."""
        self.core.now_ms = now_ms
        sent = self.core.end_request(correlation_id, is_failed=False)
        if sent is not None:
            self._on_response(correlation_id, sent, response)
        return self._poll()

    def _on_response(self, correlation_id: int, sent: Sent, response: Message) -> None:
        match response:
            case VoteResponse():
                self.elections.on_vote_response(sent, response)
            case BeginQuorumEpochResponse():
                self.elections.on_begin_response(sent, response)
                self.voter_updates.on_call_end(correlation_id, response)
            case EndQuorumEpochResponse():
                self.elections.on_end_response(sent, response)
            case FetchResponse():
                self.following.on_fetch_response(sent, response)
            case FetchSnapshotResponse():
                self.following.on_snapshot_response(sent, response)
            case ApiVersionsResponse():
                self.voter_changes.on_versions(correlation_id, response)
            case AddRaftVoterResponse() | RemoveRaftVoterResponse() | UpdateRaftVoterResponse():
                self._on_own_response(sent, response)
            case _:
                raise AssertionError(f"{type(response).__name__} answers none of the requests")

    def _on_own_response(
        self,
        sent: Sent,
        response: AddRaftVoterResponse | RemoveRaftVoterResponse | UpdateRaftVoterResponse,
    ) -> None:
        if response.error_code:
            self.core.back_off(sent)
        elif isinstance(response, UpdateRaftVoterResponse):
            self.voter_updates.on_own_response(sent)

    def on_failure(self, correlation_id: int, now_ms: int) -> list[Action]:
        """Handle the end of a request without a response: it is sent again after a backoff."""
        self.core.now_ms = now_ms
        self._fail(correlation_id)
        return self._poll()

    def _fail(self, correlation_id: int) -> None:
        sent = self.core.end_request(correlation_id, is_failed=True)
        if sent is None:
            return
        if isinstance(sent.request, ApiVersionsRequest):
            self.voter_changes.on_versions(correlation_id, None)
        elif isinstance(sent.request, BeginQuorumEpochRequest):
            self.leading.on_begin_failure(sent)
            self.voter_updates.on_call_end(correlation_id)

    def on_unsupported(self, correlation_id: int, now_ms: int) -> list[Action]:
        """Handle UNSUPPORTED_VERSION: the node does not know this version of the request."""
        self.core.now_ms = now_ms
        sent = self.core.end_request(correlation_id, is_failed=True)
        if sent is not None and isinstance(sent.request, VoteRequest):
            self.elections.on_vote_unsupported(sent)
        self.voter_updates.on_call_end(correlation_id)
        return self._poll()

    def on_unreachable(self, node: Node, now_ms: int) -> list[Action]:
        """Handle a broken connection that the node refuses to open again.

        A follower without its leader does not wait for the fetch timeout. Only PreVotes follow,
        so a false alarm disturbs no leader: the voters that still fetch from it refuse them.
        """
        self.core.now_ms = now_ms
        state = self.core.state
        is_leader = isinstance(state, Follower) and state.leader[1:] == node[1:]
        if isinstance(state, Follower) and is_leader and not state.is_alarmed:
            state.is_alarmed = True
            # Voters learn this at nearly the same time. Without dice, they would split the votes.
            spread_ms = self.core.dice.below(self.core.settings.election_timeout_ms // 10 + 1)
            state.deadline_ms = min(state.deadline_ms, now_ms + spread_ms)
        return self._poll()

    def on_synced(self, end_offset: int, generation: int, now_ms: int) -> list[Action]:
        """Handle the end of a Sync; one from before a cut of the log says nothing any more."""
        core = self.core
        core.now_ms = now_ms
        if generation == core.generation:
            core.synced_end = max(core.synced_end, end_offset)
        return self._poll()

    def on_snapshot_installed(
        self, snapshot_id: SnapshotId, start: SnapshotStart, now_ms: int
    ) -> list[Action]:
        """Handle the end of InstallSnapshot."""
        self.core.now_ms = now_ms
        self.following.on_snapshot_installed(snapshot_id, start)
        return self._poll()

    # -- calls of the state machine above -------------------------------------------------------

    def propose(self, batch: Buffer, now_ms: int) -> tuple[int, list[Action]]:
        """Append a batch as leader; see `Leading.propose`. Returns its offset, and the actions."""
        self.core.now_ms = now_ms
        offset = self.leading.propose(batch)
        return offset, self._poll()

    def upgrade_kraft_version(
        self, version: int, *, is_validated_only: bool, now_ms: int
    ) -> tuple[int | None, list[Action]]:
        """Raise kraft.version as leader; see `VoterUpdates.upgrade`."""
        self.core.now_ms = now_ms
        offset = self.voter_updates.upgrade(version, is_validated_only=is_validated_only)
        return offset, self._poll()

    def snapshot_start(self, snapshot_id: SnapshotId, timestamp_ms: int) -> SnapshotStart:
        """Return the control records for a snapshot of this log."""
        history, end_offset = self.core.history, snapshot_id.end_offset
        version = history.version_before(end_offset)
        voters = history.voters_before(end_offset) if version > 0 else None
        return SnapshotStart(timestamp_ms, version, voters)

    def on_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Note a complete snapshot of committed records; it ends at the end of a batch."""
        core = self.core
        assert snapshot_id.end_offset <= core.high_watermark, "only committed records"
        known = core.outline.end_of_epoch(snapshot_id.epoch)
        assert known.epoch == snapshot_id.epoch, f"no epoch {snapshot_id.epoch} in the log"
        core.outline.add_snapshot(snapshot_id)

    def delete_before(self, snapshot_id: SnapshotId) -> list[Action]:
        """Delete the log before a snapshot, and older snapshots."""
        core = self.core
        core.outline.trim(snapshot_id)
        core.history.trim(snapshot_id.end_offset)
        core.actions.append(DeleteBefore(snapshot_id))
        return self._poll()

    # -- polls ----------------------------------------------------------------------------------

    def _poll(self) -> list[Action]:
        core = self.core
        core.wake_ms = None
        for correlation_id in core.requests:
            core.wake(core.requests[correlation_id].deadline_ms)
        if self.following.installing is None:
            for _ in range(POLLS_MAX):
                before = core.state
                self._poll_state(before)
                if core.state is before:
                    break
            else:
                raise AssertionError(f"no end of moves, now {core.state.role}")
        actions, core.actions = core.actions, []
        return actions

    def _poll_state(self, state: State) -> None:
        match state:
            case Unattached():
                self.elections.poll_unattached(state)
                if self.core.state is state:
                    self.following.search()
            case Nominee():
                self._poll_nominee(state)
            case Leader():
                self.leading.poll(state)
                if self.core.state is state:
                    self.voter_changes.poll_leader(state)
                if self.core.state is state:
                    self.voter_updates.poll_leader(state)
            case Resigned():
                self.elections.poll_resigned(state)
            case Follower():
                self.following.poll(state)
                if self.core.state is state:
                    self._poll_entry(state)

    def _poll_entry(self, state: Follower) -> None:
        """Have the leader correct this replica's entry, or join by itself."""
        core = self.core
        if not core.is_due(state.next_update_ms):
            return
        state.next_update_ms = core.now_ms + core.settings.fetch_timeout_ms
        core.wake(state.next_update_ms)
        request = self.voter_updates.request_of(state) or self.voter_changes.joining_request()
        if request is not None and state.has_fetched and core.can_send(state.leader, type(request)):
            core.send(state.leader, request)

    def _poll_nominee(self, state: Nominee) -> None:
        self.elections.poll_nominee(state)
        core = self.core
        if core.state is state and state.role is CANDIDATE and state.ballot.is_won(core.voters):
            self.leading.begin(state.ballot.granted)
