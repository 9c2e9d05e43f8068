"""Commits that are disturbed: by signals, other threads, restarts, and broken connections."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any, Self

import pytest

from ottla import Consumer, Producer
from ottla.clients.errors import ClientClosedError
from ottla.clients.producer.transactions.transaction_errors import TransactionFailedError
from ottla.clients.producer.transactions.transaction_state import State
from ottla.testing import Broker
from tests.clients.cutting_proxy import CuttingProxy, broker_behind
from tests.clients.test_direct_send import (
    SECONDS,
    Interrupted,
    MeddlingProxy,
    no_more_alarms,
    standing_still,
)
from tests.clients.test_direct_send import _hasty_threads as _hasty_threads  # noqa: PLC0414
from tests.clients.test_direct_send import _interrupts as _interrupts  # noqa: PLC0414

LARGE = 900_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"num.partitions": "1"}) as broker:
        yield broker.bootstrap_servers


@contextmanager
def transactional(servers: str, **settings: Any) -> Iterator[Producer]:
    """Return a producer that may begin its first transaction."""
    with Producer(bootstrap_servers=servers, transactional_id="copier", **settings) as producer:
        producer.init_transactions()
        yield producer


def commit_one(producer: Producer, topic: str, value: bytes) -> None:
    with producer.transaction():
        producer.send(topic, value)


def committed(servers: str, topic: str, count: int) -> list[bytes]:
    """Return this many committed values, plus any that follow at once."""
    found: list[bytes] = []
    with Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([(topic, 0)])
        while len(found) < count:
            records = consumer.poll(timeout=SECONDS)
            assert records, f"{count - len(found)} are missing"
            found += [record.value or b"" for record in records]
        found += [record.value or b"" for record in consumer.poll(timeout=0.1)]
    return found


def leave_little_room(producer: Any) -> None:
    """Shrink the send buffers of the open connections to a part of a batch."""
    for connection in producer._core.view._connections._open.values():
        if connection.is_open:
            connection.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)


@contextmanager
def meanwhile(call: Callable[[], object]) -> Iterator[None]:
    """Call this repeatedly in another thread until the block ends."""
    is_over = threading.Event()

    def call_on() -> None:
        while not is_over.is_set():
            call()

    calling = threading.Thread(target=call_on)
    calling.start()
    try:
        yield
    finally:
        is_over.set()
        calling.join()


def test_transactions_of_one_partition_of_several_and_of_none_follow_each_other(
    servers: str, topic: str
) -> None:
    with transactional(servers) as producer:
        commit_one(producer, topic, b"0")
        with producer.transaction():
            producer.send(topic, b"1")
            producer.send(f"{topic}-other", b"1")
        with producer.transaction():
            pass
        commit_one(producer, topic, b"2")
    assert committed(servers, topic, 3) == [b"0", b"1", b"2"]
    assert committed(servers, f"{topic}-other", 1) == [b"1"]


def test_records_can_be_awaited_inside_a_transaction(servers: str, topic: str) -> None:
    with transactional(servers) as producer:
        for number in range(20):
            with producer.transaction():
                sent = [producer.send(topic, b"%d" % part).result(SECONDS) for part in range(3)]
            first = 4 * number  # the marker of each transaction is its fourth
            assert [row.offset for row in sent] == [first, first + 1, first + 2]
    assert committed(servers, topic, 60) == [b"0", b"1", b"2"] * 20


def test_a_socket_with_little_room_takes_a_large_batch_piece_by_piece(
    servers: str, topic: str
) -> None:
    values = [b"%d" % number + bytes(LARGE) for number in range(8)]
    with transactional(servers) as producer:
        commit_one(producer, topic, b"first")
        leave_little_room(producer)
        with meanwhile(lambda: producer.partitions_for(topic)):
            for value in values:
                commit_one(producer, topic, value)
        assert producer.metrics()["record-retry-total"] == 0
    assert committed(servers, topic, 9) == [b"first", *values]


def test_a_commit_waits_for_a_broker_that_stands_still(topic: str) -> None:
    with Broker() as broker, transactional(broker.bootstrap_servers) as producer:
        commit_one(producer, topic, b"first")
        values = [b"%d" % number + bytes(LARGE) for number in range(3)]
        for value in values:
            with standing_still(broker):
                producer.begin_transaction()
                producer.send(topic, value)
                committing = threading.Thread(target=producer.commit_transaction)
                committing.start()
                committing.join(0.25)
                assert committing.is_alive()
            committing.join(SECONDS)
            assert not committing.is_alive()
            commit_one(producer, topic, b"between")
        found = committed(broker.bootstrap_servers, topic, 7)
    assert found == [b"first", *(part for value in values for part in (value, b"between"))]


def test_a_broker_that_restarts_is_found_again(topic: str, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, transactional(broker.bootstrap_servers) as producer:
        for round_number in range(3):
            for number in range(10):
                commit_one(producer, topic, b"%d" % (10 * round_number + number))
            broker.restart()
        found = committed(broker.bootstrap_servers, topic, 30)
    assert found == [b"%d" % number for number in range(30)]


def test_responses_in_pieces_and_unexpected_responses_have_no_effect(topic: str) -> None:
    with broker_behind(MeddlingProxy(every=1)) as servers, transactional(servers) as producer:
        for number in range(60):
            commit_one(producer, topic, b"%d" % number)
        found = committed(servers, topic, 60)
    assert found == [b"%d" % number for number in range(60)]


class BreakingProxy(CuttingProxy):
    """Breaks the connection in the middle of large requests, when the client is still sending."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        return self

    async def _pump_requests(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, asked: set[int]
    ) -> None:
        while True:
            size = await source.readexactly(4)
            frame_bytes = int.from_bytes(size, "big")
            if frame_bytes > LARGE and self.is_to_be_lost():
                await source.readexactly(LARGE // 2)
                return
            target.write(size + await source.readexactly(frame_bytes))
            await target.drain()


def test_a_connection_that_breaks_in_the_middle_of_a_batch_costs_nothing_but_time(
    topic: str,
) -> None:
    values = [b"%d" % number + bytes(LARGE) for number in range(20)]
    proxy = BreakingProxy(every=4)
    with broker_behind(proxy) as servers, transactional(servers) as producer:
        for value in values:
            leave_little_room(producer)
            commit_one(producer, topic, value)
        assert proxy.cuts >= 4
        assert committed(servers, topic, len(values)) == values


def wait_for_marker(servers: str, topic: str, offset: int) -> None:
    with Consumer(bootstrap_servers=servers) as consumer:
        while consumer.end_offsets([(topic, 0)])[topic, 0] <= offset:
            threading.Event().wait(0.05)


def test_a_transaction_that_ran_out_of_time_is_refused_as_ever(servers: str, topic: str) -> None:
    with transactional(servers, transaction_timeout_ms=200) as producer:
        commit_one(producer, topic, b"0")
        producer.begin_transaction()
        late = producer.send(topic, b"late").result(SECONDS)
        wait_for_marker(servers, topic, late.offset + 1)
        with pytest.raises(TransactionFailedError):
            producer.commit_transaction()
        producer.abort_transaction()
        commit_one(producer, topic, b"1")
    assert committed(servers, topic, 2) == [b"0", b"1"]


def test_closing_waits_for_a_commit_of_another_thread(topic: str) -> None:
    with Broker() as broker, transactional(broker.bootstrap_servers) as producer:
        commit_one(producer, topic, b"0")
        producer.begin_transaction()
        producer.send(topic, b"1")
        with standing_still(broker):
            committing = threading.Thread(target=producer.commit_transaction)
            committing.start()
            while producer._core.transactions.state is State.IN_TRANSACTION:
                threading.Event().wait(0.001)
            closing = threading.Thread(target=producer.close)
            closing.start()
            closing.join(0.2)
            assert closing.is_alive()
        closing.join(SECONDS)
        committing.join(SECONDS)
        assert not closing.is_alive()
        assert not committing.is_alive()
        assert committed(broker.bootstrap_servers, topic, 2) == [b"0", b"1"]


def test_closing_at_once_ends_a_commit_that_is_in_the_middle_of_a_batch(
    topic: str,
) -> None:
    failures: list[BaseException] = []
    with Broker() as broker, transactional(broker.bootstrap_servers) as producer:
        commit_one(producer, topic, b"0")
        leave_little_room(producer)
        connections = producer._core.view._connections._open.values()

        def commit() -> None:
            with pytest.raises(ClientClosedError) as told:
                commit_one(producer, topic, bytes(LARGE))
            failures.append(told.value)

        with standing_still(broker):
            committing = threading.Thread(target=commit)
            committing.start()
            while not any(connection.stream.unsent for connection in connections):
                sleep(0.001)
            producer.close(0)
            committing.join(SECONDS)
    assert len(failures) == 1


def is_interrupted(producer: Producer, seconds: float) -> bool:
    """Commit, once more after an interrupt; return whether there was one."""
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        producer.commit_transaction()
        no_more_alarms()
        no_more_alarms()  # a pending alarm is raised here at the latest
    except Interrupted:
        finished = producer._core.transactions
        if finished.state is not State.READY or finished.is_commit_unreported:
            producer.commit_transaction()
        return True
    return False


# An interrupt may come when the coroutine of a commit is made, and not posted yet.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.usefixtures("_interrupts")
def test_interrupts_break_nothing(servers: str, topic: str) -> None:
    """Calling commit again after an interrupt returns the outcome of the interrupted commit."""
    interrupted = 0
    with transactional(servers) as producer:
        commit_one(producer, topic, b"0")
        for number in range(1, 800):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            interrupted += is_interrupted(producer, (1 + number % 90) * 5e-6)
        commit_one(producer, topic, b"800")
    assert interrupted > 10
    assert committed(servers, topic, 801) == [b"%d" % number for number in range(801)]
