"""Gathers the data of a scrape, on the event loop and in time slices."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import NamedTuple

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.coordinators.transaction_services import TransactionServices
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.maintenance.log_scrubber import DamageCounts
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.metrics.exposition import labels
from ottla.broker.metrics.loop_watch import LoopWatch
from ottla.broker.replication.isr_changes import IsrChanges
from ottla.broker.requests.request_metrics import Meters
from ottla.broker.transport.connection_limits import CloseReason
from ottla.broker.transport.response_writer import ColdReads
from ottla.broker.transport.server import Server
from ottla.concurrency.yield_budget import YieldBudget
from ottla.environment.clock import Clock
from ottla.environment.disk import File
from ottla.machines.groups.machine import GroupMachine
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord, PartitionChangeRecord
from ottla.model.identifiers import BrokerId
from ottla.model.settings.broker_config import BrokerConfig
from ottla.replication.partition import Partition, Traffic
from ottla.storage.log_dirs.log_dir import LogDir
from ottla.storage.log_dirs.log_dirs import LogDirs

ITEMS_PER_LOOK = 64
"""The number of partitions or groups per time check."""


class CountedColdReads:
    """Cold reads that are counted. Fetching happens on several threads, hence the lock."""

    def __init__(self, counted: ColdReads) -> None:
        self.needs_thread = counted.needs_thread
        self.read_hot = counted.read_hot
        self.give_back = counted.give_back
        self._fetch = counted.fetch
        self._lock = Lock()
        self.count = 0
        self.size_bytes = 0

    def fetch(self, file: File, position: int, size_bytes: int) -> None:
        """Make it hot; called on a thread."""
        with self._lock:
            self.count += 1
            self.size_bytes += size_bytes
        self._fetch(file, position, size_bytes)


class Elections:
    """Counts the elections in this broker's decisions, while it is the controller."""

    def __init__(self, image: ClusterImage, is_controller: Callable[[], bool]) -> None:
        self.is_controller = is_controller
        self.count = 0
        self.unclean_count = 0
        """Elections of a leader that was neither in sync nor eligible."""
        self._image = image

    def on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Count the elections in a decision."""
        before, self._image = self._image, image
        if not self.is_controller():
            return
        for record in records:
            if isinstance(record, PartitionChangeRecord) and record.leader >= 0:
                self._elected(before, record)

    def _elected(self, before: ClusterImage, record: PartitionChangeRecord) -> None:
        topic = before.topics_by_id.get(record.topic_id)
        partition = None if topic is None else topic.partition(record.partition_id)
        if partition is None:
            return
        self.count += 1
        trusted = (*partition.isr, *partition.eligible_leader_replicas)
        self.unclean_count += record.leader not in trusted


@dataclass(slots=True)
class PartitionFacts:
    """The partitions on this broker, in columns: each partition has its place in every list.

    An object for each would make the garbage collector look through all objects of the broker.
    """

    topics: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    are_led: list[bool] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    log_start_offsets: list[int] = field(default_factory=list)
    high_watermarks: list[int] = field(default_factory=list)
    end_offsets: list[int] = field(default_factory=list)
    sizes_bytes: list[int] = field(default_factory=list)
    segment_counts: list[int] = field(default_factory=list)
    insync_mins: list[int] = field(default_factory=list)

    def add(self, partition: Partition) -> None:
        """Take one more."""
        log = partition.log
        topic, number = partition.name
        self.topics.append(topic)
        self.numbers.append(number)
        self.are_led.append(partition.in_sync is not None)
        self.labels.append(labels(topic=topic, partition=number))
        self.log_start_offsets.append(log.log_start_offset)
        self.high_watermarks.append(partition.high_watermark)
        self.end_offsets.append(log.end_offset)
        self.sizes_bytes.append(log.segments.size_bytes)
        self.segment_counts.append(len(log.segments))
        self.insync_mins.append(log.config.min_insync_replicas)


class GroupFacts(NamedTuple):
    """One group: its members, and its committed offsets by topic and partition."""

    group_id: str
    state: str
    member_count: int
    offsets: tuple[tuple[str, int, int], ...]


class TransactionFacts(NamedTuple):
    """The transactions that this broker coordinates."""

    count_by_state: Counter[str]
    unsendable_markers: int
    """Markers for partitions without a leader."""


class MeterFacts(NamedTuple):
    """One version of one API: a meter, held still."""

    buckets: list[int]
    recent_buckets: list[int]
    total_ns: int
    request_bytes: int


class ReplicationFacts(NamedTuple):
    """How often replicas came into sync and fell out of it, and leaders were elected."""

    isr_expands: int
    isr_shrinks: int
    isr_failures: int
    elections: int
    unclean_elections: int


class LoopFacts(NamedTuple):
    """How the event loop is."""

    lag_seconds: float
    lag_seconds_max: float
    idle_ratio: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All values that a scrape exports for a broker."""

    node_id: BrokerId
    start_seconds: float
    is_controller: bool
    image: ClusterImage
    partitions: PartitionFacts
    groups: list[GroupFacts]
    transactions: TransactionFacts
    traffic: Traffic
    traffic_by_topic: Mapping[str, Traffic]
    meters: Mapping[int, MeterFacts]
    errors: Mapping[tuple[int, int], int]
    connections_by_listener: Mapping[str, int]
    accepted_connections: int
    closed_by_reason: Mapping[CloseReason, int]
    offline_folders: int
    full_log_dirs: int
    cold_reads: int
    cold_bytes: int
    damage: DamageCounts
    replication: ReplicationFacts
    loop: LoopFacts


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of the values. Must be used on the event loop."""

    config: BrokerConfig
    clock: Clock
    store: MetadataStore
    partitions: HostedPartitions
    log_dirs: LogDirs
    coordinator: GroupCoordinator
    transactions: TransactionServices
    server: Server
    isr_changes: IsrChanges
    elections: Elections
    meters: Meters
    cold_reads: CountedColdReads
    watch: LoopWatch
    start_seconds: float
    damage: DamageCounts

    async def snapshot(self) -> Snapshot:
        """Collect all values. It takes several time slices, so parts may differ a little."""
        budget = YieldBudget(self.clock)
        by_topic: dict[str, Traffic] = {}
        partitions = await self._partition_facts(budget, by_topic)
        groups = await self._group_facts(budget)
        transactions = await self._transaction_facts(budget)
        total = Traffic()
        total.add(self.partitions.past_traffic)
        for traffic in by_topic.values():
            total.add(traffic)
        return Snapshot(
            node_id=self.config.node_id,
            start_seconds=self.start_seconds,
            is_controller=self.elections.is_controller(),
            image=self.store.image,
            partitions=partitions,
            groups=groups,
            transactions=transactions,
            traffic=total,
            traffic_by_topic=by_topic,
            meters={key: _facts_of_meter(self.meters, key) for key in sorted(self.meters)},
            errors=dict(self.meters.errors),
            connections_by_listener=self._connections_by_listener(),
            accepted_connections=self.server.accepted_count,
            closed_by_reason=dict(self.server.closed_by_reason),
            offline_folders=sum(not log_dir.is_online for log_dir in self.log_dirs.dirs),
            full_log_dirs=sum(map(_is_full, self.log_dirs.online)),
            cold_reads=self.cold_reads.count,
            cold_bytes=self.cold_reads.size_bytes,
            damage=replace(self.damage),
            replication=self._replication_facts(),
            loop=LoopFacts(
                self.watch.lag_seconds, self.watch.lag_seconds_max, self.watch.idle_ratio
            ),
        )

    async def _partition_facts(
        self, budget: YieldBudget, by_topic: dict[str, Traffic]
    ) -> PartitionFacts:
        facts = PartitionFacts()
        for number, partition in enumerate(list(self.partitions)):
            if number % ITEMS_PER_LOOK == 0 and budget.is_spent:
                await budget.yield_now()
            by_topic.setdefault(partition.name.topic, Traffic()).add(partition.traffic)
            facts.add(partition)
        return facts

    async def _group_facts(self, budget: YieldBudget) -> list[GroupFacts]:
        facts: list[GroupFacts] = []
        for machine in self.coordinator.machines:
            for group_id in machine.group_ids():
                if len(facts) % ITEMS_PER_LOOK == 0 and budget.is_spent:
                    await budget.yield_now()
                if (found := _facts_of_group(machine, group_id)) is not None:
                    facts.append(found)
        return facts

    async def _transaction_facts(self, budget: YieldBudget) -> TransactionFacts:
        counts: Counter[str] = Counter()
        for machine in self.transactions.coordinator.machines:
            for number, transactional_id in enumerate(machine.transactional_ids()):
                if number % ITEMS_PER_LOOK == 0 and budget.is_spent:
                    await budget.yield_now()
                if (found := machine.transaction(transactional_id)) is not None:
                    counts[found.state.value] += 1
        return TransactionFacts(counts, self.transactions.markers.unsendable_count)

    def _replication_facts(self) -> ReplicationFacts:
        changes, elections = self.isr_changes, self.elections
        return ReplicationFacts(
            changes.expand_count,
            changes.shrink_count,
            changes.failure_count,
            elections.count,
            elections.unclean_count,
        )

    def _connections_by_listener(self) -> dict[str, int]:
        counts = Counter(self.server.connection_listeners())
        return {one.name: counts[one.name] for one in self.config.broker_listeners}


def _facts_of_group(machine: GroupMachine, group_id: str) -> GroupFacts | None:
    group = machine.group(group_id)
    if group is None:  # deleted since the time slice began
        return None
    offsets = tuple(
        (topic, partition, committed.offset)
        for topic, partition, committed in machine.offsets_of(group_id)
    )
    return GroupFacts(group_id, group.state.value, len(group.members), offsets)


def _facts_of_meter(meters: Meters, key: int) -> MeterFacts:
    meter = meters[key]
    return MeterFacts(
        list(meter.buckets), meter.recent_buckets(), meter.total_ns, meter.request_bytes
    )


def _is_full(log_dir: LogDir) -> bool:
    return not all(hosted.log.has_room for hosted in log_dir.hosted.values())
