"""The clocks of this machine."""

import time

from ottla.runtime.clock import SystemClock


def test_now_is_between_what_the_machine_says_before_and_after() -> None:
    clock = SystemClock()
    before = time.time_ns() // 1_000_000
    assert before <= clock.now_ms() <= time.time_ns() // 1_000_000


def test_the_monotonic_clock_is_another_one() -> None:
    clock = SystemClock()
    before = time.monotonic_ns() // 1_000_000
    assert before <= clock.monotonic_ms() <= time.monotonic_ns() // 1_000_000
