"""Hints in a broker's responses: the current leader, a throttle time, an unknown producer id."""

import asyncio
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla.clients.producer.producer import Producer
from ottla.model.error_code import ErrorCode
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import decode_response, encode_response
from ottla.wire.messages.produce import LeaderIdAndEpoch, ProduceRequest, ProduceResponse
from tests.clients.cutting_proxy import CuttingProxy, _read_frame, broker_behind

SECONDS = 60
LATEST = ProduceRequest.versions[1]
_CORRELATION_ID = struct.Struct(">i")
Alter = Callable[[ProduceResponse], None]


class AlteringProxy(CuttingProxy):
    """Alters responses to Produce on their way, one for each given change."""

    def __init__(self, *changes: Alter) -> None:
        super().__init__(every=1)
        self._changes = list(changes)

    async def _pump_answers(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, asked: set[int]
    ) -> None:
        while True:
            frame = await _read_frame(source)
            (correlation_id,) = _CORRELATION_ID.unpack_from(frame, 4)
            if correlation_id in asked and self._changes:
                _, answer = decode_response(ApiKey.PRODUCE, LATEST, memoryview(frame)[4:])
                assert isinstance(answer, ProduceResponse)
                self._changes.pop(0)(answer)
                pieces = encode_response(ApiKey.PRODUCE, LATEST, correlation_id, answer)
                frame = b"".join(pieces)
            target.write(frame)
            await target.drain()


@contextmanager
def altered(*changes: Alter, retry_backoff_ms: int = 5) -> Iterator[Producer]:
    with (
        broker_behind(AlteringProxy(*changes)) as servers,
        Producer(
            bootstrap_servers=servers,
            linger_ms=0,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=max(retry_backoff_ms, 1000),
        ) as producer,
    ):
        yield producer


def refuse(code: ErrorCode, leader: LeaderIdAndEpoch | None = None) -> Alter:
    def change(answer: ProduceResponse) -> None:
        row = answer.responses[0].partition_responses[0]
        row.error_code = code
        row.base_offset = -1
        row.current_leader = leader

    return change


def leave_as_it_is(_: ProduceResponse) -> None:
    """Change nothing."""


def test_a_hint_of_the_new_leader_is_followed_without_a_delay(topic: str) -> None:
    hint = refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, LeaderIdAndEpoch(leader_id=1, leader_epoch=99))
    with altered(leave_as_it_is, hint, retry_backoff_ms=100_000) as producer:
        producer.send(topic, b"first").result(SECONDS)
        assert producer.send(topic, b"second").result(SECONDS).offset == 1
        assert producer.metrics()["record-retry-total"] == 1


def test_a_broker_that_wants_to_be_left_alone_is(topic: str) -> None:
    def throttle(answer: ProduceResponse) -> None:
        answer.throttle_time_ms = 400

    with altered(leave_as_it_is, throttle) as producer:
        producer.send(topic, b"first").result(SECONDS)
        began = time.monotonic()
        producer.send(topic, b"second").result(SECONDS)  # its response arrives after this moment
        assert producer.send(topic, b"third").result(SECONDS).offset == 2
        assert time.monotonic() - began >= 0.4
        assert producer.metrics()["throttle-time-total"] == 400


def test_a_broker_that_knows_nothing_of_the_producer_gets_a_new_epoch(topic: str) -> None:
    unknown = refuse(ErrorCode.UNKNOWN_PRODUCER_ID)
    with altered(leave_as_it_is, unknown) as producer:
        producer.send(topic, b"first").result(SECONDS)
        epoch = producer._core.sender.identity.producer_epoch
        second = producer.send(topic, b"second")
        assert second.result(SECONDS).offset == 2  # the proxy has lied: it had been written, at 1
        assert producer._core.sender.identity.producer_epoch == epoch + 1
        assert producer.send(topic, b"third").result(SECONDS).offset == 3
