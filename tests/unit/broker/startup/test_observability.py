"""Log lines about failed log dirs and refused connections."""

import errno
import logging
from collections import Counter
from pathlib import Path

import pytest

from ottla.broker.startup.observability import REFUSALS_TOLD_EACH_MS, Notices
from ottla.broker.transport.connection_limits import CloseReason
from ottla.runtime.disk import KernelDisk
from ottla.storage.log_dirs.log_dirs import LogDirs


class DrivenClock:
    time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms

    def monotonic_ns(self) -> int:
        return self.time_ms * 1_000_000


@pytest.fixture
def log_dirs(tmp_path: Path) -> LogDirs:
    return LogDirs(KernelDisk(), [str(tmp_path / "one"), str(tmp_path / "two")])


def test_a_folder_that_failed_is_told_once(
    log_dirs: LogDirs, caplog: pytest.LogCaptureFixture
) -> None:
    notices = Notices(log_dirs, Counter(), DrivenClock())
    notices.look()
    assert caplog.records == []
    log_dirs.dirs[1].fail(OSError(errno.EIO, "bad disk"))
    notices.look()
    notices.look()
    (told,) = caplog.records
    assert told.levelno == logging.ERROR
    assert "two has failed" in told.message
    assert "bad disk" in told.message


def test_refusals_are_told_together_and_not_too_often(
    log_dirs: LogDirs, caplog: pytest.LogCaptureFixture
) -> None:
    counts: Counter[CloseReason] = Counter()
    clock = DrivenClock()
    notices = Notices(log_dirs, counts, clock)
    for _ in range(5):
        counts[CloseReason.TOO_MANY_CONNECTIONS] += 10
        counts[CloseReason.IDLE] += 1
        notices.look()
    assert caplog.messages == ["10 connections were not let in: too-many-connections"]
    clock.time_ms += REFUSALS_TOLD_EACH_MS
    notices.look()
    assert caplog.messages[1:] == ["40 connections were not let in: too-many-connections"]
