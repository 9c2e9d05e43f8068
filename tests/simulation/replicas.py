"""Looks at all replicas at once, after every step: the invariants of replication (R1 to R13, R16).

Ghosts are what no broker knows: the greatest high watermark that any leader ever had, and what was
below it. Everything is read from the brokers' own objects, and from their disks.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.assembly import Broker
from ottla.metadata.image import PartitionImage
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition
from ottla.simulation.world import World
from ottla.storage.log import PartitionLog
from ottla.wire.records.batch import batches
from tests.simulation.sky import Sky

READ_BYTES = 1 << 24


class Batch(NamedTuple):
    base_offset: int
    end_offset: int
    epoch: int
    crc: int


class InvariantError(AssertionError):
    """What should never be."""


class Mirror:
    """The batches of one replica, read again when something was cut."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.batches: list[Batch] = []
        self.cut_count = log.cut_count
        self.end_offset = log.log_start_offset
        self._read_on()

    def update(self) -> list[Batch]:
        """Take what is new; return what was cut off."""
        if self.log.cut_count == self.cut_count:
            if self.log.end_offset != self.end_offset:
                self._read_on()
            return []
        before = self.batches
        self.batches, self.cut_count = [], self.log.cut_count
        self.end_offset = self.log.log_start_offset
        self._read_on()
        return [one for one in before if one not in self.batches]

    def _read_on(self) -> None:
        while self.end_offset < self.log.end_offset:
            part = self.log.read(self.end_offset, self.log.end_offset, READ_BYTES)
            for one in batches(memoryview(bytearray(part.read()))):
                self.batches.append(
                    Batch(one.base_offset, one.end_offset, one.partition_leader_epoch, one.crc)
                )
            self.end_offset = self.batches[-1].end_offset


class Ghost:
    """What is true of a partition, whoever knows it."""

    def __init__(self) -> None:
        self.high_watermark = 0
        self.committed: dict[int, Batch] = {}
        self.leader_by_epoch: dict[int, str] = {}


class Led(NamedTuple):
    """The last that was seen of a leader."""

    epoch: int
    high_watermark: int


class GodView:
    """Raises InvariantError at the first step after which something is wrong."""

    def __init__(self, world: World, sky: Sky, brokers: Mapping[str, int]) -> None:
        self.brokers: dict[str, Broker] = {}
        """Those that run, by machine."""
        self.ghosts: dict[TopicPartition, Ghost] = {}
        self._world = world
        self._sky = sky
        self._name_by_id = {broker_id: name for name, broker_id in brokers.items()}
        self._mirrors: dict[int, Mirror] = {}
        self._led: dict[int, Led] = {}
        self._seen: list[object] = []
        step = world.loop._step

        def checked(handle: asyncio.Handle) -> None:
            step(handle)
            self.look()

        world.loop._step = checked  # type: ignore[method-assign]

    def look(self) -> None:
        """Look at everything, if anything has changed that could be seen."""
        running = [
            (name, broker)
            for name, broker in self.brokers.items()
            if self._world.machines[name].is_running
        ]
        seen: list[object] = [self._sky.image]
        for _, broker in running:
            for partition in broker.partitions:
                log, in_sync = partition.log, partition.in_sync
                seen += (log, log.end_offset, log.cut_count, partition.high_watermark, in_sync)
                seen += (partition.leader_epoch, None if in_sync is None else in_sync.maximal)
        if seen != self._seen:
            self._seen = seen
            self._look(dict(running))

    def acknowledged(self, name: TopicPartition, offset: int) -> None:
        """R16: what is acknowledged to who wants all replicas is committed."""
        if offset >= self.ghosts[name].high_watermark:
            self._fail("R16", f"{name}: {offset} is acknowledged, and not committed")

    def _look(self, running: Mapping[str, Broker]) -> None:
        for name, broker in running.items():
            for partition in broker.partitions:
                if not partition.log.is_offline:
                    self._look_at(name, partition)
        topics = self._sky.image.topics
        for at, ghost in self.ghosts.items():
            self._look_at_members(at, topics[at.topic].partitions[at.partition], ghost, running)

    # -- one replica ----------------------------------------------------------------------------

    def _look_at(self, name: str, partition: Partition) -> None:
        ghost = self.ghosts.setdefault(partition.name, Ghost())
        mirror = self._mirrors.get(id(partition.log))
        if mirror is None or mirror.log is not partition.log:
            mirror = self._mirrors[id(partition.log)] = Mirror(partition.log)
        where = f"{partition.name} on {name}"
        for one in mirror.update():
            is_kept = one.end_offset > partition.log.log_start_offset  # else nobody needs it
            if is_kept and ghost.committed.get(one.base_offset) == one:
                self._fail("R11", f"{where}: {one} is cut, committed to {ghost.high_watermark}")
        if partition.in_sync is not None:
            self._look_at_leader(name, partition, ghost)
        if partition.high_watermark > partition.log.end_offset:
            self._fail("R2", f"{where}: what readers may see is not there")
        for one in reversed(mirror.batches):
            if one.end_offset > partition.high_watermark:
                continue
            known = ghost.committed.setdefault(one.base_offset, one)
            if known != one:
                self._fail("R2", f"{where}: {one} is committed, and so is {known}")
            if known is not one:
                break

    def _look_at_leader(self, name: str, partition: Partition, ghost: Ghost) -> None:
        epoch = partition.leader_epoch
        known = ghost.leader_by_epoch.setdefault(epoch, name)
        if known != name:
            self._fail("R1", f"{partition.name}: {known} and {name} lead in {epoch}")
        before = self._led.get(id(partition))
        is_same = before is not None and before.epoch == epoch
        if is_same and before is not None and partition.high_watermark < before.high_watermark:
            self._fail("R7", f"{partition.name}: the high watermark fell on {name}")
        self._led[id(partition)] = Led(epoch, partition.high_watermark)
        ghost.high_watermark = max(ghost.high_watermark, partition.high_watermark)

    # -- what the controller believes -----------------------------------------------------------

    def _look_at_members(
        self,
        name: TopicPartition,
        state: PartitionImage,
        ghost: Ghost,
        running: Mapping[str, Broker],
    ) -> None:
        for broker_id in (*state.isr, *state.eligible_leader_replicas):
            broker = running.get(self._name_by_id[broker_id])
            registered = self._sky.image.brokers[broker_id].broker_epoch
            if broker is None or broker.metadata.broker_epoch != registered:
                continue  # what is said of another life of it
            partition = broker.partitions.find(name)
            if partition is None or partition.log.is_offline:
                continue
            end_offset = partition.log.end_offset
            if end_offset < ghost.high_watermark:
                self._fail("R4", f"{name}: {broker_id} has {end_offset} of {ghost.high_watermark}")
            self._look_at_content(name, broker_id, partition, ghost)
            if broker_id == state.leader and partition.leader_epoch == state.leader_epoch:
                self._look_at_isr(name, state, partition)

    def _look_at_isr(
        self, name: TopicPartition, state: PartitionImage, partition: Partition
    ) -> None:
        """R6: whoever the controller takes to be in sync, its leader counts."""
        maximal = () if partition.in_sync is None else partition.in_sync.maximal
        if maximal and not set(state.isr) <= set(maximal):
            self._fail("R6", f"{name}: {state.isr} are in sync, and {maximal} count")

    def _look_at_content(
        self, name: TopicPartition, broker_id: int, partition: Partition, ghost: Ghost
    ) -> None:
        """R3: who may lead has what is committed, and nothing else there."""
        for one in reversed(self._mirrors[id(partition.log)].batches):
            if one.end_offset <= ghost.high_watermark:
                known = ghost.committed.get(one.base_offset, one)
                if known != one:
                    self._fail("R3", f"{name}: {broker_id} has {one}, not {known}")
                break

    def _fail(self, rule: str, detail: str) -> None:
        raise InvariantError(f"{rule} at {self._world.loop.time():.3f} s: {detail}")
