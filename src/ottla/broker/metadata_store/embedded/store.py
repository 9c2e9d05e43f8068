"""The metadata store of a single broker: its own controller, and a log on its own disk.

    decide --> replay, append --> [ fsync ] --> [ prepare ] --> publish the image --> respond
                                      |             |                   |
                                  on a thread   on threads: when     listeners, before
                                                a client sees a      the response
                                                topic, its logs
                                                exist

`decision_runtime.py` has the order of these steps. The controller's image is ahead of the published
one.
"""

import asyncio
import logging
import posixpath
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final, Self, TypeVar

from ottla.broker.decision_runtime import DecisionRuntime, Outcome
from ottla.broker.metadata_store.embedded.metadata_log import (
    METADATA_PARTITION,
    DamagedMetadataError,
    MetadataLog,
)
from ottla.broker.metadata_store.image_publisher import (
    ImagePublisher,
    OnChange,
    Prepare,
    PublishedChange,
)
from ottla.broker.metadata_store.meta_properties import (
    Identity,
    OnFailed,
    claim_log_dirs,
    fail_all,
)
from ottla.environment.clock import Clock
from ottla.environment.disk import Disk
from ottla.environment.randomness import Randomness
from ottla.machines.controller.machine import Controller
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage
from ottla.metadata.record_frames import as_written
from ottla.metadata.records import MetadataRecord
from ottla.metadata.replay import UnreplayableRecordError, replay
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset

T = TypeVar("T")

_log = logging.getLogger(__name__)
_PARTITION_FOLDER: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}-[0-9]{1,10}")


class _SyncedLog:
    """The controller's decisions in the metadata log; they are committed once they are synced."""

    def __init__(
        self, controller: Controller, log: MetadataLog, clock: Clock, threads: Executor | None
    ) -> None:
        self._controller = controller
        self._log = log
        self._clock = clock
        self._threads = threads
        self._disk_turn = asyncio.Lock()  # one flush or checkpoint after the other
        self._checkpointing: asyncio.Task[None] | None = None

    @property
    def end_offset(self) -> Offset:
        """The offset after the last decision."""
        return self._log.end_offset

    def write(self, records: tuple[MetadataRecord, ...]) -> PublishedChange | None:
        """Append and replay; the next image is computed first, so that nothing has to be undone."""
        if not records:
            return None
        before = self._controller.image
        records = as_written(records, before.metadata_version)
        after = replay(before, records, Offset(before.end_offset + len(records)))
        self._log.append(records, self._clock.now_ms(), before.metadata_version)
        assert after.end_offset == self._log.end_offset, (after.end_offset, self._log.end_offset)
        self._controller.image = after
        return PublishedChange(after, records)

    def is_committed(self, end_offset: Offset) -> bool:
        """Whether everything before an offset is synced."""
        return self._log.durable_offset >= end_offset

    async def committed(self, end_offset: Offset) -> None:
        """Sync the log as it is now, unless that is done meanwhile; ApiError if the disk fails."""
        async with self._disk_turn:
            if self.is_committed(end_offset):
                return
            try:
                flush = self._log.begin_flush()
                await self._on_thread(flush.run)
                self._log.end_flush(flush, self._clock.now_ms())
            except ApiError as error:
                _log.error("metadata log: %s", error.detail)  # the disk's fault: no traceback
                raise

    def write_checkpoint_if_due(self) -> None:
        """Begin to record the recovery point if much has become durable since the last time."""
        if self._log.needs_checkpoint and self._checkpointing is None:
            self._checkpointing = asyncio.ensure_future(self._write_checkpoint())

    async def _write_checkpoint(self) -> None:
        try:
            async with self._disk_turn:
                await self._on_thread(self._log.write_checkpoint)
        except OSError as error:  # the log is durable without the checkpoint; the next may succeed
            _log.warning("metadata log: no checkpoint: %s", error)
        finally:
            self._checkpointing = None

    async def _on_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def close(self) -> None:
        """Make everything durable. ApiError or OSError for a failure of the disk."""
        async with self._disk_turn:
            if not self._log.is_offline:
                self._log.close(self._clock.now_ms())


class EmbeddedMetadataStore:
    """Turns requests into committed metadata, one at a time. Belongs to one event loop.

    After a disk failure every request fails with KAFKA_STORAGE_ERROR until a restart; a full disk
    only refuses writes. A response with that code means that the decision was not durable in time:
    it may still take effect later, or after a restart, as after any lost response.
    """

    def __init__(
        self,
        identity: Identity,
        log: MetadataLog,
        controller: Controller,
        clock: Clock,
        threads: Executor | None,
    ) -> None:
        self.identity = identity
        self._log = _SyncedLog(controller, log, clock, threads)
        self._publisher = ImagePublisher(controller.image)
        self._runtime = DecisionRuntime(controller, self._log, self._publish)
        self._is_closed = False

    @classmethod
    def open(
        cls,
        disk: Disk,
        log_dirs: Sequence[str],
        settings: ControllerSettings,
        *,
        clock: Clock,
        randomness: Randomness,
        threads: Executor | None = None,
        on_failed: OnFailed = fail_all,
    ) -> Self:
        """Open the log in the first of the broker's log dirs, or create a cluster there.

        On return, everything in the log is durable, and in `image`. Raises ForeignLogDirError,
        DamagedMetadataError, OSError or ApiError if the broker must not start. `threads` run
        blocking work; the default is the event loop's executor. `on_failed` is called with every
        unusable log dir, and may raise.
        """
        node_id = settings.broker_id
        identity = claim_log_dirs(disk, log_dirs, node_id, randomness, on_failed=on_failed)
        now_ms = clock.now_ms()
        log = MetadataLog(disk, log_dirs[0], now_ms)
        for note in log.notes:
            _log.warning("metadata log: %s", note)
        if log.end_offset == 0:
            _check_no_partitions(disk, log_dirs, on_failed)
        controller = Controller(ClusterImage(identity.cluster_id), settings)
        try:
            controller.replay(log.read(), log.end_offset)
        except UnreplayableRecordError as error:
            raise DamagedMetadataError(
                f"records of the metadata log are missing: {error}"
            ) from error
        records = controller.bootstrap().records
        if records:
            log.append(records, now_ms, controller.image.metadata_version)
            controller.replay(records, log.end_offset)
        # Also records that a dead process left in the page cache: they are visible from now on.
        log.flush(now_ms)
        return cls(identity, log, controller, clock, threads)

    # -- the broker's interface -----------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """The committed metadata: the only image that handlers may use."""
        return self._publisher.image

    def subscribe(self, on_change: OnChange) -> None:
        """Call a listener for every change from now on, in order, before the response.

        It must not raise: the change has happened. If it does, the store refuses everything.
        """
        self._publisher.subscribe(on_change)

    def prepare_by(self, prepare: Prepare) -> None:
        """Call a function before each publication from now on; it must not raise either."""
        self._publisher.prepare_by(prepare)

    async def execute(self, decide: Callable[[Controller], Decision[MetadataRecord, T]]) -> T:
        """Decide, make it durable, call the listeners, and return the decision's response.

        ApiErrors of `decide` come through. A decision without records waits, too, until the state
        that it has read is durable. Cancelling the wait does not take the decision back.
        """
        if self._is_closed:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "the broker stops")
        self._publisher.check()
        response = self._runtime.decide(decide)
        await self._runtime.published()
        return response

    async def close(self) -> None:
        """Refuse new decisions, finish the running ones, and close the log.

        Raises ApiError or OSError for a failure of the disk; acknowledged decisions are safe.
        """
        self._is_closed = True
        await self._runtime.finish()
        await self._publisher.close()
        await self._log.close()

    def _publish(self, change: PublishedChange) -> Outcome:
        self._log.write_checkpoint_if_due()
        return self._publisher.publish(*change)


def _check_no_partitions(disk: Disk, log_dirs: Sequence[str], on_failed: OnFailed) -> None:
    """Refuse to create a cluster in log dirs with partitions of a cluster with lost metadata."""
    for path in log_dirs:
        try:
            names = disk.list_directory(path)
        except OSError as error:
            on_failed(path, error)
            continue
        for name in names:
            if _PARTITION_FOLDER.fullmatch(name) and name != str(METADATA_PARTITION):
                raise DamagedMetadataError(
                    f"{posixpath.join(path, name)} is there, and no metadata that knows of it"
                )
