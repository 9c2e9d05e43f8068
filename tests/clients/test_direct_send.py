"""Batches sent from the caller's own thread: in order like all others under any interference.

The rules for every awaited record, from any thread, are tested in test_producer.
"""

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ottla.clients.producer.async_producer import AsyncProducer
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.sending import direct_send
from ottla.clients.producer.state.errors import ProducerClosedError
from ottla.testing import Broker
from tests.clients.cutting_proxy import CuttingProxy, _read_frame, broker_behind
from tests.clients.test_producer import read, values

SECONDS = 60
pytestmark = pytest.mark.skipif(
    direct_send.DirectSend is None,
    reason="without a compiler the sender's thread sends all batches",
)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"num.partitions": "1"}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def _hasty_threads() -> Iterator[None]:
    """Switch threads often, so that their steps interleave."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(params=[0, 5], ids=["at-once", "lingering"])
def producer(servers: str, request: pytest.FixtureRequest) -> Iterator[Producer]:
    with Producer(bootstrap_servers=servers, linger_ms=request.param) as made:
        yield made


@contextmanager
def standing_still(broker: Broker) -> Iterator[None]:
    """Block the broker's event loop until the block ends."""
    begun, ended = threading.Event(), threading.Event()

    def stand_still() -> None:
        begun.set()
        ended.wait(SECONDS)

    loop: Any = broker._run._loop  # type: ignore[union-attr]
    loop.call_soon_threadsafe(stand_still)
    begun.wait(SECONDS)
    try:
        yield
    finally:
        ended.set()


def direct_send_of(producer: Any) -> Any:
    """Send until the direct send was granted to the only lane, and return it."""
    return next(iter(producer._core.accumulator.lanes())).direct_send


def keep_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the lanes' direct sends while a test inspects them."""
    monkeypatch.setattr(direct_send, "OFFER_MS", 20_000)


def send_and_wait(producer: Producer, topic: str, count: int) -> list[int]:
    return [producer.send(topic, b"%d" % n).result(SECONDS).offset for n in range(count)]


def test_all_but_the_first_go_from_the_thread_that_waits_and_all_are_counted(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_offers(monkeypatch)
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        assert send_and_wait(producer, topic, 300) == list(range(300))
        assert direct_send_of(producer).sends > 200
        assert direct_send_of(producer).responses > 100
        counts = producer.metrics()
        assert counts["record-send-total"] == 300
        assert counts["buffer-available-bytes"] == counts["buffer-total-bytes"]
        assert counts["requests-in-flight"] == 0
        assert counts["request-total"] == counts["response-total"]
    assert values(read(servers, topic, 300)) == [b"%d" % n for n in range(300)]


def test_single_records_and_bulk_keep_their_order(
    servers: str, topic: str, producer: Producer
) -> None:
    for number in range(0, 600, 3):
        single = producer.send(topic, b"%d" % number)
        producer.send_many(topic, [b"%d" % (number + 1), b"%d" % (number + 2)])
        if number % 4 == 0:
            assert single.result(SECONDS).offset == number
    producer.flush(SECONDS)
    assert values(read(servers, topic, 600)) == [b"%d" % n for n in range(600)]


def test_a_flush_in_place_of_a_wait_completes_every_record(topic: str, producer: Producer) -> None:
    for number in range(200):
        delivery = producer.send(topic, b"x")
        producer.flush(SECONDS)
        assert delivery.done()
        assert delivery.result().offset == number


def test_several_threads_wait_for_a_full_buffer(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers, linger_ms=0, buffer_memory=1_500) as producer:
        threads = [
            threading.Thread(
                target=lambda: [
                    producer.send(topic, bytes(900)).result(SECONDS) for _ in range(100)
                ]
            )
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.metrics()["record-send-total"] == 300


def test_a_broker_that_restarts_is_found_again(topic: str, tmp_path: Path) -> None:
    with (
        Broker(data_dir=tmp_path) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer,
    ):
        for round_number in range(3):
            for number in range(20):
                offset = producer.send(topic, b"x").result(SECONDS).offset
                assert offset == 20 * round_number + number
            broker.restart()


STRAY_ANSWER = bytes.fromhex("00000006 7fffff00 0000")


class MeddlingProxy(CuttingProxy):
    """Forwards responses whole, in two pieces, after a stray one, and joined, in rotation."""

    async def _pump_answers(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, asked: set[int]
    ) -> None:
        for turn in count():
            frame = await _read_frame(source)
            pieces = [
                [frame],
                [frame[:20], frame[20:]],
                [STRAY_ANSWER, frame],
                [STRAY_ANSWER + frame],
                [frame + STRAY_ANSWER],
            ]
            for piece in pieces[turn % len(pieces)]:
                target.write(piece)
                await target.drain()
                await asyncio.sleep(0.001)


def test_responses_in_pieces_and_unexpected_responses_have_no_effect(topic: str) -> None:
    with (
        broker_behind(MeddlingProxy(every=1)) as servers,
        Producer(bootstrap_servers=servers, linger_ms=0) as producer,
    ):
        assert send_and_wait(producer, topic, 100) == list(range(100))
        assert producer.metrics()["record-retry-total"] == 0


class HoldingProxy(CuttingProxy):
    """When set to hold, keeps two responses, forwards the first, and disconnects for the second."""

    is_holding = False

    async def _pump_answers(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, asked: set[int]
    ) -> None:
        held: list[bytes] = []
        while len(held) < 2:
            frame = await _read_frame(source)
            if self.is_holding and int.from_bytes(frame[4:8], "big") in asked:
                held.append(frame)
            else:
                target.write(frame)
        target.write(held[0])
        await target.drain()
        await asyncio.sleep(0.02)
        self.is_holding = False


def test_a_batch_to_be_sent_again_stays_when_the_batch_before_it_is_acknowledged(
    topic: str,
) -> None:
    proxy = HoldingProxy(every=1)
    with (
        broker_behind(proxy) as servers,
        Producer(bootstrap_servers=servers, linger_ms=0, retry_backoff_ms=5) as producer,
    ):
        for number in range(0, 20, 5):
            assert send_and_wait(producer, topic, 3) == [number, number + 1, number + 2]
            proxy.is_holding = True
            first = producer.send(topic, b"x")
            while not producer.metrics()["requests-in-flight"]:
                threading.Event().wait(0.001)
            second = producer.send(topic, b"x")
            assert first.result(SECONDS).offset == number + 3
            assert second.result(SECONDS).offset == number + 4
        assert producer.metrics()["record-retry-total"] >= 4


BEFORE_IT_IS_TAKEN = {
    "Producer.send",
    "PlainIdentity.sends_at_once",
    "ProducerCore._pick",
    "DirectSends._make_flight",
    "ReadyBatch.__init__",
    "InFlightRequests.make",
    "InFlightRequest.__init__",
    "SystemClock.monotonic_ms",
    "ProduceRequests.taking",
    "Connection.expect",
    "Connection._next_correlation_id",
    "BaseEventLoop.time",
    "key_of",
    "Pending.__init__",
    "__create_fn__.<locals>.__init__",
    "_Told.__init__",
    "wait_in_thread",
    "_running_loop",
}
AFTER_IT_IS_GIVEN_BACK = {
    "NetworkCounts.answered",
    "NetworkCounts.latency_of",
    "Latency.add",
    "<lambda>",  # makes a RecordMetadata
}


def test_no_python_code_runs_between_taking_and_giving_back(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where none runs, no signal handler does, and no other thread."""
    keep_offers(monkeypatch)
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        send_and_wait(producer, topic, 50)
        expected = direct_send_of(producer).responses + 20
        while direct_send_of(producer).responses < expected:
            called.clear()
            answers = direct_send_of(producer).responses
            sys.setprofile(note)
            producer.send(topic, b"x").result(SECONDS)
            sys.setprofile(None)
            if direct_send_of(producer).responses == answers:
                continue  # the sender was quicker
            assert set(called) <= BEFORE_IT_IS_TAKEN | AFTER_IT_IS_GIVEN_BACK


class Interrupted(BaseException):
    """The exception of a signal handler, as Ctrl-C raises one."""


@pytest.fixture
def _interrupts() -> Iterator[None]:
    """Make SIGALRM raise, once for each alarm."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.signal(signal.SIGALRM, before)


def no_more_alarms() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.usefixtures("_interrupts")
def test_interrupts_break_nothing(servers: str, topic: str, producer: Producer) -> None:
    send_and_wait(producer, topic, 3)
    deliveries = []
    interrupted = 0
    for number in range(3, 1_500):
        try:
            signal.setitimer(signal.ITIMER_REAL, (1 + number % 60) * 5e-6)
            delivery = producer.send(topic, b"%d" % number)
            deliveries.append((number, delivery))
            delivery.result(SECONDS)
            no_more_alarms()
            no_more_alarms()  # a pending alarm is raised here at the latest
        except Interrupted:
            interrupted += 1
    offsets = {row.result(SECONDS).offset: b"%d" % number for number, row in deliveries}
    assert interrupted > 10
    assert len(offsets) == len(deliveries)
    producer.flush(SECONDS)
    found = values(read(servers, topic, len(deliveries)))
    assert {offset: found[offset] for offset in offsets} == offsets
    assert [int(value) for value in found] == sorted(set(map(int, found)))
    assert producer.metrics()["requests-in-flight"] == 0


def test_an_answer_that_does_not_come_is_waited_for_by_the_sender(topic: str) -> None:
    with Broker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        send_and_wait(producer, topic, 3)
        with standing_still(broker):
            delivery = producer.send(topic, b"x")
            with pytest.raises(TimeoutError):
                delivery.result(0.2)
            with pytest.raises(TimeoutError):
                delivery.result(0)
        assert delivery.result(SECONDS).offset == 3


def test_closing_wakes_a_thread_that_waits_for_a_response(topic: str) -> None:
    with Broker() as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0)
        send_and_wait(producer, topic, 3)
        failures: list[BaseException | None] = []
        with standing_still(broker):
            delivery = producer.send(topic, b"x")
            waiting = threading.Thread(target=lambda: failures.append(delivery.exception()))
            waiting.start()
            producer.close(0)
            waiting.join(SECONDS)
        assert isinstance(failures[0], ProducerClosedError)


def test_a_request_that_is_not_answered_in_time_is_sent_again(topic: str) -> None:
    with (
        Broker() as broker,
        Producer(
            bootstrap_servers=broker.bootstrap_servers, linger_ms=0, request_timeout_ms=300
        ) as producer,
    ):
        send_and_wait(producer, topic, 3)
        with standing_still(broker):
            delivery = producer.send(topic, b"x")
            retried = threading.Event()
            while not producer.metrics()["record-retry-total"]:
                retried.wait(0.01)
        assert delivery.result(SECONDS).offset == 3


def test_offers_end_and_the_sender_looks_after_the_lane_again(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_send, "OFFER_MS", 1)
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        assert send_and_wait(producer, topic, 300) == list(range(300))
        producer._core.sender.leaders._used_at.clear()
        assert send_and_wait(producer, topic, 300) == list(range(300, 600))
        assert topic in producer._core.sender.leaders._used_at


def test_a_child_process_does_not_touch_its_parents_connection(
    topic: str, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_offers(monkeypatch)
    with Producer(bootstrap_servers=servers, linger_ms=60_000) as producer:
        send_and_wait(producer, topic, 5)
        producer.send(topic, b"5")
        lane = next(iter(producer._core.accumulator.lanes()))
        child = os.fork()
        if child == 0:
            os._exit(int(lane.direct_send.send(lane.open)))
        assert os.waitpid(child, 0)[1] == 0
        assert lane.direct_send.send(lane.open)
        producer.flush(SECONDS)
        assert send_and_wait(producer, topic, 5) == [6, 7, 8, 9, 10]


def test_asyncio_uses_it_too(servers: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_offers(monkeypatch)

    async def run() -> list[int]:
        async with AsyncProducer(bootstrap_servers=servers, linger_ms=0) as producer:
            offsets = [(await (await producer.send(topic, b"x"))).offset for _ in range(50)]
            assert direct_send_of(producer).sends > 30
            return offsets

    assert asyncio.run(run()) == list(range(50))


def test_a_socket_that_takes_only_a_part_is_given_up_and_nothing_is_lost(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_offers(monkeypatch)
    with Producer(bootstrap_servers=servers, linger_ms=60_000, retry_backoff_ms=5) as producer:
        send_and_wait(producer, topic, 3)
        producer.send(topic, b"x" * 10_000)
        lane = next(iter(producer._core.accumulator.lanes()))
        connected = lane.queue.lane.direct_send.connection.stream.socket
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        producer.flush(SECONDS)
        assert send_and_wait(producer, topic, 3) == [4, 5, 6]
