"""Commits from the caller's own thread: as reliable as all others under any interference."""

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from types import FrameType
from typing import Any, Self

import pytest

from ottla import Consumer, Producer
from ottla.clients.errors import ClientClosedError
from ottla.clients.producer.sending import direct_send
from ottla.clients.producer.transactions import commit_ways, end_express
from ottla.clients.producer.transactions.transaction_errors import TransactionFailedError
from ottla.clients.producer.transactions.transaction_state import State
from ottla.testing import Broker
from tests.clients.cutting_proxy import CuttingProxy, broker_behind
from tests.clients.test_producer_express import (
    SECONDS,
    Interrupted,
    MeddlingProxy,
    keep_offers,
    no_more_alarms,
    standing_still,
)
from tests.clients.test_producer_express import _hasty_threads as _hasty_threads  # noqa: PLC0414
from tests.clients.test_producer_express import _interrupts as _interrupts  # noqa: PLC0414

LARGE = 900_000
pytestmark = pytest.mark.skipif(
    direct_send.Express is None, reason="without a compiler the client's own thread commits"
)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"num.partitions": "1"}) as broker:
        yield broker.bootstrap_servers


@contextmanager
def transactional(servers: str, **settings: Any) -> Iterator[Producer]:
    """Return a producer that has committed, so that its thread may do so from now on."""
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


def way_of(producer: Any) -> Any:
    """Return the express path of the next commit, if it may go from the caller's thread."""
    return producer._core.transactions._coordinator.ends._express


def leave_little_room(producer: Producer) -> None:
    """Shrink the send buffer of the next commit's socket to a part of a batch."""
    way = way_of(producer)
    if way is not None and way.connection.is_open:
        sent_by = way.connection.stream.socket
        sent_by.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)


def keep_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep commits on the waiting thread, even on a slow, busy machine."""
    keep_offers(monkeypatch)
    monkeypatch.setattr(end_express, "SOON_MS", 10_000)
    monkeypatch.setattr(commit_ways, "LATE_MS", 10_000)


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


def lane_of(producer: Any) -> Any:
    return next(iter(producer._core.accumulator.lanes()))


@pytest.mark.parametrize("size", [10, LARGE])
def test_all_but_the_first_commits_go_from_the_thread_that_waits_and_all_are_counted(
    servers: str, topic: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_offers(monkeypatch)
    with transactional(servers) as producer:
        for number in range(60):
            commit_one(producer, topic, b"%d" % number + bytes(size))
        assert way_of(producer).answers > 40
        assert lane_of(producer).express.answers > 40
        counts = producer.metrics()
        assert counts["record-send-total"] == 60
        assert counts["buffer-available-bytes"] == counts["buffer-total-bytes"]
        assert counts["requests-in-flight"] == 0
        assert counts["request-total"] == counts["response-total"]
    found = committed(servers, topic, 60)
    assert found == [b"%d" % number + bytes(size) for number in range(60)]


def test_a_transaction_of_many_partitions_goes_the_long_way(servers: str, topic: str) -> None:
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


def test_what_is_waited_for_inside_a_transaction_may_go_the_short_way_too(
    servers: str, topic: str
) -> None:
    with transactional(servers) as producer:
        for number in range(20):
            with producer.transaction():
                sent = [producer.send(topic, b"%d" % part).result(SECONDS) for part in range(3)]
            first = 4 * number  # the marker of each transaction is its fourth
            assert [row.offset for row in sent] == [first, first + 1, first + 2]
    assert committed(servers, topic, 60) == [b"0", b"1", b"2"] * 20


def test_a_socket_with_little_room_takes_a_large_batch_piece_by_piece(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_offers(monkeypatch)
    values = [b"%d" % number + bytes(LARGE) for number in range(8)]
    with transactional(servers) as producer:
        commit_one(producer, topic, b"first")
        leave_little_room(producer)
        with meanwhile(lambda: producer.partitions_for(topic)):
            for value in values:
                commit_one(producer, topic, value)
        assert lane_of(producer).express.departures > 0
        assert producer.metrics()["record-retry-total"] == 0
    assert committed(servers, topic, 9) == [b"first", *values]


def test_no_other_thread_comes_between_taking_a_large_batch_and_having_it_on_its_way(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without forced switches, threads switch only at waits."""
    keep_short_way(monkeypatch)
    lost = []

    def look() -> None:
        lane = lane_of(producer)
        if (
            lane.open is None
            and not lane.outbox.flying
            and lane in producer._core.accumulator.active
        ):
            lost.append(lane)
        sleep(0)

    with transactional(servers) as producer:
        commit_one(producer, topic, b"first")
        sys.setswitchinterval(10)
        with meanwhile(look):
            for _ in range(100):
                commit_one(producer, topic, bytes(LARGE))
        assert lane_of(producer).express.departures > 50
    assert not lost


def test_a_broker_that_stands_still_is_waited_for_by_the_clients_own_thread(topic: str) -> None:
    with Broker() as broker, transactional(broker.bootstrap_servers) as producer:
        commit_one(producer, topic, b"first")
        values = [b"%d" % number + bytes(LARGE) for number in range(3)]
        for value in values:
            with standing_still(broker):
                producer.begin_transaction()
                producer.send(topic, value)
                committing = threading.Thread(target=producer.commit_transaction)
                committing.start()
                committing.join(5 * direct_send.WAIT_MS_MAX / 1000)
                assert committing.is_alive()
            committing.join(SECONDS)
            assert not committing.is_alive()
            commit_one(producer, topic, b"between")
        found = committed(broker.bootstrap_servers, topic, 7)
    assert found == [b"first", *(part for value in values for part in (value, b"between"))]


def test_a_coordinator_that_takes_long_is_not_asked_twice(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_express, "SOON_MS", -1)
    with transactional(servers) as producer:
        for number in range(5):
            commit_one(producer, topic, b"%d" % number)
            assert way_of(producer) is None
    assert committed(servers, topic, 5) == [b"%d" % number for number in range(5)]


def test_where_commits_are_late_both_ways_are_tried_and_the_short_one_is_kept(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_offers(monkeypatch)
    monkeypatch.setattr(commit_ways, "LATE_MS", 0)
    monkeypatch.setattr(commit_ways, "TRIED", 5)
    monkeypatch.setattr(commit_ways, "MUCH", 0)  # regardless of the time of the long path
    with transactional(servers) as producer:
        ways = producer._core.transactions._coordinator.ends.ways
        went_short = []
        for number in range(20):
            went_short.append(ways.is_short)
            commit_one(producer, topic, b"%d" % number)
    assert went_short.count(False) == 5
    assert went_short[-1]
    assert committed(servers, topic, 20) == [b"%d" % number for number in range(20)]


def test_a_broker_that_restarts_is_found_again(topic: str, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, transactional(broker.bootstrap_servers) as producer:
        for round_number in range(3):
            for number in range(10):
                commit_one(producer, topic, b"%d" % (10 * round_number + number))
            broker.restart()
        found = committed(broker.bootstrap_servers, topic, 30)
    assert found == [b"%d" % number for number in range(30)]


def test_answers_in_pieces_and_answers_to_nobody_disturb_nobody(topic: str) -> None:
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
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_short_way(monkeypatch)
    monkeypatch.setattr(direct_send, "WAIT_MS_MAX", 1_000)
    failures: list[BaseException] = []
    with Broker() as broker, transactional(broker.bootstrap_servers) as producer:
        commit_one(producer, topic, b"0")
        leave_little_room(producer)
        stream = way_of(producer).connection.stream

        def commit() -> None:
            with pytest.raises(ClientClosedError) as told:
                commit_one(producer, topic, bytes(LARGE))
            failures.append(told.value)

        with standing_still(broker):
            committing = threading.Thread(target=commit)
            committing.start()
            while not stream.is_sending and not stream.unsent:
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
        if producer._core.transactions.state is not State.READY:
            producer.commit_transaction()
        return True
    return False


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


def test_no_python_code_runs_while_an_end_is_sent_or_taken(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where none runs, no signal handler does, and no other thread."""
    keep_offers(monkeypatch)
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    with transactional(servers) as producer:
        for number in range(20):
            commit_one(producer, topic, b"%d" % number)
        producer.begin_transaction()
        producer.send(topic, b"x").result(SECONDS)
        way, who = way_of(producer), producer._core.transactions._who
        sys.setprofile(note)
        told = way.ask(*who, direct_send.WAIT_MS_MAX)
        sys.setprofile(None)
        assert told == (who.producer_id, who.epoch + 1)
        producer.commit_transaction()  # returns the same outcome once more
    assert set(called) <= {
        "Connection.expect",
        "Connection._next_correlation_id",
        "BaseEventLoop.time",
        "key_of",
        "Pending.__init__",
        "__create_fn__.<locals>.__init__",
        "_Told.__init__",
        "NetworkCounts.answered",
        "NetworkCounts.latency_of",
        "Latency.add",
    }
