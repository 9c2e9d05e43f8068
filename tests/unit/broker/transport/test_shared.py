"""The log lines of requests that cannot be handled."""

import logging

import pytest

from ottla.broker.dispatch import Peer
from ottla.broker.transport.shared import WARNING_EACH_MS, InvalidRequests
from ottla.wire.protocol_error import MessageTooLargeError, ProtocolError


class SetClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def monotonic_ns(self) -> int:
        return self.ms * 1_000_000


def test_requests_beyond_a_limit_leave_one_warning_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SetClock()
    requests = InvalidRequests(clock)
    peer = Peer("10.0.0.7", "PLAINTEXT")
    with caplog.at_level(logging.INFO):
        for _ in range(1_000):
            requests.log(peer, MessageTooLargeError("a large request"))
            requests.log(peer, ProtocolError("garbage"))
        clock.ms = WARNING_EACH_MS
        requests.log(peer, MessageTooLargeError("a large request"))
    first, second = caplog.messages
    assert first.startswith("10.0.0.7 on PLAINTEXT sent ")
    assert first.endswith("a large request")
    assert second.endswith("a large request; 999 more requests before it")
