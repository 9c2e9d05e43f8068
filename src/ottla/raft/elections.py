"""Elections: votes, PreVotes, and the announcements of leaders that begin and end.

A vote is granted to a log that is at least as complete as the voter's, in an epoch without a leader
and without another vote. A PreVote (KIP-996) is granted without a promise, unless this replica
leads or fetches from a leader. Requests of replicas outside of the voter set are treated alike,
because this replica's voter set may be old.
"""

from typing import Any, Final

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.raft.actions import Node
from ottla.raft.core import QuorumCore, Sent, is_vote_for, refuse_wrong_cluster
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import (
    begin_response,
    end_request,
    end_response,
    leader_of,
    partition_of,
    vote_request,
    vote_response,
)
from ottla.raft.states import (
    CANDIDATE,
    PROSPECTIVE,
    Follower,
    Leader,
    Nominee,
    Resigned,
    State,
    Unattached,
)
from ottla.raft.voters import NO_DIRECTORY, ReplicaKey
from ottla.wire.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from ottla.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.wire.messages.vote import VoteRequest, VoteResponse

_NONE: Final = ErrorCode.NONE
EPOCHS_AHEAD_MAX: Final = 1 << 20
"""How far ahead of this replica the epoch of a request may be; each election takes one epoch. An
epoch has 31 bits, and is kept on disk: after the largest epoch there is no next election.
"""


def grants_vote(election: ElectionState, nominee: ReplicaKey) -> bool:
    """Whether an epoch's vote is still free for this nominee, or is its already."""
    is_free = election.voted is None or is_vote_for(election, nominee)
    return election.leader_id is None and is_free


def grants_pre_vote(state: State) -> bool:
    """Whether a replica in this state would take part in an election."""
    if isinstance(state, Leader):
        return False
    return not (isinstance(state, Follower) and state.has_fetched and not state.is_alarmed)


def successor_delay_ms(position: int | None, count: int, backoff_max_ms: int) -> int:
    """Return the time that a preferred candidate waits after EndQuorumEpoch.

    The first begins at once. The second waits, and every later candidate waits twice as long.
    """
    if position is None:
        return backoff_max_ms
    return 0 if position == 0 else backoff_max_ms >> (count - position)


class Elections:
    """The part of a quorum machine that elects."""

    def __init__(self, core: QuorumCore) -> None:
        self._core = core

    # -- polls ----------------------------------------------------------------------------------

    def poll_unattached(self, state: Unattached) -> None:
        """Begin an election at the timeout, if this replica is a voter."""
        core = self._core
        if core.may_stand and core.is_due(state.deadline_ms):
            core.become_prospective()

    def poll_nominee(self, state: Nominee) -> None:
        """Ask the voters that have not answered; win, or give up."""
        core = self._core
        if not core.may_stand:
            core.become_unattached(core.epoch)
        elif state.ballot.is_won(core.voters):
            if state.role is PROSPECTIVE:
                core.become_candidate()
        elif core.is_due(state.deadline_ms) or self._is_lost(state):
            self._give_up(state)
        else:
            self._ask_voters(state)

    def _is_lost(self, state: Nominee) -> bool:
        """Whether a PreVote failed; a candidate waits for the rest of its timeout."""
        return state.role is PROSPECTIVE and state.ballot.is_lost(self._core.voters)

    def _give_up(self, state: Nominee) -> None:
        core = self._core
        if state.role is CANDIDATE:
            core.become_prospective()
        elif state.leader is not None and core.election.leader_id is not None:
            core.become_follower(core.epoch, core.election.leader_id, state.leader)
        else:
            # A fresh timeout is drawn, so that losers do not try again in step.
            core.move(Unattached(core.election_deadline_ms()))

    def _ask_voters(self, state: Nominee) -> None:
        core = self._core
        for voter in core.other_voters():
            node = core.address_of(voter)
            answered = state.ballot.granted | state.ballot.rejected
            if node is None or voter.key in answered or not core.can_send(node, VoteRequest):
                continue
            request = vote_request(
                core.identity,
                voter.key,
                epoch=core.epoch,
                log_end=core.outline.end,
                is_pre_vote=state.ballot.is_pre_vote,
            )
            core.send(node, request)

    def poll_resigned(self, state: Resigned) -> None:
        """Announce the resignation until each voter knows it; then begin the next epoch."""
        core = self._core
        if core.is_due(state.deadline_ms):
            core.become_unattached(core.epoch + 1)
            return
        for voter in core.other_voters():
            node = core.address_of(voter)
            if node is None or voter.key in state.acknowledged:
                continue
            if core.can_send(node, EndQuorumEpochRequest):
                core.send(node, end_request(core.identity, core.epoch, state.successors))

    # -- Vote -----------------------------------------------------------------------------------

    def on_vote(self, token: object, request: VoteRequest) -> None:
        """Answer a request for a vote or a PreVote."""
        core = self._core
        try:
            refuse_wrong_cluster(core, request.cluster_id)
        except ApiError as error:
            core.respond(token, VoteResponse(error_code=error.code))
            return
        partition = partition_of(request, core.identity)
        if partition is None:
            core.respond(token, VoteResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        code, is_granted = self._vote(request, partition)
        response = vote_response(
            core.identity,
            code=code,
            epoch=core.epoch,
            leader=core.leader,
            leader_id=core.election.leader_id,
            is_granted=is_granted,
        )
        core.respond(token, response)

    def _vote(self, request: VoteRequest, partition: Any) -> tuple[ErrorCode, bool]:
        core = self._core
        epoch, last_epoch = partition.replica_epoch, partition.last_offset_epoch
        is_illegal = last_epoch > epoch if partition.pre_vote else last_epoch >= epoch
        is_illegal = is_illegal or epoch > core.epoch + EPOCHS_AHEAD_MAX
        if is_illegal or min(last_epoch, partition.last_offset, partition.replica_id) < 0:
            return ErrorCode.INVALID_REQUEST, False
        if epoch < core.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, False
        if epoch > core.epoch:
            core.become_unattached(epoch)
        if not self._is_addressed(request.voter_id, partition.voter_directory_id):
            return ErrorCode.INVALID_VOTER_KEY, False
        if (last_epoch, partition.last_offset) < core.outline.end:
            return _NONE, False
        nominee = ReplicaKey(partition.replica_id, partition.replica_directory_id)
        if partition.pre_vote:
            return _NONE, grants_pre_vote(core.state)
        return _NONE, self._grant(nominee)

    def _grant(self, nominee: ReplicaKey) -> bool:
        core = self._core
        state = core.state
        may_vote = isinstance(state, Unattached) or state.role is PROSPECTIVE
        if not may_vote or is_vote_for(core.election, nominee):
            return is_vote_for(core.election, nominee) and core.election.leader_id is None
        if not grants_vote(core.election, nominee):
            return False
        core.elect(ElectionState(core.epoch, None, nominee))
        if isinstance(state, Unattached | Nominee):
            # The election that this vote is for gets the time of a whole timeout.
            state.deadline_ms = core.election_deadline_ms()
        return True

    def _is_addressed(self, voter_id: int, directory_id: bytes) -> bool:
        key = self._core.key
        if voter_id >= 0 and voter_id != key.id:
            return False
        return directory_id in {NO_DIRECTORY, key.directory_id}

    def on_vote_response(self, sent: Sent, response: VoteResponse) -> None:
        """Count a vote of the election that is going on."""
        core = self._core
        partition = partition_of(response, core.identity)
        if response.error_code or partition is None:
            core.back_off(sent)
            return
        core.observe(*leader_of(response, partition))
        state, request = core.state, sent.request
        if sent.epoch != core.epoch or not isinstance(state, Nominee):
            return
        assert isinstance(request, VoteRequest), request
        asked = request.topics[0].partitions[0]
        if asked.pre_vote != state.ballot.is_pre_vote:
            return
        voter = ReplicaKey(request.voter_id, asked.voter_directory_id)
        if partition.error_code == _NONE and partition.vote_granted:
            state.ballot.granted.add(voter)
        elif partition.error_code == _NONE:
            state.ballot.rejected.add(voter)
        else:
            core.back_off(sent)

    def on_vote_unsupported(self, sent: Sent) -> None:
        """Skip the PreVotes: a voter does not know them."""
        core = self._core
        if core.state.role is PROSPECTIVE and sent.epoch == core.epoch and core.may_stand:
            core.become_candidate()

    # -- BeginQuorumEpoch -----------------------------------------------------------------------

    def on_begin(self, token: object, request: BeginQuorumEpochRequest) -> None:
        """Follow the new leader."""
        core = self._core
        partition = partition_of(request, core.identity)
        code = self._refusal(request.cluster_id, partition)
        if code is not _NONE or partition is None:
            core.respond(token, BeginQuorumEpochResponse(error_code=code))
            return
        epoch, leader_id = partition.leader_epoch, partition.leader_id
        code = self._check_leader(epoch, leader_id)
        if code is _NONE:
            self._observe_leader(request, epoch, leader_id)
            # Even with a wrong key: this replica's voter set, or the leader's, may be old.
            if not self._is_addressed(request.voter_id, partition.voter_directory_id):
                code = ErrorCode.INVALID_VOTER_KEY
        response = begin_response(
            core.identity,
            code=code,
            epoch=core.epoch,
            leader=core.leader,
            leader_id=core.election.leader_id,
        )
        core.respond(token, response)

    def on_begin_response(self, sent: Sent, response: BeginQuorumEpochResponse) -> None:
        """Learn of a higher epoch."""
        partition = partition_of(response, self._core.identity)
        if response.error_code or partition is None:
            self._core.back_off(sent)
        else:
            self._core.observe(*leader_of(response, partition))

    def _refusal(self, cluster_id: str | None, partition: Any) -> ErrorCode:
        try:
            refuse_wrong_cluster(self._core, cluster_id)
        except ApiError as error:
            return error.code
        return _NONE if partition is not None else ErrorCode.INVALID_REQUEST

    def _observe_leader(
        self,
        request: BeginQuorumEpochRequest | EndQuorumEpochRequest,
        epoch: int,
        leader_id: int,
    ) -> None:
        endpoints = request.leader_endpoints[:1]
        nodes = [Node(leader_id, one.host, one.port) for one in endpoints]
        self._core.observe(epoch, leader_id, nodes[0] if nodes else None)

    def _check_leader(self, epoch: int, leader_id: int) -> ErrorCode:
        election = self._core.election
        # A leader calls itself before it announces another address.
        is_own = leader_id == self._core.key.id
        leads = isinstance(self._core.state, Leader) and epoch == election.epoch
        if leader_id < 0 or (is_own and not leads) or epoch > election.epoch + EPOCHS_AHEAD_MAX:
            return ErrorCode.INVALID_REQUEST
        if epoch < election.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        is_other = epoch == election.epoch and election.leader_id not in {None, leader_id}
        return ErrorCode.INVALID_REQUEST if is_other else _NONE

    # -- EndQuorumEpoch -------------------------------------------------------------------------

    def on_end(self, token: object, request: EndQuorumEpochRequest) -> None:
        """Begin an election soon: the leader has resigned."""
        core = self._core
        partition = partition_of(request, core.identity)
        code = self._refusal(request.cluster_id, partition)
        if code is not _NONE or partition is None:
            core.respond(token, EndQuorumEpochResponse(error_code=code))
            return
        epoch, leader_id = partition.leader_epoch, partition.leader_id
        code = self._check_leader(epoch, leader_id)
        if code is _NONE:
            self._observe_leader(request, epoch, leader_id)
            self._expect_election(partition)
        response = end_response(
            core.identity,
            code=code,
            epoch=core.epoch,
            leader=core.leader,
            leader_id=core.election.leader_id,
        )
        core.respond(token, response)

    def _expect_election(self, partition: Any) -> None:
        core = self._core
        state = core.state
        if not isinstance(state, Follower):
            return
        keys = [
            ReplicaKey(one.candidate_id, one.candidate_directory_id)
            for one in partition.preferred_candidates
        ]
        position, count = None, len(keys)
        if core.key in keys:
            position = keys.index(core.key)
        elif not keys and core.key.id in partition.preferred_successors:
            count = len(partition.preferred_successors)
            position = partition.preferred_successors.index(core.key.id)
        delay_ms = successor_delay_ms(position, count, core.settings.election_backoff_max_ms)
        # The leader is gone: this replica's PreVote must not be held back by its last fetch.
        state.has_fetched = False
        state.deadline_ms = min(state.deadline_ms, core.now_ms + delay_ms)

    def on_end_response(self, sent: Sent, response: EndQuorumEpochResponse) -> None:
        """Note that a voter knows of the resignation."""
        core = self._core
        partition = partition_of(response, core.identity)
        if response.error_code or partition is None:
            core.back_off(sent)
            return
        core.observe(*leader_of(response, partition))
        state = core.state
        if isinstance(state, Resigned) and sent.epoch == core.epoch:
            for voter in core.other_voters():
                if voter.key.id == sent.node.node_id:
                    state.acknowledged.add(voter.key)
