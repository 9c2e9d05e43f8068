"""Limits from the configuration, and the memory limit for requests.

Used memory is counted, and waiting connections are notified once.
"""

import sys

from ottla.broker.transport.connection_limits import ConnectionLimits, RequestMemory
from ottla.model.settings.broker_config import BrokerConfig


class Waiter:
    """Counts its notifications."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


def full_of_requests() -> RequestMemory:
    memory = RequestMemory(100)
    memory.answering(100)
    return memory


def full_of_parts() -> RequestMemory:
    memory = RequestMemory(100)
    memory.arriving(100)
    return memory


def test_it_is_full_when_both_kinds_together_take_all_of_it() -> None:
    memory = RequestMemory(100)
    memory.arriving(60)
    memory.answering(39)
    assert not memory.is_full
    memory.answering(1)
    assert memory.is_full
    memory.arriving(-60)
    assert not memory.is_full


def test_waiting_connections_are_woken_once_when_there_is_room() -> None:
    memory = full_of_requests()
    memory.answering(20)
    waiters = [Waiter(), Waiter()]
    for waiter in waiters:
        memory.wait(waiter.wake, has_part=True)
    memory.answering(-20)
    assert [waiter.woken for waiter in waiters] == [0, 0]
    memory.answering(-1)
    assert [waiter.woken for waiter in waiters] == [1, 1]
    memory.answering(-1)
    assert [waiter.woken for waiter in waiters] == [1, 1]


def test_a_woken_connection_may_wait_again() -> None:
    memory = full_of_requests()
    woken: list[int] = []

    def take_all_again() -> None:
        woken.append(memory.answering_bytes)
        memory.answering(100)
        memory.wait(take_all_again, has_part=True)

    memory.wait(take_all_again, has_part=True)
    memory.answering(-100)
    memory.answering(-30)
    assert woken == [0, 70]


def test_a_closed_connection_is_not_woken() -> None:
    memory = full_of_requests()
    waiter = Waiter()
    memory.wait(waiter.wake, has_part=True)
    memory.forget(waiter.wake)
    memory.forget(waiter.wake)
    memory.answering(-100)
    assert waiter.woken == 0


def test_when_all_have_a_part_of_a_request_one_at_a_time_is_favoured() -> None:
    memory = full_of_parts()
    first, second = Waiter(), Waiter()
    assert memory.favours(first.wake)
    assert not memory.favours(second.wake)
    memory.wait(second.wake, has_part=True)
    assert memory.favours(first.wake)
    assert second.woken == 0
    memory.forget(first.wake)
    assert second.woken == 1
    assert memory.favours(second.wake)


def test_no_connection_is_favoured_while_ending_requests_take_half() -> None:
    memory = full_of_parts()
    waiter = Waiter()
    memory.answering(50)
    assert not memory.favours(waiter.wake)
    memory.wait(waiter.wake, has_part=True)
    memory.answering(-1)
    assert waiter.woken == 1
    assert memory.favours(waiter.wake)


def test_a_connection_without_request_memory_does_not_delay_connections_with_some() -> None:
    memory = full_of_parts()
    favoured, without, having = Waiter(), Waiter(), Waiter()
    assert memory.favours(favoured.wake)
    memory.wait(without.wake, has_part=False)
    memory.wait(having.wake, has_part=True)
    memory.forget(favoured.wake)
    assert (without.woken, having.woken) == (0, 1)
    memory.arriving(-1)
    assert (without.woken, having.woken) == (1, 1)


def test_every_limit_that_can_be_set_is_taken_over() -> None:
    limits = ConnectionLimits.from_config(
        BrokerConfig.parse(
            {
                "socket.request.max.bytes": "1",
                "max.connections": "2",
                "max.connections.per.ip": "3",
                "connections.max.idle.ms": "4",
                "queued.max.request.bytes": "5",
                "socket.send.buffer.bytes": "6",
            }
        )
    )
    assert (limits.frame_bytes_max, limits.connections_max) == (1, 2)
    assert (limits.connections_per_address_max, limits.idle_ms_max) == (3, 4)
    assert (limits.request_bytes_max, limits.send_buffer_bytes) == (5, 6)


def test_minus_one_is_no_limit() -> None:
    settings = {"connections.max.idle.ms": "-1", "queued.max.request.bytes": "-1"}
    limits = ConnectionLimits.from_config(BrokerConfig.parse(settings))
    assert (limits.idle_ms_max, limits.request_bytes_max) == (sys.maxsize, sys.maxsize)
