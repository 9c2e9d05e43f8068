"""Updates of a voter's entry, which has its addresses and its range of kraft.version.

A voter asks the leader for an update when its entry differs from its settings. The leader calls a
new address first, by BeginQuorumEpoch, which names the voter and its directory: a wrong address
that is committed can make elections impossible (KAFKA-20661). It calls its own new address, too.
Kafka's leader sends ApiVersions, which any node answers, and writes its own address unchecked.

With kraft.version 0 the voters come from the settings of each node, and have no directory ids.
Then each voter tells each new leader its entry, and the leader keeps the entries in memory. Once it
has all of them, it can raise kraft.version to 1: one batch with the level and the voter set.
"""

from typing import Any, Final

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.raft.core import QuorumCore, Sent
from ottla.raft.leading import Leading
from ottla.raft.messages import begin_request, partition_of
from ottla.raft.states import Follower, Leader, VoterCall
from ottla.raft.voter_changes import VoterChanges
from ottla.raft.voters import NO_DIRECTORY, Endpoint, ReplicaKey, Voter, VoterSet
from ottla.wire.messages import update_raft_voter
from ottla.wire.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from ottla.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from ottla.wire.records.quorum_control import KRaftVersionRecord

KRAFT_VERSION_MAX: Final = 1


class VoterUpdates:
    """The part of a quorum machine that updates the entries of voters."""

    def __init__(self, core: QuorumCore, leading: Leading, changes: VoterChanges) -> None:
        self._core = core
        self._leading = leading
        self._changes = changes

    # -- the leader -----------------------------------------------------------------------------

    def on_update(self, token: object, request: UpdateRaftVoterRequest) -> None:
        """Check an update, and call the voter's new address."""
        feature = request.k_raft_version_feature
        voter = Voter(
            ReplicaKey(request.voter_id, request.voter_directory_id),
            tuple(Endpoint(one.name, one.host, one.port) for one in request.listeners),
            feature.min_supported_version,
            feature.max_supported_version,
        )
        try:
            state = self._changes.ready_leader(request.cluster_id)
            self._check_epoch(request.current_leader_epoch)
            self._leading.hear(state, voter.key)
            self._begin(state, voter, token)
        except ApiError as error:
            self._changes.respond_to_update(token, error)

    def _check_epoch(self, theirs: int) -> None:
        ours = self._core.epoch
        if theirs != ours:
            is_older = theirs < ours
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH
            )

    def _begin(self, state: Leader, voter: Voter, token: object | None) -> None:
        """Call a new address; take over an entry with the known address at once."""
        core = self._core
        self._check(voter)
        known = core.voters.voter(voter.key.id)
        node = core.address_of(voter)
        assert known is not None, "checked"
        assert node is not None, "checked"
        if core.address_of(known) == node and known.key == voter.key:
            self._store(state, voter, token)
            return
        is_called = any(call.voter.key.id == voter.key.id for call in state.calls.values())
        if is_called or not core.can_send(node, BeginQuorumEpochRequest):
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"voter {voter.key} is being called")
        request = begin_request(core.identity, voter.key, core.epoch)
        state.calls[core.send(node, request)] = VoterCall(voter, token)

    def _check(self, voter: Voter) -> None:
        core = self._core
        known, version = core.voters.voter(voter.key.id), core.history.kraft_version
        is_known = known is not None and (version == 0 or known.key == voter.key)
        if not is_known or voter.key.directory_id == NO_DIRECTORY:
            raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"{voter.key} is no voter")
        if not voter.endpoints or not voter.supports(version):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"voter {voter.key} has no address, or not kraft.version {version}",
            )

    def on_call_end(
        self, correlation_id: int, response: BeginQuorumEpochResponse | None = None
    ) -> None:
        """Take over the entry if the voter has answered at its new address."""
        core, state = self._core, self._core.state
        call = state.calls.pop(correlation_id, None) if isinstance(state, Leader) else None
        if call is None:
            return
        partition: Any = None if response is None else partition_of(response, core.identity)
        if partition is None or partition.error_code != ErrorCode.NONE:
            detail = f"voter {call.voter.key} does not answer at its new address"
            error = ApiError(ErrorCode.REQUEST_TIMED_OUT, detail)
            self._changes.respond_to_update(call.token, error)
            return
        try:
            # The voters may have changed during the call.
            state = self._changes.ready_leader(None)
            self._check(call.voter)
        except ApiError as error:
            self._changes.respond_to_update(call.token, error)
            return
        self._store(state, call.voter, call.token)

    def _store(self, state: Leader, voter: Voter, token: object | None) -> None:
        if self._core.history.kraft_version > 0:
            self._changes.update(state, voter, token)
        else:
            state.announced[voter.key.id] = voter
            self._changes.respond_to_update(token, None)

    def poll_leader(self, state: Leader) -> None:
        """Update the leader's own entry."""
        core, own = self._core, self._core.identity.voter
        known = core.voters.match(core.key)
        is_told = known == own or state.announced.get(core.key.id) == own
        if known is None or is_told or not core.is_due(state.next_update_ms):
            return
        state.next_update_ms = core.now_ms + core.settings.fetch_timeout_ms
        core.wake(state.next_update_ms)
        try:
            self._begin(self._changes.ready_leader(None), own, None)
        except ApiError:
            return  # Another change is pending, for example. The next period comes.

    def upgrade(self, version: int, *, is_validated_only: bool) -> int | None:
        """Raise kraft.version; return the offset of the new level, None if nothing changes.

        NOT_LEADER_OR_FOLLOWER if this replica does not lead, REQUEST_TIMED_OUT if the voters are
        changing, INVALID_UPDATE_VERSION if the level is unknown, lower than the present level, or
        out of a voter's range, or if a voter has not told its entry yet.
        """
        core, current = self._core, self._core.history.kraft_version
        state = self._changes.ready_leader(None)
        if version == current:
            return None
        if not current < version <= KRAFT_VERSION_MAX:
            raise _invalid(f"kraft.version cannot change from {current} to {version}")
        silent = [key.id for key in core.voters.keys if key.id not in state.announced]
        if silent:
            raise _invalid(f"voters {silent} have not told the leader their directory ids yet")
        voters = VoterSet(tuple(state.announced[key.id] for key in core.voters.keys))
        if unable := [one.key.id for one in voters.voters if not one.supports(version)]:
            raise _invalid(f"voters {unable} do not support kraft.version {version}")
        if is_validated_only:
            return None
        level = KRaftVersionRecord(version=0, k_raft_version=version)
        return self._leading.append_control([level, voters.record()])

    # -- a follower's own entry -----------------------------------------------------------------

    def request_of(self, state: Follower) -> UpdateRaftVoterRequest | None:
        """Return the request of a voter with a wrong or missing entry; else None."""
        core = self._core
        known = core.voters.match(core.key)
        if core.history.kraft_version == 0:
            is_told = state.has_told_entry
        else:
            is_told = known == core.identity.voter
        return None if known is None or is_told else self._own_update()

    def _own_update(self) -> UpdateRaftVoterRequest:
        identity = self._core.identity
        return UpdateRaftVoterRequest(
            cluster_id=identity.cluster_id,
            current_leader_epoch=self._core.epoch,
            voter_id=identity.key.id,
            voter_directory_id=identity.key.directory_id,
            listeners=[
                update_raft_voter.Listener(name=one.name, host=one.host, port=one.port)
                for one in identity.endpoints
            ],
            k_raft_version_feature=update_raft_voter.KRaftVersionFeature(
                min_supported_version=identity.min_version,
                max_supported_version=identity.max_version,
            ),
        )

    def on_own_response(self, sent: Sent) -> None:
        """Note that the leader has this replica's entry."""
        state = self._core.state
        if isinstance(state, Follower) and sent.epoch == self._core.epoch:
            state.has_told_entry = True


def _invalid(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, detail)
