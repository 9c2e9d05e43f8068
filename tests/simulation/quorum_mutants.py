"""Bugs of a quorum, from Kafka's history and from Raft's: the checks must find each.

Every mutant is named after its behaviour; `test_quorum_mutants.py` says how soon it is found.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from ottla.raft import elections, leading, voter_changes
from ottla.raft.actions import Node, PersistElection
from ottla.raft.core import QuorumCore
from ottla.raft.election_state import ElectionState
from ottla.raft.elections import Elections
from ottla.raft.following import Following
from ottla.raft.leading import Leading
from ottla.raft.log_outline import MATCHES, ControlHistory, LogOutline
from ottla.raft.quorum_machine import QuorumMachine
from ottla.raft.states import Follower, Leader, Nominee, State
from ottla.raft.voter_updates import VoterUpdates
from ottla.raft.voters import ReplicaKey, Voter, VoterSet

Mutant = Callable[[], AbstractContextManager[None]]


@contextmanager
def patched(owner: Any, name: str, wrong: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, wrong, raising=False)
        yield


# -- control records -------------------------------------------------------------------------------


def reading_on_from_the_old_end() -> AbstractContextManager[None]:
    """After a cut, control records are read on from the old end: Kafka 4.3.1."""
    truncate = ControlHistory.truncate

    def forgetting_nothing(self: ControlHistory, end_offset: int) -> None:
        read_end = self.read_end
        truncate(self, end_offset)
        self.read_end = read_end

    return patched(ControlHistory, "truncate", forgetting_nothing)


def keeping_voters_that_were_cut() -> AbstractContextManager[None]:
    """A cut takes no voter set back."""

    def keeping(self: ControlHistory, end_offset: int) -> None:
        self.read_end = min(self.read_end, end_offset)

    return patched(ControlHistory, "truncate", keeping)


# -- the high watermark ----------------------------------------------------------------------------


def showing_the_begin_of_the_epoch() -> AbstractContextManager[None]:
    """The first high watermark of an epoch is its first offset: KAFKA-12619."""

    def too_early(state: Leader, offset: int) -> bool:
        known = state.high_watermark
        return offset >= state.epoch_start_offset and (known is None or offset > known)

    return patched(leading, "may_commit", too_early)


def counting_a_leader_that_has_left() -> AbstractContextManager[None]:
    """A leader that removed itself counts its own log: KAFKA-16530."""
    update = Leading.update_high_watermark

    def counting(self: Leading, state: Leader) -> None:
        core = self._core
        if core.is_voter:
            update(self, state)
            return
        ends = {key: progress.end_offset for key, progress in state.replicas.items()}
        ends[core.key] = core.synced_end
        everyone = core.voters.with_voter(Voter(core.key))
        fewest = core.voters.majority
        found = sorted((ends.get(key, -1) for key in everyone.keys), reverse=True)
        if leading.may_commit(state, found[fewest - 1]):
            state.high_watermark = found[fewest - 1]
            core.commit(found[fewest - 1])

    return patched(Leading, "update_high_watermark", counting)


def committing_before_the_sync() -> AbstractContextManager[None]:
    """A leader counts its own log before it is synced."""
    update = Leading.update_high_watermark

    def early(self: Leading, state: Leader) -> None:
        core, synced_end = self._core, self._core.synced_end
        core.synced_end = core.outline.end_offset
        try:
            update(self, state)
        finally:
            core.synced_end = synced_end

    return patched(Leading, "update_high_watermark", early)


def counting_with_the_committed_voters() -> AbstractContextManager[None]:
    """A new voter set is used only once it is committed."""
    committed = leading.committed_offset
    before: dict[int, VoterSet] = {}
    update = Leading.update_high_watermark

    def counting(self: Leading, state: Leader) -> None:
        history = self._core.history
        before[0] = history.voters_before(self._core.high_watermark)
        update(self, state)

    @contextmanager
    def both() -> Iterator[None]:
        with (
            patched(Leading, "update_high_watermark", counting),
            patched(leading, "committed_offset", lambda voters, ends: committed(before[0], ends)),
        ):
            yield

    return both()


# -- syncs -----------------------------------------------------------------------------------------


def fetching_before_the_sync() -> AbstractContextManager[None]:
    """A follower fetches on, which acknowledges, before its log is synced."""
    is_synced = Following._is_synced

    def at_once(self: Following) -> bool:
        is_synced(self)
        return True

    return patched(Following, "_is_synced", at_once)


@contextmanager
def observers_that_do_not_sync() -> Iterator[None]:
    """Controllers sync only while they are voters: KAFKA-17332."""
    is_synced, sync = Following._is_synced, QuorumCore.sync

    def sync_as_voter(self: QuorumCore) -> None:
        if self.is_voter:
            sync(self)

    def at_once(self: Following) -> bool:
        return is_synced(self) if self._core.is_voter else True

    with patched(QuorumCore, "sync", sync_as_voter), patched(Following, "_is_synced", at_once):
        yield


# -- elections -------------------------------------------------------------------------------------


def forgetting_the_vote() -> AbstractContextManager[None]:
    """A lost PreVote makes a replica forget its vote of the epoch: KIP-996."""
    give_up = Elections._give_up

    def forgetting(self: Elections, state: Nominee) -> None:
        core = self._core
        if state.ballot.is_pre_vote and core.election.voted is not None:
            core.election = ElectionState(core.epoch, core.election.leader_id)
            core.actions.append(PersistElection(core.election))
        give_up(self, state)

    return patched(Elections, "_give_up", forgetting)


def voting_twice() -> AbstractContextManager[None]:
    """The vote of an epoch is given to each nominee."""

    @contextmanager
    def both() -> Iterator[None]:
        def replacing(self: QuorumCore, election: ElectionState) -> None:
            if election != self.election:
                self.election = election
                self.actions.append(PersistElection(election))

        with (
            patched(elections, "grants_vote", lambda election, _: election.leader_id is None),
            patched(QuorumCore, "elect", replacing),
        ):
            yield

    return both()


def voting_although_a_leader_is_known() -> AbstractContextManager[None]:
    """A vote is granted in an epoch with a known leader: KIP-996."""
    return patched(
        elections,
        "grants_vote",
        lambda election, nominee: election.voted is None or election.voted == nominee,
    )


def not_persisting_votes() -> AbstractContextManager[None]:
    """A vote is kept in memory alone: PySyncObj #84."""
    elect = QuorumCore.elect

    def in_memory(self: QuorumCore, election: ElectionState) -> None:
        count = len(self.actions)
        is_vote = election.epoch == self.epoch and election.leader_id is None
        elect(self, election)
        if is_vote:
            del self.actions[count:]

    return patched(QuorumCore, "elect", in_memory)


def voting_for_shorter_logs() -> AbstractContextManager[None]:
    """The nominee's log is not compared."""
    return patched(LogOutline, "end", property(lambda self: (0, 0)))


def leading_with_shorter_logs() -> AbstractContextManager[None]:
    """A voter compares end offsets, and not epochs."""
    vote = Elections._vote

    def by_offset(self: Elections, request: Any, partition: Any) -> Any:
        last_epoch = partition.last_offset_epoch
        if partition.last_offset >= self._core.outline.end_offset:
            partition.last_offset_epoch = max(
                last_epoch, min(self._core.outline.last_epoch, partition.replica_epoch - 1)
            )
        try:
            return vote(self, request, partition)
        finally:
            partition.last_offset_epoch = last_epoch

    return patched(Elections, "_vote", by_offset)


def granting_pre_votes_to_all() -> AbstractContextManager[None]:
    """Followers grant PreVotes although they hear from the leader: KAFKA-17641."""
    return patched(elections, "grants_pre_vote", lambda state: not isinstance(state, Leader))


def never_granting_pre_votes_as_follower() -> AbstractContextManager[None]:
    """A follower refuses PreVotes also before its first fetch: KAFKA-17641."""

    def refusing(state: State) -> bool:
        return not isinstance(state, Leader | Follower)

    return patched(elections, "grants_pre_vote", refusing)


def losing_in_step() -> AbstractContextManager[None]:
    """Losing candidates wait for the same time: KAFKA-18345."""

    def fixed(self: QuorumCore) -> int:
        return self.now_ms + self.settings.election_timeout_ms

    @contextmanager
    def both() -> Iterator[None]:
        with (
            patched(QuorumCore, "election_deadline_ms", fixed),
            patched(QuorumCore, "first_deadline_ms", fixed),
        ):
            yield

    return both()


def waiting_for_begin_for_ever() -> AbstractContextManager[None]:
    """A replica without a leader waits for BeginQuorumEpoch: KAFKA-17030."""
    return patched(Following, "search", lambda self: None)


def waiting_for_the_other_voters() -> AbstractContextManager[None]:
    """A leader with an uncommitted removal of itself never stands for election again."""
    return patched(QuorumCore, "may_stand", QuorumCore.is_voter)


# -- changes of the voters -------------------------------------------------------------------------


def changing_twice_at_a_time() -> AbstractContextManager[None]:
    """A change begins before the previous change is committed."""
    return patched(
        voter_changes, "may_change_voters", lambda state, _: state.high_watermark is not None
    )


def changing_before_the_first_commit() -> AbstractContextManager[None]:
    """A change begins before this epoch has committed a record: Ongaro's bug."""

    def early(state: Leader, voters_offset: int) -> bool:
        known = state.high_watermark
        return state.change is None and (known is None or voters_offset < known)

    return patched(voter_changes, "may_change_voters", early)


def knowing_voters_by_id_alone() -> AbstractContextManager[None]:
    """A voter that has lost its disk counts as the voter that it was."""

    def by_id(self: VoterSet, key: ReplicaKey) -> Voter | None:
        return self.voter(key.id)

    return patched(VoterSet, "match", by_id)


# -- logs ------------------------------------------------------------------------------------------


def not_comparing_logs() -> AbstractContextManager[None]:
    """A leader does not compare the epoch of the follower's last batch."""
    compare = LogOutline.compare

    def by_offset(self: LogOutline, offset: int, epoch: int) -> Any:
        found = compare(self, offset, epoch)
        is_within = self.start_offset <= offset <= self.end_offset
        return MATCHES if found.diverging is not None and is_within else found

    return patched(LogOutline, "compare", by_offset)


def forgetting_that_it_led() -> AbstractContextManager[None]:
    """A leader that restarts stands for election in the epoch that it led."""
    start = QuorumMachine.start

    def standing(self: QuorumMachine, now_ms: int) -> Any:
        election = self.core.election
        if election.leader_id == self.core.key.id and election.voted == self.core.key:
            self.core.election = ElectionState(election.epoch, None, election.voted)
            self.core.actions.append(PersistElection(self.core.election))
        return start(self, now_ms)

    return patched(QuorumMachine, "start", standing)


def telling_high_watermarks_with_records() -> AbstractContextManager[None]:
    """A higher high watermark alone is no reason to answer a Fetch: KAFKA-13959."""
    answer = Leading._answer

    def late(self: Leading, state: Leader, parked: Any) -> None:
        parked.request.topics[0].partitions[0].high_watermark = 2**63 - 1
        answer(self, state, parked)

    return patched(Leading, "_answer", late)


def hearing_a_leader_that_has_left() -> AbstractContextManager[None]:
    """Check-quorum counts a leader that is no voter any more: KAFKA-16531."""

    def counting(self: Leading, state: Leader, key: ReplicaKey) -> None:
        core = self._core
        if core.voters.has(key):
            state.heard.add(key)
            if len(state.heard) + 1 >= core.voters.majority:
                state.check_deadline_ms = core.now_ms + core.settings.check_quorum_ms
                state.heard.clear()

    return patched(Leading, "hear", counting)


def appending_records_of_later_epochs() -> AbstractContextManager[None]:
    """A follower appends a batch of a later epoch than its own: KAFKA-18723."""

    def in_order(self: Following, batch: Any) -> bool:
        return bool(batch.base_offset == self._core.outline.end_offset)

    return patched(Following, "_is_next", in_order)


def letting_diverging_fetches_wait() -> AbstractContextManager[None]:
    """A Fetch that diverges is answered at its timeout: KAFKA-15100."""
    answer = Leading._answer

    def late(self: Leading, state: Leader, parked: Any) -> None:
        asked = parked.request.topics[0].partitions[0]
        found = self._core.outline.compare(asked.fetch_offset, asked.last_fetched_epoch)
        if found.diverging is not None and not self._core.is_due(parked.deadline_ms):
            state.parked[parked.key] = parked
        else:
            answer(self, state, parked)

    return patched(Leading, "_answer", late)


def waiting_for_the_whole_timeout() -> AbstractContextManager[None]:
    """A replica that has just started waits as long as any other replica."""
    return patched(QuorumCore, "first_deadline_ms", QuorumCore.election_deadline_ms)


# -- high watermarks and snapshots -----------------------------------------------------------------


def letting_the_high_watermark_fall() -> AbstractContextManager[None]:
    """A new voter with a shorter log takes the high watermark back."""
    return patched(leading, "may_commit", lambda state, offset: offset > state.epoch_start_offset)


def committing_all_at_the_start() -> AbstractContextManager[None]:
    """A replica that starts applies its whole log: KAFKA-14857."""
    start = QuorumMachine.start

    def committing(self: QuorumMachine, now_ms: int) -> Any:
        self.core.commit(self.core.outline.end_offset)
        return start(self, now_ms)

    return patched(QuorumMachine, "start", committing)


def reading_voters_behind_a_snapshot() -> AbstractContextManager[None]:
    """A snapshot has the voters of the log's end: KAFKA-14618."""

    def newest(self: ControlHistory, offset: int) -> VoterSet:
        return self.voters

    return patched(ControlHistory, "voters_before", newest)


# -- addresses and kraft.version -------------------------------------------------------------------


def believing_addresses_at_once() -> AbstractContextManager[None]:
    """The leader does not call a voter's new address: KAFKA-20661."""

    def believing(self: VoterUpdates, state: Leader, voter: Voter, token: object | None) -> None:
        self._check(voter)
        self._store(state, voter, token)

    return patched(VoterUpdates, "_begin", believing)


def believing_own_address() -> AbstractContextManager[None]:
    """The leader calls the other voters, and not itself."""
    begin = VoterUpdates._begin

    def believing(self: VoterUpdates, state: Leader, voter: Voter, token: object | None) -> None:
        if token is None:
            self._store(state, voter, token)
        else:
            begin(self, state, voter, token)

    return patched(VoterUpdates, "_begin", believing)


def upgrading_without_all_voters() -> AbstractContextManager[None]:
    """kraft.version is raised before each voter has told its directory id."""
    upgrade = VoterUpdates.upgrade

    def early(self: VoterUpdates, version: int, *, is_validated_only: bool) -> int | None:
        state = self._core.state
        if isinstance(state, Leader):
            for voter in self._core.voters.voters:
                state.announced.setdefault(voter.key.id, voter)
        return upgrade(self, version, is_validated_only=is_validated_only)

    return patched(VoterUpdates, "upgrade", early)


def telling_entries_once() -> AbstractContextManager[None]:
    """With kraft.version 0, a voter tells its entry to its first leader alone."""
    request_of = VoterUpdates.request_of
    told = set()

    def once(self: VoterUpdates, state: Follower) -> Any:
        if state.has_told_entry:
            told.add(self._core)
        return None if self._core in told else request_of(self, state)

    return patched(VoterUpdates, "request_of", once)


def knowing_bootstrap_servers_alone() -> AbstractContextManager[None]:
    """A replica without a leader never asks the voters in its log."""

    def configured(self: QuorumCore) -> Node | None:
        servers = [Node(None, *one) for one in self.identity.bootstrap_servers]
        return servers[0] if servers else None

    return patched(QuorumCore, "next_bootstrap_server", configured)


MUTANTS: dict[str, Mutant] = {
    mutant.__name__: mutant
    for mutant in (
        reading_on_from_the_old_end,
        keeping_voters_that_were_cut,
        showing_the_begin_of_the_epoch,
        counting_a_leader_that_has_left,
        committing_before_the_sync,
        counting_with_the_committed_voters,
        fetching_before_the_sync,
        observers_that_do_not_sync,
        forgetting_the_vote,
        voting_twice,
        voting_although_a_leader_is_known,
        not_persisting_votes,
        voting_for_shorter_logs,
        leading_with_shorter_logs,
        granting_pre_votes_to_all,
        never_granting_pre_votes_as_follower,
        losing_in_step,
        waiting_for_begin_for_ever,
        waiting_for_the_other_voters,
        changing_twice_at_a_time,
        changing_before_the_first_commit,
        knowing_voters_by_id_alone,
        not_comparing_logs,
        forgetting_that_it_led,
        telling_high_watermarks_with_records,
        hearing_a_leader_that_has_left,
        appending_records_of_later_epochs,
        letting_diverging_fetches_wait,
        waiting_for_the_whole_timeout,
        letting_the_high_watermark_fall,
        committing_all_at_the_start,
        reading_voters_behind_a_snapshot,
        believing_addresses_at_once,
        believing_own_address,
        upgrading_without_all_voters,
        telling_entries_once,
        knowing_bootstrap_servers_alone,
    )
}
