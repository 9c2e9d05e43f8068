"""The event loop watchdog."""

import asyncio
import time

import pytest

from ottla.broker.metrics import loop_watch
from ottla.broker.metrics.loop_watch import LoopWatch
from ottla.runtime.clock import SystemClock

STALL_SECONDS = 0.3


def test_a_stall_is_seen_and_remembered() -> None:
    async def scenario() -> LoopWatch:
        watch = LoopWatch(asyncio.get_running_loop(), SystemClock())
        watch.start()
        time.sleep(STALL_SECONDS)  # noqa: ASYNC251 - that is the stall
        await asyncio.sleep(2 * loop_watch.BEAT_SECONDS)
        watch.stop()
        return watch

    watch = asyncio.run(scenario())
    assert watch.lag_seconds_max >= STALL_SECONDS - loop_watch.BEAT_SECONDS - 0.01


def test_it_beats_until_it_is_stopped() -> None:
    async def scenario() -> list[int]:
        watch = LoopWatch(asyncio.get_running_loop(), SystemClock())
        beats = [watch.beat_ms]
        watch.start()
        await asyncio.sleep(2 * loop_watch.BEAT_SECONDS)
        watch.stop()
        beats.append(watch.beat_ms)
        await asyncio.sleep(2 * loop_watch.BEAT_SECONDS)
        return [*beats, watch.beat_ms]

    first, second, third = asyncio.run(scenario())
    assert first < second == third


def test_others_are_called_as_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "BEAT_SECONDS", 0.001)
    calls: list[str] = []

    async def scenario() -> LoopWatch:
        is_over = asyncio.Event()
        minute = [lambda: calls.append("minute"), is_over.set]
        loop = asyncio.get_running_loop()
        watch = LoopWatch(loop, SystemClock(), [lambda: calls.append("second")], minute)
        watch.start()
        await is_over.wait()
        watch.stop()
        return watch

    watch = asyncio.run(scenario())
    assert calls.index("minute") == 59, "it comes with the sixtieth second"
    assert 0 <= watch.idle_ratio <= 1
