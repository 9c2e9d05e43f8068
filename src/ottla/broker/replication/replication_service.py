"""The broker's part in replication: fetchers, ISR changes and offline replicas."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from ottla.broker.controller.controller_client import ActiveController, LeaveIsr, ReplicaName
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.log_flusher import LogFlusher
from ottla.broker.hosting.metadata_applier import PartitionRoles
from ottla.broker.maintenance.log_scrubber import (
    SUSPECTS_MS,
    LogScrubber,
    ScrubSettings,
    ScrubThreads,
)
from ottla.broker.maintenance.periodic_tasks import PeriodicTasks
from ottla.broker.replication.damaged_replicas import LOOK_MS as DAMAGED_LOOK_MS
from ottla.broker.replication.damaged_replicas import DamagedReplicas
from ottla.broker.replication.fetcher_world import FetcherSettings, FetcherWorld
from ottla.broker.replication.full_log_dirs import LOOK_MS as FULL_LOOK_MS
from ottla.broker.replication.full_log_dirs import FullLogDirs
from ottla.broker.replication.isr_changes import IsrChanges
from ottla.broker.replication.replica_fetchers import ReplicaFetchers
from ottla.broker.replication.replica_repair import ReplicaRepair
from ottla.broker.replication.replication_quotas import Throttles
from ottla.concurrency.notifier import Notifier
from ottla.concurrency.yield_budget import YieldBudget
from ottla.environment.clock import Clock
from ottla.environment.network import Network
from ottla.machines.controller.lost_replicas import is_counted_on
from ottla.metadata.image import ClusterImage, Endpoint
from ottla.metadata.records import LOST_DIRECTORY
from ottla.model.api_error import ApiError
from ottla.model.identifiers import FIRST_OFFSET, BrokerId, Offset, TopicPartition
from ottla.model.settings.broker_config import BrokerConfig
from ottla.replication.partition import Partition
from ottla.storage.log_dirs.log_dir import LogDir
from ottla.storage.log_dirs.log_dirs import LogDirs
from ottla.storage.recovery.scrubbing import PageCache, suspect

LOOK_MS: Final = 500
"""The interval of checks for lost replicas."""
_log = logging.getLogger(__name__)


class OfflineReplicas:
    """Reports unusable replicas of this broker to the controller, so that others lead.

    Their disk has failed, now or at the last start; or it was too full to create them. The report
    is repeated until the metadata no longer expects the replicas to work. Fetches for them stop
    before the first report: otherwise the leader would consider them in sync again.

    Belongs to one event loop.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        image: Callable[[], ClusterImage],
        partitions: HostedPartitions,
        leave_isr: LeaveIsr,
        unfollow: Callable[[Partition], None],
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._partitions = partitions
        self._leave_isr = leave_isr
        self._unfollow = unfollow

    async def tell(self) -> None:
        """Stop fetching offline replicas, and report replicas that still lead or are in an ISR."""
        failed = [one for one in self._partitions if one.log.is_offline]
        for partition in failed:
            self._unfollow(partition)
        unusable = [*self._partitions.offline, *(one.name for one in failed)]
        lost = list(self._counted_on(unusable))
        if not lost:
            return
        try:
            await self._leave_isr(lost, LOST_DIRECTORY)
        except ApiError as error:
            _log.warning("offline replicas still lead or are in an ISR: %s", error)

    def _counted_on(self, unusable: list[TopicPartition]) -> Iterator[ReplicaName]:
        image = self._image()
        for name in unusable:
            topic = image.topics.get(name.topic)
            state = None if topic is None else topic.partition(name.partition)
            if topic is None or state is None:
                continue
            if is_counted_on(state, self._broker_id):
                yield topic.topic_id, name.partition


class HighWatermarks:
    """Checkpoints the high watermarks on every disk: Kafka's `replication-offset-checkpoint`.

    A restarted broker serves its readers up to them at once, and gets the rest from the leaders.
    """

    def __init__(self, partitions: HostedPartitions, log_dirs: LogDirs, threads: Executor) -> None:
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._threads = threads

    def noted(self, name: TopicPartition) -> Offset:
        """Return the high watermark in the checkpoint; 0 if there is none."""
        log_dir = self._log_dirs.dir_of(name)
        return FIRST_OFFSET if log_dir is None else log_dir.high_watermarks.get(name, FIRST_OFFSET)

    async def checkpoint(self) -> None:
        """Write all checkpoints, on a thread."""
        loop = asyncio.get_running_loop()
        for log_dir in self._log_dirs.online:
            write = log_dir.note_high_watermarks(self._of(log_dir))
            if write is not None:
                try:
                    await loop.run_in_executor(self._threads, write)
                except OSError as error:
                    log_dir.refuse(error)

    def close(self) -> None:
        """Write all checkpoints for the last time; blocks."""
        for log_dir in self._log_dirs.online:
            write = log_dir.note_high_watermarks(self._of(log_dir))
            if write is not None:
                try:
                    write()
                except OSError as error:
                    log_dir.refuse(error)

    def _of(self, log_dir: LogDir) -> dict[TopicPartition, Offset]:
        """Return the high watermarks; for a log without a role yet, the checkpoint's."""
        here = ((name, self._partitions.find(name)) for name in log_dir.hosted)
        known = {name: one.high_watermark for name, one in here if one is not None}
        noted = log_dir.high_watermarks
        return {name: noted[name] for name in log_dir.hosted if name in noted} | known


@dataclass(frozen=True, slots=True)
class ReplicationSources:
    """The dependencies of replication."""

    config: BrokerConfig
    clock: Clock
    network: Network
    threads: Executor
    notifier: Notifier
    flushing: LogFlusher
    throttles: Throttles
    partitions: HostedPartitions
    log_dirs: LogDirs
    image: Callable[[], ClusterImage]
    broker_epoch: Callable[[], int]
    """This incarnation of the broker; negative until it has registered."""
    controller: ActiveController
    page_cache: PageCache


class Replication:
    """The fetchers, the ISRs and the high watermarks of one broker."""

    def __init__(self, sources: ReplicationSources) -> None:
        config = sources.config
        self._config = config
        self._clock = sources.clock
        self._partitions = sources.partitions
        self._image = sources.image
        self._high_watermarks = HighWatermarks(
            sources.partitions, sources.log_dirs, sources.threads
        )
        world = self._fetcher_world(sources)
        self._fetchers = ReplicaFetchers(world)
        self.isr_changes = IsrChanges(
            config.node_id,
            sources.broker_epoch,
            sources.image,
            sources.controller.alter_partition,
            sources.notifier,
            sources.clock,
            config.replica_lag_time_max_ms,
        )
        self._lost_replicas = OfflineReplicas(
            config.node_id,
            sources.image,
            sources.partitions,
            sources.controller.leave_isr,
            self._fetchers.forget,
        )
        self._full_log_dirs = _full_log_dirs(sources, self._fetchers)
        self._scrub_threads = ScrubThreads(sources.clock)
        self.scrubber = LogScrubber(
            sources.partitions,
            sources.page_cache,
            sources.clock,
            self._scrub_threads,
            ScrubSettings.from_config(config),
        )
        self._damaged_replicas = self._watch_damaged(sources, world)
        self.roles = PartitionRoles(
            config.node_id,
            sources.clock,
            sources.notifier.notify,
            broker_epoch=sources.broker_epoch,
            following=self._fetchers,
            on_candidate=self.isr_changes.on_candidate,
            high_watermark_of=self._high_watermarks.noted,
        )

    def _fetcher_world(self, sources: ReplicationSources) -> FetcherWorld:
        return FetcherWorld(
            self._config.node_id,
            sources.broker_epoch,
            self._endpoint_of,
            sources.network,
            sources.clock,
            sources.notifier,
            sources.flushing,
            sources.throttles.follower,
            FetcherSettings.from_config(self._config),
        )

    def _watch_damaged(self, sources: ReplicationSources, world: FetcherWorld) -> DamagedReplicas:
        return DamagedReplicas(
            self._config.node_id,
            sources.image,
            sources.partitions,
            sources.controller.leave_isr,
            self._fetchers,
            ReplicaRepair(world, self._scrub_threads).repair,
            sources.clock,
            self.scrubber.counts,
        )

    def start(self, background: PeriodicTasks) -> None:
        """Begin to follow, now that this broker has registered, and to look after the rest."""
        self._fetchers.start()
        lag_ms = self._config.replica_lag_time_max_ms
        background.every("in-sync replicas", max(lag_ms // 2, 1), self._check_in_sync)
        background.every("lost replicas", LOOK_MS, self._lost_replicas.tell)
        background.every("full directories", FULL_LOOK_MS, self._full_log_dirs.look)
        background.every("damaged replicas", DAMAGED_LOOK_MS, self._damaged_replicas.look)
        background.every("suspect segments", SUSPECTS_MS, self.scrubber.check_suspects)
        self.scrubber.start()
        background.every(
            "high watermarks",
            self._config.replica_high_watermark_checkpoint_interval_ms,
            self._high_watermarks.checkpoint,
        )

    def apply(self, config: BrokerConfig) -> None:
        """Go by these settings from now on."""
        self.scrubber.apply(ScrubSettings.from_config(config))

    async def _check_in_sync(self) -> None:
        budget = YieldBudget(self._clock)
        for partition in list(self._partitions):
            self.isr_changes.check(partition)
            _suspect_where_stuck(partition)
            await budget.yield_if_spent()

    async def stop(self) -> None:
        """Stop the fetchers and all reports to the controller."""
        self._damaged_replicas.stop()
        await self.scrubber.stop()
        await self._fetchers.stop()
        await self.isr_changes.stop()

    def source_of(self, partition: Partition) -> int | None:
        """Return the broker that a partition is fetched from, NO_LEADER if there is none.

        None before the start, and while a damaged replica fetches nothing.
        """
        return self._fetchers.leader_of(partition)

    def close(self) -> None:
        """Write the high watermarks for the next start, before the logs are closed. Blocks."""
        self._scrub_threads.join()
        self._high_watermarks.close()

    def _endpoint_of(self, broker_id: BrokerId) -> Endpoint | None:
        broker = self._image().brokers.get(broker_id)
        return None if broker is None else broker.endpoint(self._config.inter_broker_listener)


def _full_log_dirs(sources: ReplicationSources, fetchers: ReplicaFetchers) -> FullLogDirs:
    return FullLogDirs(
        sources.config.node_id,
        sources.image,
        sources.partitions,
        sources.log_dirs,
        sources.clock,
        sources.threads,
        sources.controller.leave_isr,
        fetchers,
    )


def _suspect_where_stuck(partition: Partition) -> None:
    """Schedule a check of segments with batches that a follower keeps refusing."""
    if partition.in_sync is None or partition.log.is_offline:
        return
    for offset in partition.in_sync.stuck_offsets():
        suspect(partition.log, Offset(offset))
