"""A change of one partition: ISR, eligible leaders, leader.

Four kinds of replicas, from the best to the worst:

    in sync (ISR)                  has all committed records, and counts for committing
    eligible to lead (ELR)         has all committed records, but is away: kept while the ISR is
                                   smaller than min.insync.replicas (KIP-966)
    last known                     was one of the above, and may have lost its tail since
    the others                     lack committed records

A leader comes from the first kind, or from the second if the first is empty. The others lead only
by an unclean election, which loses data and needs an explicit request.

Below metadata.version 23 there is no second and third kind: the last replicas in sync stay in the
ISR while they are away, as in Kafka.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ottla.metadata.image import PartitionImage
from ottla.metadata.records import NO_LEADER, UNASSIGNED_DIRECTORY, PartitionChangeRecord
from ottla.model.identifiers import BrokerId

RECOVERED: Final = 0
RECOVERING: Final = 1


class Election(Enum):
    """The kinds of elections."""

    ONLINE = "online"
    """Keep the leader if possible, else elect one."""
    PREFERRED = "preferred"
    """The first replica leads if it can."""
    UNCLEAN = "unclean"
    """Elect any online replica, even if it lacks committed records."""


@dataclass(slots=True)
class PartitionChange:
    """A partition as it is, and as it shall be; `record` is the way from one to the other."""

    topic_id: bytes
    number: int
    partition: PartitionImage
    can_lead: Callable[[BrokerId], bool]
    """Whether a broker is live, and may lead."""
    min_isr: int
    election: Election = Election.ONLINE
    has_lost_tail: frozenset[int] = frozenset()
    """Brokers that have lost their unsynced tail. The only replica stays eligible."""
    directory_of: Callable[[BrokerId], bytes] = field(default=lambda _: UNASSIGNED_DIRECTORY)
    keeps_elr: bool = True
    """Whether the cluster's level has eligible leader replicas."""
    replicas: tuple[BrokerId, ...] = field(init=False)
    isr: tuple[BrokerId, ...] = field(init=False)
    adding: tuple[BrokerId, ...] = field(init=False)
    removing: tuple[BrokerId, ...] = field(init=False)
    recovery_state: int = field(init=False)

    def __post_init__(self) -> None:
        self.replicas = self.partition.replicas
        self.isr = self.partition.isr
        self.adding = self.partition.adding_replicas
        self.removing = self.partition.removing_replicas
        self.recovery_state = self.partition.leader_recovery_state

    def record(self) -> PartitionChangeRecord | None:
        """Return the record of the change; None if nothing changes."""
        self._complete_reassignment()
        if not self.isr and not self.keeps_elr:
            self.isr = self.partition.isr
        eligible, last_known = self._out_of_sync_candidates()
        leader = self._elect(eligible)
        if leader != NO_LEADER and leader not in self.isr:
            is_clean = leader in eligible
            self.isr = (leader,)
            eligible = _without(eligible, [leader]) if is_clean else ()
            last_known = last_known if is_clean else ()
            self.recovery_state = self.recovery_state if is_clean else RECOVERING
        # A leader out of the ISR could lack committed records.
        assert leader == NO_LEADER or leader in self.isr, (self.number, leader, self.isr)
        assert {*self.isr, *eligible} <= set(self.replicas), (self.isr, eligible, self.replicas)
        assert set(self.isr).isdisjoint(eligible), (self.isr, eligible)
        return self._record(leader, eligible, last_known)

    def _complete_reassignment(self) -> None:
        """If all adding replicas are in sync, drop the removing replicas."""
        if not self.adding and not self.removing:
            return
        staying = _without(self.replicas, self.removing)
        in_sync = _without(self.isr, self.removing)
        if in_sync and set(self.adding) <= set(in_sync):
            self.replicas, self.isr = staying, in_sync
            self.adding = self.removing = ()

    def _out_of_sync_candidates(self) -> tuple[tuple[BrokerId, ...], tuple[BrokerId, ...]]:
        """Return the eligible replicas out of sync, and the replicas that lost eligibility."""
        partition = self.partition
        if not self.keeps_elr or len(self.isr) >= min(self.min_isr, len(self.replicas)):
            return (), ()
        candidates = [*partition.eligible_leader_replicas, *partition.isr]
        complete = _ordered(candidates, self.replicas)
        distrusted = self.has_lost_tail if len(self.replicas) > 1 else ()
        eligible = _without(complete, [*self.isr, *distrusted])
        known = _ordered([*partition.last_known_elr, *candidates], self.replicas)
        return eligible, _without(known, [*self.isr, *eligible])

    def _elect(self, eligible: tuple[BrokerId, ...]) -> BrokerId:
        trusted = [one for one in (self.isr or eligible) if self.can_lead(one)]
        if self.election is Election.PREFERRED and self.replicas[0] in trusted:
            return self.replicas[0]
        if self.partition.leader in trusted:
            return self.partition.leader
        candidates: Iterable[BrokerId] = trusted
        if not trusted and self.election is Election.UNCLEAN:
            candidates = filter(self.can_lead, self.replicas)
        return next(iter(_ordered(candidates, self.replicas)), NO_LEADER)

    def _record(
        self, leader: BrokerId, eligible: tuple[BrokerId, ...], last_known: tuple[BrokerId, ...]
    ) -> PartitionChangeRecord | None:
        partition = self.partition
        record = PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.number)
        unchanged = PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.number)
        # A removed replica must learn of it: only a new leader epoch reaches every replica.
        if leader != partition.leader or not set(partition.replicas) <= set(self.replicas):
            record.leader = leader
        if self.recovery_state != partition.leader_recovery_state:
            record.leader_recovery_state = self.recovery_state
        record.isr = _if_changed(self.isr, partition.isr)
        record.replicas = _if_changed(self.replicas, partition.replicas)
        record.adding_replicas = _if_changed(self.adding, partition.adding_replicas)
        record.removing_replicas = _if_changed(self.removing, partition.removing_replicas)
        record.eligible_leader_replicas = _if_changed(eligible, partition.eligible_leader_replicas)
        record.last_known_elr = _if_changed(last_known, partition.last_known_elr)
        if record.replicas is not None and partition.directories:
            record.directories = self._directories()
        return None if record == unchanged else record

    def _directories(self) -> list[bytes]:
        known = dict(zip(self.partition.replicas, self.partition.directories, strict=True))
        return [known.get(one) or self.directory_of(one) for one in self.replicas]


def _ordered(some: Iterable[BrokerId], order: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    """Return the items that are in the order, in that order."""
    wanted = set(some)
    return tuple(one for one in order if one in wanted)


def _without(some: tuple[BrokerId, ...], gone: Iterable[BrokerId]) -> tuple[BrokerId, ...]:
    unwanted = set(gone)
    return tuple(one for one in some if one not in unwanted)


def _if_changed(
    wanted: tuple[BrokerId, ...], present: tuple[BrokerId, ...]
) -> list[BrokerId] | None:
    return None if wanted == present else list(wanted)
