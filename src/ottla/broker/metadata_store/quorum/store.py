"""The metadata store of a node in a quorum of controllers.

    replica: committed up to here --> replay --> publish the image
             this node leads      --> begin an office: decide, propose, commit, publish
             another node leads   --> end the office, and go back to the last committed image

Every node has the image: brokers serve by it, and a controller that becomes active goes on from it
at once. A node publishes committed records only, a metadata transaction at its end, and never goes
back. A record that cannot be replayed ends the process: this release does not understand the log.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeVar

from ottla.broker.decision_runtime import Outcome
from ottla.broker.metadata_store.image_publisher import ImagePublisher, OnChange, Prepare
from ottla.broker.metadata_store.migration.migration import Migration
from ottla.broker.metadata_store.migration.migration_term import MigrationTerm
from ottla.broker.metadata_store.migration.zookeeper_office import MigrationRefusedError
from ottla.broker.metadata_store.quorum.office import Office
from ottla.broker.metadata_store.quorum.proposed_log import Changes
from ottla.broker.metadata_store.quorum.snapshot_writer import SnapshotSettings, SnapshotWriter
from ottla.broker.metadata_store.zookeeper.znodes import UnreadableZnodeError
from ottla.broker.quorum.metadata_replica import MetadataReplica
from ottla.concurrency.first_of import first_of, pause_seconds
from ottla.environment.clock import Clock
from ottla.environment.zookeeper import ZooKeeperError
from ottla.machines.controller.machine import Controller
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.difference import records_between
from ottla.metadata.image import ClusterImage, ZkMigrationState
from ottla.metadata.log_replay import ImageChange, MetadataLogReplay
from ottla.metadata.record_frames import metadata_records_of
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, LeaderEpoch, Offset
from ottla.raft.snapshots import SnapshotId
from ottla.wire.records.batch import RecordBatch

LOOP_BYTES_MAX: Final = 64 << 10
"""Batches up to this size are replayed on the event loop, larger ones on a thread."""
IDLE_CHECK_SECONDS: Final = 0.5
DEPOSED_CHECK_SECONDS: Final = 0.05
TERM_PAUSE_SECONDS: Final = 0.1
T = TypeVar("T")
_log = logging.getLogger(__name__)


class QuorumMetadataStore:
    """Publishes committed records; decides while this node is the active controller.

    Belongs to one event loop. Call `run` once.
    """

    def __init__(
        self,
        cluster_id: str,
        replica: MetadataReplica,
        settings: ControllerSettings,
        *,
        clock: Clock,
        threads: Executor | None,
        bootstrap: Callable[[], Sequence[MetadataRecord]],
        snapshots: SnapshotSettings,
        idle_ms: int,
    ) -> None:
        """Listen to a replica, which was opened in the same step.

        `bootstrap` returns the first records of a cluster without any. While nothing is decided, a
        record without effect is written every `idle_ms`; never if that is 0.
        """
        image = ClusterImage(cluster_id)
        self._replica = replica
        self._replay = MetadataLogReplay(image)
        self._controller = Controller(image, settings)
        self._clock = clock
        self._threads = threads
        self._bootstrap = bootstrap
        self._idle_ms = idle_ms
        self._migration: Migration | None = None
        self._term: MigrationTerm | None = None
        self._term_running: asyncio.Task[None] | None = None
        self._publisher = ImagePublisher(image)
        self._snapshots = SnapshotWriter(replica, snapshots, clock, threads)
        self._office: Office | None = None
        self._on_office: list[Callable[[], None]] = []
        self._has_new_snapshot = replica.newest_snapshot() is not None
        self._knows_committed = False
        self._is_caught_up = asyncio.Event()
        self._is_closed = False
        self._news = asyncio.Event()
        self._news.set()
        replica.listen(self)

    # -- the interface of stores ----------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """The published metadata: the only image that handlers may use."""
        return self._publisher.image

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""
        return self._office is not None and not self._office.is_over and self._replica.is_leader

    @property
    def active_epoch(self) -> LeaderEpoch | None:
        """The epoch in which this node decides; None if it is not the active controller."""
        return self._office.epoch if self._office is not None and self.is_active else None

    @property
    def next_expiry_ms(self) -> int | None:
        """When the session of a broker ends next, on the monotonic clock; None if none does."""
        if not self.is_active:
            return None
        brokers = self._controller.image.brokers.values()
        return self._controller.sessions.next_expiry_ms(brokers)

    def subscribe(self, on_change: OnChange) -> None:
        """Call a listener for every image from now on, in order; it must not raise."""
        self._publisher.subscribe(on_change)

    def prepare_by(self, prepare: Prepare) -> None:
        """Call a function before each publication from now on; it must not raise either."""
        self._publisher.prepare_by(prepare)

    def on_office(self, listener: Callable[[], None]) -> None:
        """Call a listener when this node becomes the active controller, and when that is over."""
        self._on_office.append(listener)

    async def execute(self, decide: Callable[[Controller], Decision[MetadataRecord, T]]) -> T:
        """Decide, commit, call the listeners, and return the response of the decision.

        ApiErrors of `decide` come through. NOT_CONTROLLER means that this node is not the active
        controller, or that the outcome is unknown. Cancelling the wait does not take the decision
        back.
        """
        office = self._office
        if office is None or self._is_closed or not self._replica.is_leader:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
        self._publisher.check()
        try:
            return await office.execute(decide)
        finally:
            if office.is_over:
                # A decision that failed halfway has ended the office, and this node may still
                # lead: the next office has to begin without a change of the leader.
                self._news.set()

    async def wait_until_caught_up(self) -> None:
        """Wait until the image is as new as the quorum was at some time after the start."""
        await self._is_caught_up.wait()

    async def close(self) -> None:
        """Decide nothing more; `run` has to be cancelled before."""
        self._is_closed = True
        self._end_office()
        await self._end_term()
        await self._snapshots.close()
        await self._publisher.close()

    # -- the listener of the replica ------------------------------------------------------------

    def on_leader(self, epoch: LeaderEpoch, _leader_id: BrokerId | None) -> None:
        """End the office of an earlier epoch at once; begin one in the next step."""
        office = self._office
        if office is not None and (office.epoch != epoch or not self._replica.is_leader):
            self._end_office()
        self._news.set()

    def on_committed(self, high_watermark: Offset) -> None:
        """Publish the decisions of the office, or the records of another, up to here."""
        self._knows_committed = True
        if self._office is not None:
            self._replay.commit(min(high_watermark, self._office.proposed_offset))
            self._office.on_committed()
        self._news.set()

    def on_snapshot(self, _snapshot_id: SnapshotId) -> None:
        """Load the snapshot: the log before it is not here."""
        self._has_new_snapshot = True
        self._news.set()

    # -- following ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the log, and decide while this node leads, until cancelled.

        Raises ApiError if an image cannot be published, or if the first records of the cluster
        cannot be used; UnreplayableRecordError or ProtocolError for a log that this release does
        not understand; MigrationRefusedError if the quorum does not match its ZooKeeper.
        """
        await first_of(self._follow(), self._watch_time(), self._publisher.wait_for_failure())

    async def _follow(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            if self._office is not None and self._office.is_over:
                self._end_office()
            if self._office is None:
                await self._end_term()
                await self._catch_up()
                if self._may_begin() and self._needs_term():
                    await first_of(self._begin_term(), self._until_deposed(self._replica.epoch))
                    await self._catch_up()
                self._begin_office()

    async def _catch_up(self) -> None:
        """Replay committed records, and publish their images."""
        while self._has_new_snapshot or self._replay.end_offset < self._replica.high_watermark:
            if self._has_new_snapshot:
                await self._load_snapshot()
                continue
            try:
                batches = self._replica.read(self._replay.end_offset, self._replica.high_watermark)
            except LookupError:
                self._has_new_snapshot = True
                continue
            size_bytes = sum(batch.size_bytes for batch in batches)
            changes = await self._replayed(batches, size_bytes)
            self._snapshots.add(size_bytes)
            self._publish(tuple(changes))
        if self._knows_committed:
            self._is_caught_up.set()

    async def _replayed(
        self, batches: Sequence[RecordBatch], size_bytes: int
    ) -> Sequence[ImageChange]:
        if size_bytes <= LOOP_BYTES_MAX:
            return self._replay.catch_up(batches)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._replay.catch_up, batches)

    async def _load_snapshot(self) -> None:
        self._has_new_snapshot = False
        found = self._replica.newest_snapshot()
        if found is None or found[0].end_offset <= self._replay.end_offset:
            return
        snapshot_id, batches = found

        def load() -> ImageChange:
            records = (record for batch in batches for record in metadata_records_of(batch))
            return self._replay.load(records, Offset(snapshot_id.end_offset))

        change = await asyncio.get_running_loop().run_in_executor(self._threads, load)
        self._snapshots.reset(change.image.end_offset)
        self._publish((change,))

    def _publish(self, changes: Changes) -> Outcome | None:
        outcome = None
        for change in changes:
            outcome = self._publisher.publish(change.image, change.records)
        return outcome

    # -- the office -----------------------------------------------------------------------------

    def _may_begin(self) -> bool:
        """Return whether this node leads, and knows everything before its epoch.

        A leader begins its epoch with a record. Once that is committed, all earlier records are
        committed, too.
        """
        replica = self._replica
        is_whole = self._replay.end_offset == replica.end_offset == replica.high_watermark
        return replica.is_leader and is_whole and not self._is_closed

    def _begin_office(self) -> None:
        """Become the active controller, if nothing is in the way."""
        replica, term = self._replica, self._term
        if not self._may_begin() or (self._needs_term() and term is None):
            return
        self._office = Office(
            replica.epoch,
            replica,
            self._replay,
            self._controller,
            self._clock,
            self._publish if term is None else partial(self._publish_to_both, term),
            self._snapshots.add,
            term,
        )
        try:
            self._office.begin(self._bootstrap)
        except ApiError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise  # The first records of the cluster cannot be read, or not be written.
            _log.info("this node is not the active controller yet: %s", error)
            self._end_office()
            return
        if term is not None:
            self._term_running = asyncio.ensure_future(self._run_term(term, self._office))
        _log.info("this node is the active controller, epoch %d", replica.epoch)
        for listener in self._on_office:
            listener()

    def _end_office(self) -> None:
        """Drop everything that is not committed, and publish everything that is."""
        office, self._office = self._office, None
        if office is None:
            return
        office.end()
        self._replay.go_back()
        latest, image = self._publisher.latest, self._replay.image
        if image.end_offset > latest.end_offset:
            self._publisher.publish(image, records_between(latest, image))
        _log.info("this node is not the active controller any more, epoch %d", office.epoch)
        for listener in self._on_office:
            listener()
        self._news.set()

    # -- the office in ZooKeeper, during a migration ---------------------------------------------

    def migrate_by(self, migration: Migration) -> None:
        """Take the metadata from ZooKeeper, and write it there, too; call this before `run`."""
        self._migration = migration

    def _needs_term(self) -> bool:
        image = self._replay.image
        if self._migration is not None:
            return self._migration.is_due(image)
        if image.zk_migration_state == ZkMigrationState.MIGRATION:
            raise MigrationRefusedError(
                "the migration of this cluster from ZooKeeper is not finalized: this controller"
                " needs zookeeper.metadata.migration.enable=true and zookeeper.connect"
            )
        return False

    async def _begin_term(self) -> None:
        assert self._migration is not None, "`_needs_term` has looked"
        self._term = await self._migration.begin_term(self._replica.epoch, self._replay.image)
        self._term.on_over = self._news.set

    async def _until_deposed(self, epoch: LeaderEpoch) -> None:
        while self._replica.is_leader and self._replica.epoch == epoch:
            await pause_seconds(DEPOSED_CHECK_SECONDS)

    async def _run_term(self, term: MigrationTerm, office: Office) -> None:
        """Follow ZooKeeper as long as the office lasts; any doubt there ends the office."""
        assert self._migration is not None, "it has begun the term"
        try:
            await term.run(office.execute, self._controller)
            await self._migration.end_term(term)  # finalized
        except (UnreadableZnodeError, ZooKeeperError) as error:
            _log.warning("this controller loses its office in ZooKeeper: %r", error)
        except ApiError as error:
            if error.code != ErrorCode.NOT_CONTROLLER:
                raise
        finally:
            if not term.is_closed:
                office.end()

    async def _end_term(self) -> None:
        """Close a term; the next term begins a little later."""
        running, self._term_running = self._term_running, None
        if running is not None:
            running.cancel()
            await asyncio.wait([running])
        term, self._term = self._term, None
        if term is not None and self._migration is not None and not term.is_closed:
            await self._migration.end_term(term)
            await pause_seconds(TERM_PAUSE_SECONDS)
        if running is not None and not running.cancelled():
            running.result()

    def _publish_to_both(self, term: MigrationTerm, changes: Changes) -> Outcome | None:
        term.publish(changes)
        return self._publish(changes)

    # -- time -----------------------------------------------------------------------------------

    async def _watch_time(self) -> None:
        """Write records without effect while nothing is decided, and snapshots when due."""
        idle_seconds = self._idle_ms / 1000 or IDLE_CHECK_SECONDS
        known = self._replay.end_offset
        while True:
            await pause_seconds(idle_seconds)
            office = self._office
            if self._idle_ms and office is not None and self.is_active:
                if self._replay.end_offset == known:
                    self._write_no_op(office)
                known = self._replay.end_offset
            self._snapshots.write_if_due(self._image_at_batch_end)

    def _write_no_op(self, office: Office) -> None:
        try:
            office.write_no_op()
        except ApiError as error:
            _log.info("no record without effect is written: %s", error)

    def _image_at_batch_end(self) -> ClusterImage | None:
        image = self._replay.image
        return image if image.end_offset == self._replay.committed_offset else None
