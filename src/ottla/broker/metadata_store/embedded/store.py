"""The metadata store of a single broker: its own controller, and a log on its own disk.

    execute --> decide --> append --> [ fsync, prepare ] --> publish the image --> respond
                  |          |              |                       |
            one at a time, each sees        |                 listeners, before the response
            all earlier decisions           |
                                        on threads: when a client sees a topic, its
                                        logs exist

Decisions continue while earlier ones wait for the disk, so that one fsync covers all of them. A
decision is visible to later decisions at once, and to all other code when it is durable: the
controller's image is ahead of the published image.
"""

import asyncio
import logging
import posixpath
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple, Self, TypeVar

from ottla.broker.metadata_store.embedded.metadata_log import (
    METADATA_PARTITION,
    DamagedMetadataError,
    MetadataLog,
)
from ottla.broker.metadata_store.meta_properties import (
    Identity,
    OnFailed,
    claim_folders,
    fail_all,
)
from ottla.environment.clock import Clock
from ottla.environment.disk import Disk
from ottla.environment.randomness import Randomness
from ottla.machines.controller.machine import Controller
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord
from ottla.metadata.replay import UnreplayableRecordError
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

OnChange = Callable[[ClusterImage, Sequence[MetadataRecord]], None]
"""Told of each decision once it is durable: the new image, and the records that led to it."""
Prepare = Callable[[ClusterImage, Sequence[MetadataRecord]], Awaitable[None]]
"""Slow work for a durable decision, before it is published."""
T = TypeVar("T")

_log = logging.getLogger(__name__)
_PARTITION_FOLDER: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}-[0-9]{1,10}")


class _Uncommitted(NamedTuple):
    """A decision that is in the log, and not yet known to be durable."""

    image: ClusterImage
    records: tuple[MetadataRecord, ...]
    outcome: "asyncio.Future[ApiError | None]"
    """None once it is durable, or why that is not known."""


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
        self.image = controller.image
        """The committed metadata: the only image that handlers may use."""
        self._log = log
        self._controller = controller
        self._clock = clock
        self._threads = threads
        self._listeners: list[OnChange] = []
        self._preparations: list[Prepare] = []
        self._pending: deque[_Uncommitted] = deque()
        self._committing: asyncio.Task[None] | None = None
        self._refusal: ApiError | None = None

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

        On return, everything in the log is durable, and in `image`. Raises ForeignFolderError,
        DamagedMetadataError, OSError or ApiError if the broker must not start. `threads` run
        blocking work; the default is the event loop's executor. `on_failed` is called with every
        unusable log dir, and may raise.
        """
        node_id = settings.broker_id
        identity = claim_folders(disk, log_dirs, node_id, randomness, on_failed=on_failed)
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
            log.append(records, now_ms)
            controller.replay(records, log.end_offset)
        # Also records that a dead process left in the page cache: they are visible from now on.
        log.flush(now_ms)
        return cls(identity, log, controller, clock, threads)

    def subscribe(self, on_change: OnChange) -> None:
        """Call a listener for every change from now on, in order, before the response.

        It must not raise: the change has happened. If it does, the store refuses everything.
        """
        self._listeners.append(on_change)

    def prepare_by(self, prepare: Prepare) -> None:
        """Call a function before each publication from now on; it must not raise either."""
        self._preparations.append(prepare)

    async def execute(self, decide: Callable[[Controller], Decision[MetadataRecord, T]]) -> T:
        """Decide, make it durable, call the listeners, and return the decision's response.

        ApiErrors of `decide` come through. A decision without records waits, too, until the state
        that it has read is durable. Cancelling the wait does not take the decision back.
        """
        if self._refusal is not None:
            raise ApiError(self._refusal.code, self._refusal.detail)
        decision = decide(self._controller)
        if decision.records:
            self._append(decision.records)
        if self._pending:
            self._commit_soon()
            error = await asyncio.shield(self._pending[-1].outcome)
            if error is not None:
                raise ApiError(error.code, error.detail)
        return decision.response

    async def close(self) -> None:
        """Refuse new decisions, finish the running ones, and close the log.

        Raises ApiError or OSError for a failure of the disk; acknowledged decisions are safe.
        """
        self._refusal = self._refusal or ApiError(ErrorCode.NOT_CONTROLLER, "the broker stops")
        if self._committing is not None:
            await asyncio.wait([self._committing])
        if not self._log.is_offline:
            self._log.close(self._clock.now_ms())

    # -- one decision ---------------------------------------------------------------------------

    def _append(self, records: tuple[MetadataRecord, ...]) -> None:
        before = self._controller.image
        # Replayed first: records that cannot be replayed must not get into the log.
        self._controller.replay(records, before.end_offset + len(records))
        try:
            self._log.append(records, self._clock.now_ms())
        except BaseException:
            self._controller.image = before
            raise
        image = self._controller.image
        assert image.end_offset == self._log.end_offset, (image.end_offset, self._log.end_offset)
        self._wait_for_commit(image, records)

    def _wait_for_commit(self, image: ClusterImage, records: tuple[MetadataRecord, ...]) -> None:
        outcome = asyncio.get_running_loop().create_future()
        self._pending.append(_Uncommitted(image, records, outcome))

    # -- committing -----------------------------------------------------------------------------

    def _commit_soon(self) -> None:
        if self._committing is None:
            self._committing = asyncio.ensure_future(self._commit())

    async def _commit(self) -> None:
        """Flush and publish as long as there is something, one flush after the other."""
        try:
            while self._pending:
                count = len(self._pending)
                error = await self._sync()
                if error is not None:
                    self._answer_pending(error)
                    return
                for _ in range(count):
                    await self._publish(self._pending[0])
                if self._log.needs_checkpoint:
                    loop = asyncio.get_running_loop()
                    await loop.run_in_executor(self._threads, self._write_checkpoint)
        except BaseException as error:
            self._refusal = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"metadata: {error!r}")
            self._answer_pending(self._refusal)
            raise
        finally:
            self._committing = None

    async def _sync(self) -> ApiError | None:
        """Sync the log as it is now; return the disk's failure, if any."""
        try:
            flush = self._log.begin_flush()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, flush.run)
            self._log.end_flush(flush, self._clock.now_ms())
        except ApiError as error:
            _log.error("metadata log: %s", error.detail)  # the disk's fault: no traceback
            return error
        return None

    async def _publish(self, decided: _Uncommitted) -> None:
        for prepare in self._preparations:
            await prepare(decided.image, decided.records)
        self.image = decided.image
        for on_change in self._listeners:
            on_change(decided.image, decided.records)
        self._pending.popleft()
        decided.outcome.set_result(None)

    def _write_checkpoint(self) -> None:
        try:
            self._log.write_checkpoint()
        except OSError as error:  # the log is durable without the checkpoint; the next may succeed
            _log.warning("metadata log: no checkpoint: %s", error)

    def _answer_pending(self, error: ApiError) -> None:
        """Fail the waiting callers; their decisions are published if a later flush succeeds."""
        answered, self._pending = self._pending, deque()
        for decided in answered:
            decided.outcome.set_result(error)
            self._wait_for_commit(decided.image, decided.records)


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
