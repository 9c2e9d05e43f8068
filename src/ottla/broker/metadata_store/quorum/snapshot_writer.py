"""Writes snapshots of the metadata log: after many bytes of records, or after a long time."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from ottla.broker.quorum.metadata_replica import MetadataReplica
from ottla.environment.clock import Clock
from ottla.metadata.difference import image_records
from ottla.metadata.image import ClusterImage
from ottla.metadata.metadata_version import METADATA_VERSION_FEATURE, NEWEST_METADATA_VERSION
from ottla.metadata.record_frames import batches_of
from ottla.model.api_error import ApiError
from ottla.model.identifiers import Offset

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """The settings `metadata.log.max.…`, with Kafka's defaults."""

    record_bytes_max: int = 20 << 20
    interval_ms: int = 3_600_000
    """0 is never."""


class SnapshotWriter:
    """Counts the records since the last snapshot. Belongs to one event loop."""

    def __init__(
        self,
        replica: MetadataReplica,
        settings: SnapshotSettings,
        clock: Clock,
        threads: Executor | None,
    ) -> None:
        self._replica = replica
        self._settings = settings
        self._clock = clock
        self._threads = threads
        self._record_bytes = 0
        self._last_ms = clock.monotonic_ms()
        self._last_offset = Offset(0)
        self._writing: asyncio.Task[None] | None = None

    def add(self, record_bytes: int) -> None:
        """Count committed records."""
        self._record_bytes += record_bytes

    def reset(self, end_offset: Offset) -> None:
        """Count from a snapshot with this end."""
        self._record_bytes = 0
        self._last_ms = self._clock.monotonic_ms()
        self._last_offset = end_offset

    def write_if_due(self, image: Callable[[], ClusterImage | None]) -> None:
        """Begin to write a snapshot of the committed image, if it is time and none is written now.

        The image is None while its end is inside of a batch.
        """
        if self._writing is not None or not self._is_due():
            return
        found = image()
        if found is not None and found.end_offset > self._last_offset:
            self._writing = asyncio.ensure_future(self._write(found))

    def _is_due(self) -> bool:
        interval_ms = self._settings.interval_ms
        is_late = 0 < interval_ms <= self._clock.monotonic_ms() - self._last_ms
        return self._record_bytes >= self._settings.record_bytes_max or is_late

    async def _write(self, image: ClusterImage) -> None:
        self.reset(image.end_offset)
        level = image.level_by_feature.get(METADATA_VERSION_FEATURE, NEWEST_METADATA_VERSION)
        now_ms = self._clock.now_ms()

        def made() -> list[bytearray]:
            return list(batches_of(image_records(image), level, now_ms))

        try:
            batches = await asyncio.get_running_loop().run_in_executor(self._threads, made)
            snapshot_id = await self._replica.save_snapshot(image.end_offset, batches)
        except (ApiError, OSError) as error:
            _log.warning("no snapshot of the metadata at offset %d: %s", image.end_offset, error)
        else:
            _log.info("wrote the snapshot %s of the metadata", snapshot_id.file_name)
        finally:
            self._writing = None

    async def close(self) -> None:
        """Wait until nothing is written."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
