"""Observability of a broker: meters, health, the admin listener, log lines, garbage."""

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Self

from ottla.broker.admin.admin_server import AdminServer
from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.coordinators.transaction_services import TransactionServices
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.metrics.loop_watch import LoopWatch
from ottla.broker.metrics.snapshot import CountedColdReads, Elections, Sources
from ottla.broker.replication.replication_service import Replication
from ottla.broker.requests.request_metrics import Meters
from ottla.broker.transport.connection_limits import CloseReason
from ottla.broker.transport.response_writer import ColdReads
from ottla.broker.transport.server import Server
from ottla.concurrency.first_of import first_of
from ottla.environment.clock import Clock
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord, RemoveTopicRecord, TopicRecord
from ottla.model.settings.broker_config import BrokerConfig
from ottla.storage.log_dirs.log_dirs import LogDirs

YOUNG_OBJECTS: Final = 10_000
"""The number of new objects per collection of young objects. Thousands of requests wait, and none
of them is in a cycle: a collection every 700 objects, Python's default, is wasted."""
COLLECTIONS_OF_MIDDLE: Final = 10
"""Python's default: the number of young collections per older collection."""
NEVER: Final = (1 << 31) - 1
REQUESTS_BYTES_MAX: Final = 4 << 20
"""Memory of requests in progress up to which a full collection does not take long."""

REFUSALS_TOLD_EACH_MS: Final = 60_000
_REFUSALS: Final = (CloseReason.TOO_MANY_CONNECTIONS, CloseReason.TOO_MANY_FROM_ADDRESS)

_MS_PER_SECOND = 1000
_log = logging.getLogger(__name__)


class Notices:
    """Checks once a second for failed log dirs and refused connections.

    Refused connections are summed up, instead of one line for each.
    """

    def __init__(
        self, log_dirs: LogDirs, closed_by_reason: Mapping[CloseReason, int], clock: Clock
    ) -> None:
        self.no_folder_left = asyncio.Event()
        self._log_dirs = log_dirs
        self._closed_by_reason = closed_by_reason
        self._clock = clock
        self._told_folders: set[str] = set()
        self._told_refusals = dict.fromkeys(_REFUSALS, 0)
        self._next_ms = 0

    def look(self) -> None:
        """Log the changes since the last call."""
        self._check_log_dirs()
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms and self._tell_refusals():
            self._next_ms = now_ms + REFUSALS_TOLD_EACH_MS

    def _check_log_dirs(self) -> None:
        for log_dir in self._log_dirs.dirs:
            if not log_dir.is_online and log_dir.path not in self._told_folders:
                self._told_folders.add(log_dir.path)
                _log.error(
                    "%s has failed: its partitions are offline until a restart: %s",
                    log_dir.path,
                    log_dir.failure,
                    extra={"log_dir": log_dir.path},
                )
        if not self._log_dirs.online:
            self.no_folder_left.set()

    def _tell_refusals(self) -> bool:
        is_new = False
        for reason, told in self._told_refusals.items():
            count = self._closed_by_reason.get(reason, 0)
            if count > told:
                is_new = True
                self._told_refusals[reason] = count
                _log.warning("%d connections were not let in: %s", count - told, reason)
        return is_new


def keep_young() -> None:
    """Let Python collect young garbage only."""
    gc.set_threshold(YOUNG_OBJECTS, COLLECTIONS_OF_MIDDLE, NEVER)


class GarbageCollection:
    """Collects all garbage once a minute, if there is reason to and few requests are in progress.

    A full collection visits every object, and blocks the event loop: half a second with 48,000
    waiting requests. Python starts one whenever enough objects have become old; `keep_young`
    prevents that. Requests are not in cycles: they are freed without any collection.
    """

    def __init__(self, requests_bytes: Callable[[], int]) -> None:
        self._requests_bytes = requests_bytes

    def a_minute_has_passed(self) -> None:
        """Collect if objects have become old since the last time, and few requests are there."""
        is_due = gc.get_count()[2] >= COLLECTIONS_OF_MIDDLE
        if is_due and self._requests_bytes() <= REQUESTS_BYTES_MAX:
            gc.collect()


class TopicNotices:
    """Follows the metadata. A topic's name must be looked up before it is gone."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Go on to the next image."""
        for record in records:
            if isinstance(record, TopicRecord) and record.name in image.topics:
                count = len(image.topics[record.name].partitions)
                extra = {"topic": record.name}
                _log.info("topic %s is created: %d partitions", record.name, count, extra=extra)
            elif isinstance(record, RemoveTopicRecord):
                topic = self._image.topics_by_id.get(record.topic_id)
                if topic is not None:
                    _log.info("topic %s is deleted", topic.name, extra={"topic": topic.name})
        self._image = image


class NoLogDirLeftError(OSError):
    """The disks of all log dirs have failed."""


class Operations:
    """Opened before all other parts of a broker, and closed after them."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, cold_reads: ColdReads, admin: AdminServer
    ) -> None:
        self.meters = Meters()
        self.cold_reads = CountedColdReads(cold_reads)
        self._config = config
        self._clock = clock
        self._admin = admin
        self._started_ms = clock.monotonic_ms()
        self._watch: LoopWatch | None = None
        self._notices: Notices | None = None

    @classmethod
    async def open(cls, config: BrokerConfig, clock: Clock, cold_reads: ColdReads) -> Self:
        """Bind the port of the admin listener. OSError if it is configured and cannot be bound."""
        _log.info("broker %d starts in %s", config.node_id, ", ".join(config.log_dirs))
        admin = await AdminServer.open(
            config.ottla_admin_listener,
            clock,
            is_asked_for="ottla.admin.listener" in config.given,
        )
        return cls(config, clock, cold_reads, admin)

    @property
    def admin_port(self) -> int | None:
        """Where the admin listener is, if there is one."""
        return self._admin.port

    def announce_ready(
        self,
        store: MetadataStore,
        partitions: HostedPartitions,
        log_dirs: LogDirs,
        coordinator: GroupCoordinator,
        transactions: TransactionServices,
        server: Server,
        replication: Replication,
        is_controller: Callable[[], bool],
    ) -> None:
        """Report that clients can connect."""
        store.subscribe(TopicNotices(store.image).on_change)
        elections = Elections(store.image, is_controller)
        store.subscribe(elections.on_change)
        watch = self._begin_watch(log_dirs, server)
        start_seconds = self._start_seconds()
        sources = Sources(
            config=self._config,
            clock=self._clock,
            store=store,
            partitions=partitions,
            log_dirs=log_dirs,
            coordinator=coordinator,
            transactions=transactions,
            server=server,
            isr_changes=replication.isr_changes,
            elections=elections,
            meters=self.meters,
            cold_reads=self.cold_reads,
            watch=watch,
            start_seconds=start_seconds,
            damage=replication.scrubber.counts,
        )
        self._admin.serve_metrics(sources)
        _log.info("broker %d is ready after %.3f s", self._config.node_id, start_seconds)

    def announce_controller_ready(self, log_dirs: LogDirs, server: Server) -> None:
        """Report that other nodes can connect to this controller."""
        self._begin_watch(log_dirs, server)
        _log.info(
            "controller %d is ready after %.3f s", self._config.node_id, self._start_seconds()
        )

    def _begin_watch(self, log_dirs: LogDirs, server: Server) -> LoopWatch:
        self._notices = Notices(log_dirs, server.closed_by_reason, self._clock)
        garbage = GarbageCollection(lambda: server.requests_bytes)
        self._watch = LoopWatch(
            asyncio.get_running_loop(),
            self._clock,
            [self._notices.look],
            [self.meters.a_minute_has_passed, garbage.a_minute_has_passed],
        )
        self._watch.start()
        self._admin.health.set_ready(self._watch, log_dirs)
        return self._watch

    def _start_seconds(self) -> float:
        return (self._clock.monotonic_ms() - self._started_ms) / _MS_PER_SECOND

    async def watch_over(self, serving: Coroutine[Any, Any, None]) -> None:
        """Wait for this to end; NoLogDirLeftError if every log dir has failed before."""
        await first_of(serving, self._wait_for_last_log_dir())

    async def _wait_for_last_log_dir(self) -> None:
        assert self._notices is not None
        await self._notices.no_folder_left.wait()
        raise NoLogDirLeftError("every log directory has failed: the broker cannot go on")

    def announce_stop(self) -> None:
        """Report that no more clients are accepted."""
        self._admin.health.set_stopping()
        _log.info("broker %d stops", self._config.node_id)

    async def close(self) -> None:
        """Watch no more."""
        if self._watch is not None:
            self._watch.stop()
        await self._admin.close()
        _log.info("broker %d has stopped", self._config.node_id)
