"""Liveness and readiness, from the start of a broker to its stop."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.admin.health import SILENT_MS_MAX, Health
from ottla.broker.metrics.loop_watch import LoopWatch
from ottla.runtime.disk import KernelDisk
from ottla.storage.log_dirs.log_dirs import LogDirs


class DrivenClock:
    def __init__(self, time_ms: int = 1_000_000) -> None:
        self.time_ms = time_ms

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms

    def monotonic_ns(self) -> int:
        return self.time_ms * 1_000_000


@pytest.fixture
def watch() -> Iterator[LoopWatch]:
    loop = asyncio.new_event_loop()
    yield LoopWatch(loop, DrivenClock())
    loop.close()


@pytest.fixture
def log_dirs(tmp_path: Path) -> LogDirs:
    return LogDirs(KernelDisk(), [str(tmp_path)])


def test_a_broker_is_alive_all_the_time_and_ready_in_between(
    watch: LoopWatch, log_dirs: LogDirs
) -> None:
    health = Health(DrivenClock())
    assert health.why_not_alive() == []
    assert health.why_not_ready() == ["the broker is starting: its logs are being opened"]
    health.set_ready(watch, log_dirs)
    assert health.why_not_alive() == health.why_not_ready() == []
    health.set_stopping()
    assert health.why_not_alive() == []
    assert health.why_not_ready() == ["the broker is stopping"]


def test_a_loop_that_does_not_turn_is_not_alive(watch: LoopWatch, log_dirs: LogDirs) -> None:
    clock = DrivenClock(watch.beat_ms)
    health = Health(clock)
    health.set_ready(watch, log_dirs)
    clock.time_ms += SILENT_MS_MAX
    assert health.why_not_alive() == health.why_not_ready() == []
    clock.time_ms += 1
    reasons = ["the event loop has not turned for 10001 ms"]
    assert health.why_not_alive() == health.why_not_ready() == reasons


def test_a_broker_without_any_folder_is_not_ready(watch: LoopWatch, log_dirs: LogDirs) -> None:
    health = Health(DrivenClock())
    health.set_ready(watch, log_dirs)
    log_dirs.dirs[0].fail(OSError(errno.EIO, "bad disk"))
    assert health.why_not_ready() == ["all log directories have failed"]
    assert health.why_not_alive() == []
