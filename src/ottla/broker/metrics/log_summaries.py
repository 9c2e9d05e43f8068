"""Periodic log lines from counters, instead of one line per event."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from ottla.broker.transport.close_reason import CloseReason
from ottla.environment.clock import Clock
from ottla.storage.log_dirs.log_dirs import LogDirs

REFUSALS_TOLD_EACH_MS: Final = 60_000
_REFUSALS: Final = (CloseReason.TOO_MANY_CONNECTIONS, CloseReason.TOO_MANY_FROM_ADDRESS)
_log = logging.getLogger(__name__)


class Notices:
    """Checks once a second for failed log dirs and refused connections."""

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
        self._look_at_folders()
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms and self._tell_refusals():
            self._next_ms = now_ms + REFUSALS_TOLD_EACH_MS

    def _look_at_folders(self) -> None:
        for folder in self._log_dirs.dirs:
            if not folder.is_online and folder.path not in self._told_folders:
                self._told_folders.add(folder.path)
                _log.error(
                    "%s has failed: its partitions are offline until a restart: %s",
                    folder.path,
                    folder.failure,
                    extra={"folder": folder.path},
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
