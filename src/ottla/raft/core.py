"""The facts and moves that all parts of a quorum machine share."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.environment.randomness import Randomness
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.raft.actions import (
    Action,
    Append,
    Committed,
    LeaderChanged,
    Node,
    PersistElection,
    SendRequest,
    SendResponse,
    Sync,
    Truncate,
)
from ottla.raft.election_state import ElectionState
from ottla.raft.log_outline import ControlHistory, LogOutline
from ottla.raft.messages import node_of
from ottla.raft.settings import Identity, QuorumSettings
from ottla.raft.states import (
    CANDIDATE,
    MOVES,
    PROSPECTIVE,
    STARTS,
    Ballot,
    Follower,
    Leader,
    Nominee,
    Resigned,
    State,
    Unattached,
)
from ottla.raft.voters import NO_DIRECTORY, ReplicaKey, Voter, VoterSet
from ottla.wire.records.batch import RecordBatch
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from collections.abc import Callable

REQUESTS_MAX: Final = 1000
"""Requests in flight. Each API has one per node, so only a defect gets near this."""
FIRST_SHARE: Final = 10
"""The share of the election timeout that the first election after a start waits."""


class LogDivergedError(Exception):
    """The leader's log contradicts records that this replica knows as committed.

    The replica must stop: to go on would lose committed records.
    """


class Sent:
    """A request in flight."""

    __slots__ = ("deadline_ms", "epoch", "node", "request")

    def __init__(self, node: Node, request: Message, epoch: int, deadline_ms: int) -> None:
        self.node = node
        self.request = request
        self.epoch = epoch
        self.deadline_ms = deadline_ms


class QuorumCore:
    """One replica: its log's shape, its election state, its role, and the actions of a step."""

    def __init__(
        self,
        identity: Identity,
        settings: QuorumSettings,
        dice: Randomness,
        election: ElectionState,
        outline: LogOutline,
        history: ControlHistory,
    ) -> None:
        self.identity = identity
        self.settings = settings
        self.dice = dice
        self.election = election
        self.outline = outline
        self.history = history
        self.high_watermark = outline.start_offset
        """The highest high watermark that this replica knows."""
        self.synced_end = outline.end_offset
        """The log is durable up to here. The driver syncs the log when it opens it."""
        self.generation = 0
        """Counts the cuts of the log: a Sync from before a cut says nothing about the new tail."""
        self.now_ms = 0
        self.has_stood = False
        """Whether this replica has stood for election since its start."""
        self.wall_offset_ms = 0
        """The wall clock minus the monotonic clock; the driver keeps it up to date."""
        self.wake_ms: int | None = None
        """The earliest deadline that the last poll has found."""
        self.actions: list[Action] = []
        self.requests: dict[int, Sent] = {}
        self.on_leadership_end: Callable[[Leader], None] = lambda _: None
        self._busy: dict[tuple[Node, type[Message]], int] = {}
        self._backoff_ms: dict[tuple[Node, type[Message]], int] = {}
        self._next_correlation_id = 1
        self._next_bootstrap = 0
        self._sync_requested = outline.end_offset
        self._state: State | None = None

    # -- questions ------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state of the present role."""
        assert self._state is not None, "the machine has not started"
        return self._state

    @property
    def key(self) -> ReplicaKey:
        """The name of this replica."""
        return self.identity.key

    @property
    def epoch(self) -> int:
        """The present epoch."""
        return self.election.epoch

    @property
    def voters(self) -> VoterSet:
        """The newest voter set in the log, committed or not."""
        return self.history.voters

    @property
    def is_voter(self) -> bool:
        """Whether this replica is in the newest voter set."""
        return self.voters.has(self.key)

    @property
    def is_only_voter(self) -> bool:
        """Whether this replica is the whole voter set."""
        return self.is_voter and len(self.voters) == 1

    @property
    def may_stand(self) -> bool:
        """Whether this replica stands for election: as a voter, or until its removal is committed.

        The removal may be in this log alone. If this replica waited, the other voters could lack
        its vote, and it could not grant one because its log is the most complete. It does not
        count itself in such an election. Kafka's replicas do wait.
        """
        if self.is_voter:
            return True
        is_uncommitted = self.history.voters_offset >= self.high_watermark
        return is_uncommitted and self.history.voters_before(self.high_watermark).has(self.key)

    @property
    def leader(self) -> Node | None:
        """The address of the leader, if it is known."""
        state = self.state
        if isinstance(state, Leader | Resigned):
            return node_of(self.key.id, self.identity.endpoints, self.identity.endpoints[0].name)
        return state.leader if isinstance(state, Follower | Nominee) else None

    @property
    def own_voter_key(self) -> ReplicaKey:
        """The key of this replica as the voter set has it."""
        voter = self.voters.match(self.key)
        return self.key if voter is None else voter.key

    def address_of(self, voter: Voter) -> Node | None:
        """Return the address of a voter on the listener of the quorum."""
        return node_of(voter.key.id, voter.endpoints, self.identity.endpoints[0].name)

    def other_voters(self) -> list[Voter]:
        """Return all voters except this replica."""
        return [voter for voter in self.voters.voters if voter.key.id != self.key.id]

    # -- time -----------------------------------------------------------------------------------

    def wake(self, at_ms: int) -> None:
        """Ask for `on_time` at this time."""
        self.wake_ms = at_ms if self.wake_ms is None else min(self.wake_ms, at_ms)

    def is_due(self, at_ms: int) -> bool:
        """Whether a time has come; if not, ask for `on_time` then."""
        if self.now_ms >= at_ms:
            return True
        self.wake(at_ms)
        return False

    def election_deadline_ms(self) -> int:
        """Draw the end of an election timeout T: between T and 2 T from now."""
        timeout_ms = self.settings.election_timeout_ms
        return self.now_ms + timeout_ms + self.dice.below(timeout_ms)

    def first_deadline_ms(self) -> int:
        """Draw the time until an election; the first election comes after a tenth of that.

        A single voter waits for no other replica. A replica that has just started need not give
        a leader time to appear, because its PreVotes find a leader that others follow. Kafka's
        replicas wait for a whole timeout.
        """
        if self.has_stood:
            return self.election_deadline_ms()
        if self.is_only_voter:
            return self.now_ms
        timeout_ms = max(self.settings.election_timeout_ms // FIRST_SHARE, 1)
        return self.now_ms + timeout_ms + self.dice.below(timeout_ms)

    # -- moves ----------------------------------------------------------------------------------

    def elect(self, election: ElectionState) -> None:
        """Change the election state, and have it persisted before anything depends on it."""
        old = self.election
        if election.voted is not None and self.history.kraft_version == 0:
            # The file of kraft.version 0 has no directory id.
            election = replace(election, voted=ReplicaKey(election.voted.id))
        if election == old:
            return
        assert election.epoch >= old.epoch, f"epoch {election.epoch} after {old.epoch}"
        if election.epoch == old.epoch:
            is_same = old.voted is None or is_vote_for(election, old.voted)
            assert is_same, f"a second vote in epoch {old.epoch}"
            assert old.leader_id in {None, election.leader_id}, f"two leaders in {old.epoch}"
        self.election = election
        self.actions.append(PersistElection(election))
        if (old.epoch, old.leader_id) != (election.epoch, election.leader_id):
            self.actions.append(LeaderChanged(election.epoch, election.leader_id))

    def move(self, state: State) -> None:
        """Enter a state; the election state has changed before."""
        old = self._state
        allowed = STARTS if old is None else MOVES[old.role]
        assert state.role in allowed, f"no move from {old and old.role} to {state.role}"
        self._state = state
        self.has_stood |= isinstance(state, Nominee)
        if isinstance(old, Leader):
            self.on_leadership_end(old)

    def become_unattached(self, epoch: int, leader_id: int | None = None) -> None:
        """Follow no leader, in this epoch or a higher one; the vote of an epoch is kept."""
        deadline_ms = self._remaining_deadline_ms()
        if epoch > self.epoch:
            self.elect(ElectionState(epoch, leader_id))
        elif leader_id is not None:
            self.elect(ElectionState(epoch, leader_id, self.election.voted))
        self.move(Unattached(deadline_ms))

    def _remaining_deadline_ms(self) -> int:
        """Keep a running timeout: else messages of higher epochs could put off elections."""
        state = self._state
        if isinstance(state, Unattached | Follower):
            return max(state.deadline_ms, self.now_ms)
        if isinstance(state, Nominee):
            return max(state.deadline_ms, self.now_ms + 1)
        return self.first_deadline_ms()

    def become_follower(self, epoch: int, leader_id: int, leader: Node) -> None:
        """Follow the leader of this epoch or a higher one."""
        assert leader_id != self.key.id, "a replica does not follow itself"
        voted = self.election.voted if epoch == self.epoch else None
        self.elect(ElectionState(epoch, leader_id, voted))
        fetch_timeout_ms = self.settings.fetch_timeout_ms
        deadline_ms = self.now_ms + fetch_timeout_ms
        self.move(Follower(leader_id, leader, deadline_ms, deadline_ms))

    def become_prospective(self) -> None:
        """Ask for PreVotes: epoch, vote and known leader stay."""
        leader = self.leader
        ballot = Ballot(is_pre_vote=True, granted={self.own_voter_key})
        self.move(Nominee(PROSPECTIVE, self.election_deadline_ms(), ballot, leader))

    def become_candidate(self) -> None:
        """Vote for this replica in the next epoch."""
        self.elect(ElectionState(self.epoch + 1, None, self.key))
        ballot = Ballot(is_pre_vote=False, granted={self.own_voter_key})
        self.move(Nominee(CANDIDATE, self.election_deadline_ms(), ballot))

    def become_resigned(self, successors: tuple[ReplicaKey, ...]) -> None:
        """Stop to lead, and vote for no replica in this epoch."""
        self.move(Resigned(self.election_deadline_ms(), successors))

    def observe(self, epoch: int, leader_id: int | None, leader: Node | None) -> None:
        """Take over an epoch, and its leader, from a message; older ones change nothing."""
        if epoch < self.epoch or (epoch == self.epoch and leader_id is None):
            return
        if leader_id == self.key.id:
            # An earlier life of this replica may have led that epoch, and forgotten it.
            leader_id = leader = None
        if leader is None and leader_id is not None:
            voter = self.voters.voter(leader_id)
            leader = None if voter is None else self.address_of(voter)
        if epoch > self.epoch:
            self._follow(epoch, leader_id, leader)
        elif self.election.leader_id not in {None, leader_id}:
            return  # A peer's word about another leader of this epoch is not believed.
        elif isinstance(self.state, Unattached | Nominee) and leader_id is not None:
            self._follow(epoch, leader_id, leader)

    def _follow(self, epoch: int, leader_id: int | None, leader: Node | None) -> None:
        state = self.state
        if leader_id is not None and leader is not None:
            if epoch == self.epoch and isinstance(state, Nominee) and state.leader is not None:
                return  # It is looking for a successor of this very leader.
            self.become_follower(epoch, leader_id, leader)
        elif epoch > self.epoch or isinstance(state, Unattached):
            self.become_unattached(epoch, leader_id)

    # -- log ------------------------------------------------------------------------------------

    def append(self, batch: RecordBatch) -> None:
        """Append a batch; its control records hold from now on."""
        # Control records of a peer may be malformed: nothing has changed then.
        self.history.read(batch)
        self.outline.append(batch)
        self.actions.append(Append(bytes(batch.raw), batch.base_offset))

    def truncate(self, end_offset: int) -> None:
        """Cut the log, and take its control records back."""
        if end_offset < self.high_watermark:
            raise LogDivergedError(
                f"the leader's log ends at offset {end_offset}, but this log is committed up to"
                f" {self.high_watermark}"
            )
        self.outline.truncate(end_offset)
        self.history.truncate(end_offset)
        self.generation += 1
        self.synced_end = min(self.synced_end, end_offset)
        self._sync_requested = self.synced_end
        self.actions.append(Truncate(end_offset))

    def sync(self) -> None:
        """Ask for a sync of everything that was appended."""
        if self._sync_requested < self.outline.end_offset:
            self._sync_requested = self.outline.end_offset
            self.actions.append(Sync(self.outline.end_offset, self.generation))

    def begin_log_at_snapshot(self) -> None:
        """Reset the marks of the log: a snapshot has replaced it."""
        self.generation += 1
        self.synced_end = self._sync_requested = self.outline.end_offset

    def commit(self, high_watermark: int) -> None:
        """Raise the high watermark; it never falls."""
        if high_watermark > self.high_watermark:
            assert high_watermark <= self.outline.end_offset, high_watermark
            self.high_watermark = high_watermark
            self.actions.append(Committed(high_watermark))

    # -- requests -------------------------------------------------------------------------------

    def can_send(self, node: Node, kind: type[Message]) -> bool:
        """Whether no such request to the node is in flight, and its backoff has passed."""
        if (node, kind) in self._busy:
            return False
        return self.is_due(self._backoff_ms.get((node, kind), self.now_ms))

    def send(self, node: Node, request: Message) -> int:
        """Send a request; `can_send` was asked before."""
        assert len(self.requests) < REQUESTS_MAX, "too many requests in flight"
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        deadline_ms = self.now_ms + self.settings.request_timeout_ms
        self.requests[correlation_id] = Sent(node, request, self.epoch, deadline_ms)
        self._busy[node, type(request)] = correlation_id
        self.actions.append(SendRequest(correlation_id, node, request))
        return correlation_id

    def end_request(self, correlation_id: int, *, is_failed: bool) -> Sent | None:
        """Return the request that has ended, None if it had ended before."""
        sent = self.requests.pop(correlation_id, None)
        if sent is None:
            return None
        place = sent.node, type(sent.request)
        if self._busy.get(place) == correlation_id:
            del self._busy[place]
        self._backoff_ms.pop(place, None)
        if is_failed:
            self._backoff_ms[place] = self.now_ms + self.settings.retry_backoff_ms
        return sent

    def back_off(self, sent: Sent) -> None:
        """Let the next such request to this node wait."""
        place = sent.node, type(sent.request)
        self._backoff_ms[place] = self.now_ms + self.settings.retry_backoff_ms

    def respond(self, token: object, response: Message) -> None:
        """Send a response."""
        self.actions.append(SendResponse(token, response))

    def next_bootstrap_server(self) -> Node | None:
        """Return the bootstrap servers, and the voters, in turn; None if there is none."""
        nodes = [Node(None, *address) for address in self.identity.bootstrap_servers]
        nodes += [one for one in map(self.address_of, self.other_voters()) if one is not None]
        own = {(one.host, one.port) for one in self.identity.endpoints}
        by_address = {node[1:]: node for node in nodes if node[1:] not in own}
        servers = list(by_address.values())
        if not servers:
            return None
        self._next_bootstrap = (self._next_bootstrap + 1) % len(servers)
        return servers[self._next_bootstrap]


def is_vote_for(election: ElectionState, nominee: ReplicaKey) -> bool:
    """Whether the vote is for this nominee; a vote of kraft.version 0 has no directory id."""
    voted = election.voted
    if voted is None or voted.id != nominee.id:
        return False
    directories = {voted.directory_id, nominee.directory_id}
    return len(directories) == 1 or NO_DIRECTORY in directories


def refuse_wrong_cluster(core: QuorumCore, cluster_id: str | None) -> None:
    """Raise INCONSISTENT_CLUSTER_ID for a request of another cluster."""
    if cluster_id is not None and cluster_id != core.identity.cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the request is for cluster {cluster_id}, this is {core.identity.cluster_id}",
        )
