"""The office of one leader of the quorum during a migration: brokers of two kinds, two stores.

    take the office in ZooKeeper, and read everything there
      --> complete the log --> decide: first ZooKeeper, then the log
                                      look at the sessions in ZooKeeper, and at the phase

Brokers with their metadata in ZooKeeper are alive as long as their sessions there. They follow this
controller by the same Fetch as a broker that is the controller. The offsets of this feed are the
offsets of the log, above every offset of an earlier term.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from ottla.broker.metadata_store.metadata_history import MetadataFeed, first_offset
from ottla.broker.metadata_store.migration.copied_image import copying_records
from ottla.broker.metadata_store.migration.zookeeper_office import ZooKeeperOffice
from ottla.broker.metadata_store.zookeeper.migration_nodes import (
    MIGRATION,
    MigrationPhase,
    migration_data,
    read_migration,
)
from ottla.broker.metadata_store.zookeeper.unfinished_work import (
    elect_where_nobody_leads,
    is_same_life,
    missing_states,
    repairs,
)
from ottla.broker.metadata_store.zookeeper.znode_reads import Loaded, live_brokers, load
from ottla.broker.metadata_store.zookeeper.znode_writes import Unit, commits_for
from ottla.broker.metadata_store.zookeeper.znodes import LiveBroker
from ottla.environment.clock import Clock
from ottla.environment.zookeeper import BadVersionError, Write
from ottla.machines.controller.brokers import may_run
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.image import BrokerImage, ClusterImage, ZkMigrationState
from ottla.metadata.log_replay import ImageChange
from ottla.metadata.records import (
    AbortTransactionRecord,
    MetadataRecord,
    NoOpRecord,
    ZkMigrationStateRecord,
)
from ottla.metadata.replay import replay
from ottla.model.identifiers import BrokerId, Offset

LOOK_SECONDS: Final = 0.5
_log = logging.getLogger(__name__)


Execute: TypeAlias = Callable[
    [Callable[[Controller], Decision[MetadataRecord, Any]]], Awaitable[Any]
]
"""Decides, commits and publishes; ApiError NOT_CONTROLLER if the office is over."""


class MigrationTerm:
    """Belongs to one event loop. `begin` it, and then `run` it as long as the office lasts."""

    def __init__(
        self,
        office: ZooKeeperOffice,
        loaded: Loaded,
        live: Mapping[BrokerId, LiveBroker],
        news: asyncio.Event,
        clock: Clock,
    ) -> None:
        """`news` is set when a broker has come or gone in ZooKeeper, or when the phase changes."""
        self.office = office
        self.is_final = office.phase is MigrationPhase.FINALIZED
        """Whether decisions from now on are in the log alone."""
        self._loaded = loaded
        self._live = live
        self._news = news
        self._clock = clock
        self._feed: MetadataFeed | None = None
        self._has_pending = False
        self.is_closed = False
        self.on_over: Callable[[], None] = lambda: None
        """Called when the office that belongs to this term ends."""

    @classmethod
    async def begin(cls, office: ZooKeeperOffice, clock: Clock) -> "MigrationTerm":
        """Read everything in ZooKeeper, and complete the unfinished work of an earlier term.

        ZooKeeperError if the office is lost, UnreadableZnodeError for an invalid node.
        """
        news = asyncio.Event()
        news.set()
        loaded = await load(office.session)
        if office.phase is not MigrationPhase.FINALIZED:
            for unit in repairs(loaded):
                await office.commit(unit)
            for unit in await missing_states(office.session, loaded, office.epoch):
                await office.commit(unit)
        live = await live_brokers(office.session)
        return cls(office, loaded, live, news, clock)

    # -- decisions ------------------------------------------------------------------------------

    def copied(self, controller: Controller) -> tuple[MetadataRecord, ...]:
        """Return the first decision: everything that the log lacks."""
        is_final = self.office.phase is MigrationPhase.FINALIZED
        controller.sessions.in_zookeeper = frozenset(() if is_final else self._live)
        state = ZkMigrationState.POST_MIGRATION if is_final else ZkMigrationState.MIGRATION
        return copying_records(controller.image, self._loaded, self._live, state)

    def commits(self, before: ClusterImage, records: Sequence[MetadataRecord]) -> list[Unit]:
        """Return the writes to ZooKeeper that come before these records are in the log.

        ApiError POLICY_VIOLATION for data that no node can hold.
        """
        state = next(
            (one.zk_migration_state for one in records if isinstance(one, ZkMigrationStateRecord)),
            None,
        )
        is_of_log = state == ZkMigrationState.MIGRATION or isinstance(
            records[0], AbortTransactionRecord
        )
        if self.is_final or is_of_log:  # a copy from ZooKeeper, or a matter of the log
            return []
        if state == ZkMigrationState.POST_MIGRATION:
            self.is_final = True
            return [[Write(MIGRATION, migration_data(MigrationPhase.FINALIZED))]]
        after = replay(before, records, Offset(before.end_offset + len(records)))
        return commits_for(before, after, records, self.office.epoch, is_migrating=True)

    # -- the feed of brokers with their metadata in ZooKeeper -----------------------------------

    @property
    def feed(self) -> MetadataFeed | None:
        """The decisions for these brokers, once the copy is in the log."""
        return self._feed

    def publish(self, changes: Sequence[ImageChange]) -> None:
        """Add committed decisions to the feed; records without effect fill gaps in the offsets."""
        if self.is_closed:
            return
        for image, records in changes:
            moved = replace(image, end_offset=self._feed_offset(image.end_offset))
            if self._feed is None:
                self._feed = MetadataFeed(self.office.epoch, moved, self._clock.now_ms())
                continue
            gap = moved.end_offset - self._feed.end_offset - len(records)
            self._feed.add((*[NoOpRecord()] * gap, *records), moved, self._clock.now_ms())

    def log_offset(self, feed_offset: int) -> Offset:
        """Return the offset of the log for one of the feed; -1 for one of an earlier term."""
        return Offset(max(feed_offset - first_offset(self.office.epoch), -1))

    def _feed_offset(self, end_offset: Offset) -> Offset:
        return Offset(first_offset(self.office.epoch) + end_offset)

    # -- brokers --------------------------------------------------------------------------------

    async def run(self, execute: Execute, controller: Controller) -> None:
        """Follow the sessions in ZooKeeper and the phase until the migration is finalized.

        ApiError NOT_CONTROLLER or ZooKeeperError if the office is over.
        """
        if self.office.phase is MigrationPhase.COPYING:
            await execute(lambda _: Decision((), None))  # the copy is committed
            await self.office.set_phase(MigrationPhase.DUAL)
            _log.info("the metadata in ZooKeeper is copied to the quorum: both are written now")
        if not self.is_final:
            await self._look_around(execute, controller)
            await execute(elect_where_nobody_leads)
        while not self.is_final:
            if await self._wait_for_news():
                await self._look_around(execute, controller)
        await execute(lambda _: Decision((), None))
        _log.info("the migration is finalized: ZooKeeper is not written any more")

    def close(self) -> None:
        """Tell brokers that wait for the feed that it is over."""
        self.is_closed = True
        if self._feed is not None:
            self._feed.close()

    async def _wait_for_news(self) -> bool:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._news.wait()
        except TimeoutError:
            # A broker that comes back may have to wait until its former session is over.
            return self._has_pending
        return True

    async def _look_around(self, execute: Execute, controller: Controller) -> None:
        self._news.clear()
        self._live = await live_brokers(self.office.session, self._news.set)
        controller.sessions.in_zookeeper = frozenset(self._live)
        brokers = controller.image.brokers.values()
        gone = frozenset(one.broker_id for one in brokers if self._is_gone(one))
        for broker_id in sorted(gone):
            await execute(partial(Controller.fence_broker, broker_id=broker_id, gone=gone))
        self._has_pending = False
        for life in self._live.values():
            await self._see(life, execute, controller)
        await self._look_at_phase(execute)

    def _is_gone(self, broker: BrokerImage) -> bool:
        is_here = is_same_life(broker, self._live.get(broker.broker_id))
        return broker.is_in_zookeeper and not broker.is_fenced and not is_here

    async def _see(self, life: LiveBroker, execute: Execute, controller: Controller) -> None:
        """Record a registration in ZooKeeper, once no former incarnation can run any more."""
        broker_id = life.broker.broker_id
        fenced = replace(life.broker, is_fenced=True, is_in_zookeeper=True)
        known = controller.image.brokers.get(broker_id)
        if known is not None and known.is_in_zookeeper and is_same_life(known, life):
            return
        if known is not None and not known.is_fenced:
            sessions, now_ms = controller.sessions, self._clock.monotonic_ms()
            if may_run(known, fenced, sessions, now_ms):
                self._has_pending = True
                return
            await execute(partial(Controller.fence_broker, broker_id=broker_id))
        if life.has_lost_tail and known is not None:
            await execute(partial(Controller.forget_tail, broker_id=broker_id))
        await execute(partial(Controller.register_broker, broker=fenced))
        await execute(partial(Controller.unfence_broker, broker_id=broker_id))

    async def _look_at_phase(self, execute: Execute) -> None:
        """Finalize the migration if the operator asks for it, and no broker is in ZooKeeper."""
        node = await self.office.session.get(MIGRATION, self._news.set)
        self.office.phase = read_migration(node.data)
        if self.office.phase is MigrationPhase.ROLLED_BACK:
            raise BadVersionError("the operator has rolled the migration back")
        if self.office.phase is not MigrationPhase.FINALIZING:
            return
        if self._live:
            left = ", ".join(map(str, sorted(self._live)))
            _log.warning("not finalized: the brokers %s have their metadata in ZooKeeper", left)
            await self.office.set_phase(MigrationPhase.DUAL)
            return
        state = ZkMigrationStateRecord(zk_migration_state=ZkMigrationState.POST_MIGRATION)
        await execute(lambda _: Decision((state,), None))
