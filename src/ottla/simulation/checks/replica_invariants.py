"""The invariants of replication, checked over all replicas after every step.

R1   one leader per epoch, one content per offset in an epoch; epochs never decrease in a log
R2   committed records are the same on every replica
R3   electable replicas have the committed records, and nothing else there (R5, R10: also leaders)
R4   electable replicas have every record that was ever committed (R8: so have new ISR members)
R6   the leader counts every member of the controller's ISR
R7   in an epoch the high watermark never falls, and rises only while enough replicas are in sync;
     replicas count only after a fetch in that epoch
R9   leader, ISR and eligible replicas are consistent; an unregistered broker leads nothing
R11  no committed record is truncated
R12  a follower has no records that no leader of that epoch has written
R15  a follower fetches from its leader, a leader does not, a broker without a disk only briefly
R16  acknowledged records are committed
D2   a log has no holes, even if its disk has lost data

Ghosts are facts that no broker knows: the greatest high watermark that any leader ever had, and the
records below it. Everything is read from the brokers' own objects, and from their disks. R13 and
R14 are checked in client histories (J1, J4).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, NoReturn

from ottla.broker.startup.assembly import Broker
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.metadata.records import NO_LEADER
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.replication.in_sync import InSync
from ottla.replication.partition import Partition
from ottla.simulation.checks.metadata_invariants import Truth
from ottla.simulation.checks.replica_model import Batch, ReplicaModel
from ottla.simulation.world.process import Process
from ottla.simulation.world.world import World

NOT_REGISTERED: Final = -1
Key = tuple[bytes, int]
"""A partition: two topics may have one name, one after the other."""
Watcher = Callable[[str, Partition, ReplicaModel, int], None]
"""Also called for a replica after a change, with its machine and the committed offset."""


class InvariantError(AssertionError):
    """A violated invariant."""


class Ghost:
    """The truth about a partition, known to no broker."""

    def __init__(self) -> None:
        self.high_watermark = 0
        self.committed: dict[int, Batch] = {}
        self.written: dict[tuple[int, int], Batch] = {}
        """By epoch and offset."""
        self.leader_by_epoch: dict[int, str] = {}


class Led(NamedTuple):
    """The last that was seen of a leader."""

    epoch: int
    high_watermark: int


class ReplicaInvariants:
    """Raises InvariantError at the first step after which something is wrong."""

    def __init__(self, world: World, truth: Truth, id_by_machine: Mapping[str, int]) -> None:
        self._brokers: dict[Process, Broker] = {}
        self._world = world
        self._truth = truth
        self._name_by_id = {broker_id: name for name, broker_id in id_by_machine.items()}
        self._ghosts: dict[Key, Ghost] = {}
        self._models: dict[object, ReplicaModel] = {}
        self._led: dict[Partition, Led] = {}
        self._looked_at: dict[Partition, object] = {}
        self._seen: dict[Process, list[object]] = {}
        self._revision: object = None
        self.watchers: list[Watcher] = []
        world.loop.after_step = self._look

    def follow(self, process: Process, broker: Broker) -> None:
        """Look at a broker from now on, as long as its process lives."""
        self._brokers[process] = broker

    def running(self, machine: str) -> Broker | None:
        """Return the broker that runs on a machine, if it is watched; it may be paused."""
        process = self._world.machine(machine).process
        return self._brokers.get(process) if process is not None and process.is_alive else None

    def acknowledged(self, name: TopicPartition, offset: int) -> None:
        """R16: records acknowledged with acks=all are committed."""
        topic = self._truth.topics[name.topic]
        ghost = self._ghosts[topic.topic_id, name.partition]
        if offset >= ghost.high_watermark:
            self._fail("R16", f"{name}: {offset} is acknowledged, and not committed")

    # -- changed replicas -----------------------------------------------------------------------

    def _look(self, process: Process | None) -> None:
        """Look at all that a step can have changed: its own broker, and the truth."""
        is_all_new = self._truth.revision != self._revision
        broker = None if process is None else self._brokers.get(process)
        if process is not None and broker is not None and process.is_alive:
            seen = _state_of(broker)
            before = self._seen.get(process)
            if seen != before:
                self._seen[process] = seen
                changed = self._look_at_broker(process.name, broker, seen)
                is_all_new = is_all_new or before is None or before[0] != seen[0]
                for partition in () if is_all_new else changed:
                    self._look_at_members_of(partition)
        if is_all_new:
            self._revision = self._truth.revision
            for topic in self._truth.topics.values():
                for number, state in enumerate(topic.partitions):
                    self._look_at_members(topic, number, state)

    def _look_at_broker(self, name: str, broker: Broker, state: list[object]) -> list[Partition]:
        """Return its changed partitions."""
        changed = []
        for partition, seen in zip(broker.partitions, state[1:], strict=True):
            if not partition.log.is_offline:
                if seen != self._looked_at.get(partition):
                    self._looked_at[partition] = seen
                    self._look_at(name, partition)
                    changed.append(partition)
            elif partition.in_sync is not None:
                # Its log is unreadable, but the copies on other replicas may still become
                # committed.
                ghost = self._ghosts.setdefault(_key(partition), Ghost())
                self._look_at_leader(name, partition, ghost)
                self._look_at_followers(partition, partition.in_sync)
                changed.append(partition)
            if partition.in_sync is not None and broker.metadata.broker_epoch == NOT_REGISTERED:
                self._fail("R9", f"{partition.name}: {name} leads without a registration")
            source = broker._replication.source_of(partition)  # noqa: SLF001 - only checks need it
            wanted = NO_LEADER if partition.in_sync is not None else partition.leader_id
            is_unusable = partition.log.is_offline or not partition.log.has_room
            is_idle = is_unusable and source == NO_LEADER
            if source not in {None, wanted} and not is_idle:
                self._fail("R15", f"{partition.name} on {name} fetches from {source}")
        return changed

    # -- one replica ----------------------------------------------------------------------------

    def _look_at(self, name: str, partition: Partition) -> None:
        ghost = self._ghosts.setdefault(_key(partition), Ghost())
        model = self._models.get(partition.log)
        if model is None:
            model = self._models[partition.log] = ReplicaModel(partition.log)
        where = f"{partition.name} on {name}"
        try:
            new, cut = model.update()
        except ApiError as error:
            if partition.log.is_offline:  # by this very reading
                return
            self._fail("D2", f"{where}: {error}")
        for one in cut:
            is_kept = (
                one.end_offset > partition.log.log_start_offset
            )  # else retention may delete it
            if is_kept and ghost.committed.get(one.base_offset) == one:
                self._fail("R11", f"{where}: {one} is cut, committed to {ghost.high_watermark}")
        self._look_at_new(where, model.batches[-len(new) - 1 :] if new else [], ghost)
        if partition.in_sync is not None:
            self._look_at_leader(name, partition, ghost)
        elif new and new[-1].epoch not in ghost.leader_by_epoch:
            # Only the newest epoch: earlier ones began before the checks did.
            self._forgive_or_fail(where, new[-1], ghost)
        self._look_at_committed(where, partition, model, ghost)
        self._show(name, partition, model, partition.high_watermark)

    def _show(self, name: str, partition: Partition, model: ReplicaModel, committed: int) -> None:
        for watcher in self.watchers:
            watcher(name, partition, model, committed)

    def _look_at_followers(self, leader: Partition, in_sync: InSync) -> None:
        """Read committed records from a follower, if the leader's log is unreadable."""
        for broker_id in in_sync.maximal:
            machine = self._name_by_id[broker_id]
            broker = self.running(machine)
            there = None if broker is None else broker.partitions.find(leader.name)
            model = None if there is None else self._models.get(there.log)
            if there is not None and model is not None and not there.log.is_offline:
                self._show(machine, there, model, leader.high_watermark)

    def _look_at_new(self, where: str, new: Sequence[Batch], ghost: Ghost) -> None:
        """R1: check new batches, and the batch before them."""
        for one in new:
            known = ghost.written.setdefault((one.epoch, one.base_offset), one)
            if known != one:
                self._fail("R1", f"{where}: {one}, and another replica has {known}")
        for earlier, later in pairwise(new):
            if earlier.epoch > later.epoch:
                self._fail("R1", f"{where}: {later} is of an earlier epoch than {earlier}")

    def _forgive_or_fail(self, where: str, one: Batch, ghost: Ghost) -> None:
        """R12: an epoch that began during the checks has a known leader."""
        if ghost.leader_by_epoch and one.epoch > max(ghost.leader_by_epoch):
            self._fail("R12", f"{where}: {one} is of an epoch without a leader")

    def _look_at_committed(
        self, where: str, partition: Partition, model: ReplicaModel, ghost: Ghost
    ) -> None:
        if partition.high_watermark > partition.log.end_offset:
            self._fail("R2", f"{where}: visible records are missing")
        committed = partition.high_watermark
        for one in model.batches[model.compared_count :]:
            if one.end_offset > committed:
                break
            model.compared_count += 1
            known = ghost.committed.setdefault(one.base_offset, one)
            if known != one:
                self._fail("R2", f"{where}: {one} is committed, and so is {known}")

    def _look_at_leader(self, name: str, partition: Partition, ghost: Ghost) -> None:
        epoch, committed = partition.leader_epoch, partition.high_watermark
        known = ghost.leader_by_epoch.setdefault(epoch, name)
        if known != name:
            self._fail("R1", f"{partition.name}: {known} and {name} lead in {epoch}")
        before = self._led.get(partition)
        if before is not None and before.epoch == epoch:
            if committed < before.high_watermark:
                self._fail("R7", f"{partition.name}: the high watermark fell on {name}")
            if committed > before.high_watermark and not _has_enough(partition):
                self._fail("R7", f"{partition.name}: too few are in sync on {name} to commit")
            if committed > before.high_watermark:
                self._look_at_counted(name, partition)
        self._led[partition] = Led(epoch, committed)
        ghost.high_watermark = max(ghost.high_watermark, committed)

    def _look_at_counted(self, name: str, partition: Partition) -> None:
        """R7: replicas that raised the high watermark know the epoch."""
        in_sync = partition.in_sync
        assert in_sync is not None
        for broker_id in in_sync.maximal:
            known = in_sync.followers.get(broker_id)
            broker = self.running(self._name_by_id[broker_id])
            if (
                known is None
                or broker is None
                or broker.metadata.broker_epoch != known.broker_epoch
            ):
                continue
            there = broker.partitions.find(partition.name)
            if there is not None and there.leader_epoch < partition.leader_epoch:
                self._fail("R7", f"{partition.name}: {name} counts {broker_id}, of an old epoch")

    # -- committed metadata ---------------------------------------------------------------------

    def _look_at_members_of(self, partition: Partition) -> None:
        name = partition.name
        topic = self._truth.topics.get(name.topic)
        if topic is not None and topic.topic_id == partition.topic_id:
            state = topic.partition(name.partition)
            if state is not None:
                self._look_at_members(topic, name.partition, state)

    def _look_at_members(self, topic: TopicImage, number: int, state: PartitionImage) -> None:
        name = TopicPartition(topic.name, number)
        self._look_at_shape(name, state)
        ghost = self._ghosts.get((topic.topic_id, number))
        if ghost is None:
            return
        for broker_id in (*state.isr, *state.eligible_leader_replicas):
            partition = self._partition(broker_id, topic.topic_id, name)
            if partition is None:
                continue
            end_offset = partition.log.end_offset
            if end_offset < ghost.high_watermark:
                self._fail("R4", f"{name}: {broker_id} has {end_offset} of {ghost.high_watermark}")
            self._look_at_content(name, broker_id, partition, ghost)
            if broker_id == state.leader and partition.leader_epoch == state.leader_epoch:
                self._look_at_isr(name, state, partition)

    def _partition(self, broker_id: int, topic_id: bytes, name: TopicPartition) -> Partition | None:
        """Return the replica of a broker, if it runs in the life that the truth tells of."""
        broker = self.running(self._name_by_id[broker_id])
        if broker is None or broker.metadata.broker_epoch != self._truth.broker_epoch(broker_id):
            return None
        partition = broker.partitions.find(name)
        if partition is None or partition.topic_id != topic_id or partition.log.is_offline:
            return None
        return partition

    def _look_at_shape(self, name: TopicPartition, state: PartitionImage) -> None:
        isr, eligible = set(state.isr), set(state.eligible_leader_replicas)
        is_led = state.leader != NO_LEADER
        if (is_led and state.leader not in isr) or isr & eligible:
            self._fail("R9", f"{name}: {state}")
        if not isr | eligible <= set(state.replicas):
            self._fail("R9", f"{name}: {state}")

    def _look_at_isr(
        self, name: TopicPartition, state: PartitionImage, partition: Partition
    ) -> None:
        maximal = () if partition.in_sync is None else partition.in_sync.maximal
        if maximal and not set(state.isr) <= set(maximal):
            self._fail("R6", f"{name}: {state.isr} are in sync, and {maximal} count")

    def _look_at_content(
        self, name: TopicPartition, broker_id: int, partition: Partition, ghost: Ghost
    ) -> None:
        model = self._models.get(partition.log)
        for one in reversed(model.batches if model is not None else ()):
            if one.end_offset <= ghost.high_watermark:
                known = ghost.committed.get(one.base_offset, one)
                if known != one:
                    self._fail("R3", f"{name}: {broker_id} has {one}, not {known}")
                break

    def _fail(self, rule: str, detail: str) -> NoReturn:
        raise InvariantError(f"{rule} at {self._world.loop.time():.3f} s: {detail}")


def _state_of(broker: Broker) -> list[object]:
    """Return all of a broker that the rules speak of: its epoch, and each replica's state."""
    return [broker.metadata.broker_epoch, *map(_state, broker.partitions)]


def _state(one: Partition) -> tuple[object, ...]:
    """Return the fields that all properties of a replica depend on; called after every step."""
    log, in_sync = one.log, one.in_sync
    committed = one._high_watermark  # noqa: SLF001 - reading it has no side effect
    end_offset, epoch = log.end_offset, one.leader_epoch
    if in_sync is None:
        return log, end_offset, log.cut_count, committed, one.is_alone, epoch
    members = in_sync.isr, in_sync.proposed
    return log, end_offset, log.cut_count, committed, one.is_alone, epoch, in_sync, *members


def _key(partition: Partition) -> Key:
    return partition.topic_id, partition.name.partition


def _has_enough(partition: Partition) -> bool:
    in_sync = partition.in_sync
    assert in_sync is not None
    if partition.is_alone:
        return True
    wanted = partition.log.config.min_insync_replicas
    return len(in_sync.isr) >= min(wanted, len(in_sync.followers) + 1)
