"""Changes of the voter set, which need kraft.version 1: one voter at a time, one change at a time.

A leader begins a change only when its high watermark is known and the last Voters record is
committed. So the majorities of two consecutive sets always have a common voter, and a record of
this epoch is committed before (the single-server change of Raft is unsafe without that).

The new set holds when its record is appended. A leader that removes itself leads on until that is
committed, does not count itself, and then resigns.
"""

from typing import Final

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import uuid_to_text
from ottla.raft.actions import Node
from ottla.raft.core import QuorumCore, refuse_wrong_cluster
from ottla.raft.leading import Leading
from ottla.raft.messages import node_of
from ottla.raft.states import ChangeKind, Leader, VoterChange
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.wire.messages import add_raft_voter, update_raft_voter
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.wire.messages.update_raft_voter import UpdateRaftVoterResponse
from ottla.wire.schema import Message

KRAFT_VERSION_FEATURE: Final = "kraft.version"
CAUGHT_UP_MS: Final = 3_600_000
"""A replica that becomes a voter has caught up once, and has fetched within this time."""
SOFTWARE_NAME: Final = "ottla"
SOFTWARE_VERSION: Final = "1"
"""A node refuses a request without a version."""


class VoterChanges:
    """The part of a quorum machine that adds and removes voters, or asks the leader to."""

    def __init__(self, core: QuorumCore, leading: Leading) -> None:
        self._core = core
        self._leading = leading
        leading.on_change_end = self._on_leadership_end

    # -- requests to the leader -----------------------------------------------------------------

    def on_add(self, token: object, request: AddRaftVoterRequest) -> None:
        """Ask the newcomer for its versions, then append the set with it."""
        core = self._core
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        endpoints = tuple(Endpoint(one.name, one.host, one.port) for one in request.listeners)
        try:
            state = self._dynamic_leader(request.cluster_id)
            node = self._newcomer(key, endpoints)
        except ApiError as error:
            core.respond(token, _answer(ChangeKind.ADD, error))
            return
        change = VoterChange(
            ChangeKind.ADD, token, Voter(key, endpoints), core.now_ms + max(request.timeout_ms, 0)
        )
        change.is_answered_early = not request.ack_when_committed
        versions = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        change.correlation_id = core.send(node, versions)
        state.change = change

    def _newcomer(self, key: ReplicaKey, endpoints: tuple[Endpoint, ...]) -> Node:
        core = self._core
        if (known := core.voters.voter(key.id)) is not None:
            directory_id = uuid_to_text(known.key.directory_id)
            raise ApiError(
                ErrorCode.DUPLICATE_VOTER,
                f"controller {key.id} is a voter already, with the directory {directory_id}",
            )
        node = node_of(key.id, endpoints, core.identity.endpoints[0].name)
        if node is None or key.id < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"voter {key} has no listener")
        if not core.can_send(node, ApiVersionsRequest):
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"voter {key} was just asked")
        return node

    def on_versions(self, correlation_id: int, response: ApiVersionsResponse | None) -> None:
        """Go on with an addition; None if the newcomer did not answer."""
        core, state = self._core, self._core.state
        if not isinstance(state, Leader) or state.change is None:
            return
        change = state.change
        if change.correlation_id != correlation_id:
            return
        try:
            change.voter = _with_versions(change.voter, response)
            self._check_newcomer(state, change.voter)
        except ApiError as error:
            self._end(state, error)
            return
        self._append(state, core.voters.with_voter(change.voter))
        if change.is_answered_early:
            # A newcomer that asks for itself fetches only after the answer (KIP-1186).
            self._respond(change, None)

    def _check_newcomer(self, state: Leader, voter: Voter) -> None:
        core = self._core
        if not voter.supports(core.history.kraft_version):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"voter {voter.key} supports kraft.version {voter.min_version} to"
                f" {voter.max_version}, the cluster has {core.history.kraft_version}",
            )
        progress = state.replicas.get(voter.key)
        is_ready = (
            progress is not None
            and progress.caught_up_at_ms is not None
            and progress.fetched_at_ms is not None
            and progress.fetched_at_ms >= core.now_ms - CAUGHT_UP_MS
        )
        if not is_ready:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"voter {voter.key} has not caught up with the leader"
            )

    def on_remove(self, token: object, request: RemoveRaftVoterRequest) -> None:
        """Append the set without a voter."""
        core = self._core
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        try:
            state = self._dynamic_leader(request.cluster_id)
            voter = self._exact_voter(key)
        except ApiError as error:
            core.respond(token, _answer(ChangeKind.REMOVE, error))
            return
        deadline_ms = core.now_ms + core.settings.request_timeout_ms
        state.change = VoterChange(ChangeKind.REMOVE, token, voter, deadline_ms)
        self._append(state, core.voters.without(key))

    def _exact_voter(self, key: ReplicaKey) -> Voter:
        core = self._core
        voter = core.voters.voter(key.id)
        if voter is None or voter.key != key:
            raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"{key} is no voter")
        if len(core.voters) == 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{key} is the last voter")
        return voter

    def update(self, state: Leader, voter: Voter, token: object | None) -> None:
        """Append the set with another entry of a voter."""
        core = self._core
        deadline_ms = core.now_ms + core.settings.request_timeout_ms
        state.change = VoterChange(ChangeKind.UPDATE, token, voter, deadline_ms)
        self._append(state, core.voters.updated(voter))

    def ready_leader(self, cluster_id: str | None) -> Leader:
        """Return the leader's state if no change is pending; ApiError says why not."""
        core, state = self._core, self._core.state
        refuse_wrong_cluster(core, cluster_id)
        if not isinstance(state, Leader):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this controller does not lead")
        if not may_change_voters(state, core.history.voters_offset):
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is pending")
        return state

    def _dynamic_leader(self, cluster_id: str | None) -> Leader:
        if isinstance(self._core.state, Leader) and self._core.history.kraft_version < 1:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "kraft.version 0 has fixed voters")
        return self.ready_leader(cluster_id)

    def _append(self, state: Leader, voters: VoterSet) -> None:
        core = self._core
        assert voters.is_one_change_from(core.voters), (voters, core.voters)
        assert state.change is not None, "a set is appended for a change"
        state.change.offset = self._leading.append_control([voters.record()])

    # -- polls ----------------------------------------------------------------------------------

    def poll_leader(self, state: Leader) -> None:
        """End a change that is committed or has taken too long; resign after a removal."""
        core = self._core
        change, known = state.change, state.high_watermark
        if change is not None:
            if change.offset is not None and known is not None and known > change.offset:
                self._end(state, None)
            elif core.is_due(change.deadline_ms):
                self._end(state, ApiError(ErrorCode.REQUEST_TIMED_OUT, "the change is not done"))
        is_committed = known is not None and known > core.history.voters_offset
        if not core.is_voter and is_committed:
            self._leading.resign()

    def _end(self, state: Leader, error: ApiError | None) -> None:
        change, state.change = state.change, None
        assert change is not None, "no change to end"
        self._respond(change, error)

    def _respond(self, change: VoterChange, error: ApiError | None) -> None:
        token, change.token = change.token, None
        if change.kind is ChangeKind.UPDATE:
            self.respond_to_update(token, error)
        elif token is not None:
            self._core.respond(token, _answer(change.kind, error))

    def _on_leadership_end(self, state: Leader) -> None:
        lost = ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader has changed; the change may happen"
        )
        if state.change is not None:
            self._end(state, lost)
        for call in state.calls.values():
            self.respond_to_update(call.token, lost)
        state.calls.clear()

    def respond_to_update(self, token: object | None, error: ApiError | None) -> None:
        """Answer a voter; the leader's own update has no token."""
        if token is None:
            return
        core = self._core
        leader, leader_id = core.leader, core.election.leader_id
        response = UpdateRaftVoterResponse(
            error_code=ErrorCode.NONE if error is None else error.code,
            current_leader=update_raft_voter.CurrentLeader(
                leader_id=-1 if leader_id is None else leader_id,
                leader_epoch=core.epoch,
                host="" if leader is None else leader.host,
                port=0 if leader is None else leader.port,
            ),
        )
        core.respond(token, response)

    # -- a follower that joins by itself --------------------------------------------------------

    def joining_request(self) -> AddRaftVoterRequest | RemoveRaftVoterRequest | None:
        """Return the request of an observer that joins by itself, None if it does not join.

        A voter with its id and another directory is removed first: it is this node, with a former
        disk.
        """
        core = self._core
        known = core.voters.voter(core.key.id)
        has_joined = known is not None and known.key == core.key
        may_join = core.settings.has_auto_join and core.identity.is_controller
        if has_joined or not may_join or not core.voters or core.history.kraft_version < 1:
            return None
        if known is not None:
            return RemoveRaftVoterRequest(
                cluster_id=core.identity.cluster_id,
                voter_id=known.key.id,
                voter_directory_id=known.key.directory_id,
            )
        return AddRaftVoterRequest(
            cluster_id=core.identity.cluster_id,
            timeout_ms=core.settings.request_timeout_ms,
            voter_id=core.key.id,
            voter_directory_id=core.key.directory_id,
            listeners=[
                add_raft_voter.Listener(name=one.name, host=one.host, port=one.port)
                for one in core.identity.endpoints
            ],
            ack_when_committed=False,
        )


def may_change_voters(state: Leader, voters_offset: int) -> bool:
    """Whether no change is pending, and the newest voter set is committed in this epoch."""
    known = state.high_watermark
    return state.change is None and known is not None and voters_offset < known


def _with_versions(voter: Voter, response: ApiVersionsResponse | None) -> Voter:
    if response is None or response.error_code != ErrorCode.NONE:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"voter {voter.key} does not answer")
    for feature in response.supported_features:
        if feature.name == KRAFT_VERSION_FEATURE:
            return Voter(voter.key, voter.endpoints, feature.min_version, feature.max_version)
    return Voter(voter.key, voter.endpoints, 0, 0)


def _answer(kind: ChangeKind, error: ApiError | None) -> Message:
    cls = AddRaftVoterResponse if kind is ChangeKind.ADD else RemoveRaftVoterResponse
    if error is None:
        return cls(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None)
    return cls(throttle_time_ms=0, error_code=error.code, error_message=error.detail)
