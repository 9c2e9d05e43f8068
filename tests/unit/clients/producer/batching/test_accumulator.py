"""Both accumulators, compiled and fallback: equal records give equal batches and results."""

import asyncio
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ottla.clients.producer.batching import _accumulator_python, _delivery_python
from ottla.clients.producer.state.errors import RecordTooLargeError
from ottla.clients.records.partitioner import partition_for_key
from ottla.wire.records import _writing_python

PLAIN = SimpleNamespace(
    Accumulator=_accumulator_python.Accumulator,
    RecordAccumulator=_writing_python.RecordAccumulator,
    Batch=_delivery_python.Batch,
)
TWINS: list[Any] = [PLAIN]
try:
    from ottla.clients.producer.batching import _accumulator
    from ottla.wire.records import _writing
except ImportError:  # pragma: no cover - without a compiler there is only the fallback
    pass
else:
    TWINS.append(
        SimpleNamespace(
            Accumulator=_accumulator.Accumulator,
            RecordAccumulator=_writing.RecordAccumulator,
            Batch=_accumulator.Batch,
        )
    )


@pytest.fixture(params=TWINS, ids=["plain", "compiled"][: len(TWINS)])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


class World:
    """An accumulator with clocks that stand still; counts its notifications and callbacks."""

    def __init__(self, twin: Any, **limits: Any) -> None:
        self.now_ms = 1_000
        self.monotonic_ms = 50
        self.rings = 0
        self.picks: list[int] = []
        settings: dict[str, Any] = {
            "batch_bytes_max": 1_000,
            "request_bytes_max": 5_000,
            "memory_bytes_max": 10_000,
            "linger_ms": 5,
            "partitioner": None,
            **limits,
        }
        self.accumulator = twin.Accumulator(
            **settings,
            now_ms=lambda: self.now_ms,
            monotonic_ms=lambda: self.monotonic_ms,
            pick=self._pick,
            wake=self._wake,
        )
        self.accumulator.set_partition_count("t", 3)

    def _pick(self, topic: str, count: int) -> int:
        self.picks.append(count)
        return (len(self.picks) - 1) % count

    def _wake(self) -> None:
        self.rings += 1
        self.accumulator.is_rung = False

    def lane(self, partition: int = 0) -> Any:
        return next(row for row in self.accumulator.lanes() if row.partition == partition)


def test_records_go_into_the_open_batch_of_their_partition(twin: Any) -> None:
    world = World(twin)
    first = world.accumulator.append("t", b"a", partition=1)
    second = world.accumulator.append("t", b"b", partition=1)
    batch = world.lane(1).open
    assert (batch.topic, batch.partition, batch.record_count) == ("t", 1, 2)
    assert batch.created_ms == 50
    assert list(world.accumulator.active) == [world.lane(1)]
    batch.complete(70)
    assert first.result() == ("t", 1, 70, 1_000)
    assert second.result(0) == ("t", 1, 71, 1_000)
    assert (second.topic, second.partition, second.done()) == ("t", 1, True)


def test_the_encoded_bytes_equal_the_bytes_of_the_record_accumulator(twin: Any) -> None:
    world = World(twin)
    rows = [(b"v", None, 5, ()), ("text", b"k", None, (("h", b"x"),)), (None, "k", 9, ())]
    expected = twin.RecordAccumulator()
    for value, key, time_ms, headers in rows:
        world.accumulator.append("t", value, key, 0, time_ms, headers)
    expected.append(5, None, b"v")
    expected.append(1_000, b"k", b"text", [("h", b"x")])
    expected.append(9, b"k", None)
    batch = world.lane().open
    assert batch.charged_bytes == world.accumulator.used_bytes == expected.size_bytes
    assert batch.records.take() == expected.take()


def test_a_full_batch_is_closed_and_the_sender_woken(twin: Any) -> None:
    world = World(twin)
    for _ in range(4):
        world.accumulator.append("t", b"x" * 300, partition=0)
    lane = world.lane()
    assert [batch.record_count for batch in lane.closed] == [2]
    assert lane.open.record_count == 2
    assert lane.take().record_count == 2
    assert lane.take() is None
    assert world.rings == 2  # for the first batch, which had no waiter, and for the full batch


def test_a_sender_that_looks_in_time_is_not_woken(twin: Any) -> None:
    world = World(twin)
    world.accumulator.next_look_ms = 55
    world.accumulator.append("t", b"x", partition=0)
    assert world.rings == 0
    world.accumulator.next_look_ms = 56
    world.accumulator.append("t", b"x", partition=1)
    assert world.rings == 1


def test_a_ring_is_heard_once(twin: Any) -> None:
    world = World(twin)
    world.accumulator.is_rung = True
    world.accumulator.ring()
    assert world.rings == 0


def test_unknown_topics_and_partitions_are_left_to_the_caller(twin: Any) -> None:
    world = World(twin)
    assert world.accumulator.append("other", b"x") is None
    assert world.accumulator.append("t", b"x", partition=3) is None
    assert world.accumulator.append("t", b"x", partition=-1) is None
    assert world.accumulator.partition_count("other") == 0
    world.accumulator.set_partition_count("t", 4)
    assert world.accumulator.partition_count("t") == 4
    assert world.accumulator.append("t", b"x", partition=3).partition == 3


def test_memory_is_counted_and_given_back(twin: Any) -> None:
    world = World(twin, memory_bytes_max=1_000)
    taken = 0
    while world.accumulator.append("t", b"x" * 100, partition=0) is not None:
        taken += 1
    assert 5 <= taken <= 9
    assert world.accumulator.used_bytes <= 1_000
    world.accumulator.release(world.accumulator.used_bytes)
    assert world.accumulator.append("t", b"x" * 100, partition=0) is not None


def test_a_record_that_never_fits_is_refused(twin: Any) -> None:
    world = World(twin)
    with pytest.raises(RecordTooLargeError, match=r"5097 bytes .* max.request.size is 5000"):
        world.accumulator.append("t", b"x" * 5_000)
    small = World(twin, memory_bytes_max=3_000)
    with pytest.raises(RecordTooLargeError, match=r"4097 bytes .* buffer.memory is 3000"):
        small.accumulator.append("t", b"x" * 4_000)
    assert world.accumulator.used_bytes == 0


def test_a_record_above_batch_size_gets_a_batch_of_its_own(twin: Any) -> None:
    world = World(twin)
    for size in (10, 3_000, 10):
        world.accumulator.append("t", b"x" * size, partition=0)
    assert [batch.record_count for batch in world.lane().closed] == [1, 1]


def test_keys_choose_partitions_as_kafka_does(twin: Any) -> None:
    world = World(twin, memory_bytes_max=1 << 20)
    for number in range(100):
        key = b"key-%d" % number
        assert world.accumulator.append("t", b"x", key).partition == partition_for_key(key, 3)
        assert world.accumulator.choose_partition("t", key) == partition_for_key(key, 3)
    assert world.picks == []


def test_records_without_a_key_stay_until_the_batch_is_closed(twin: Any) -> None:
    world = World(twin, memory_bytes_max=1 << 20)
    used = [world.accumulator.append("t", b"x" * 300).partition for _ in range(7)]
    assert used == [0, 0, 0, 1, 1, 1, 2]  # the first record that does not fit closes the batch
    world.accumulator.close_open(world.lane(2))
    assert world.accumulator.append("t", b"x").partition == 0


def test_a_partitioner_of_the_applications_own_is_asked(twin: Any) -> None:
    asked: list[Any] = []

    def choose(*question: Any) -> int | None:
        asked.append(question)
        return 2 if question[1] else None

    world = World(twin, partitioner=choose)
    assert world.accumulator.append("t", b"x", "key").partition == 2
    assert world.accumulator.append("t", b"x").partition == 0
    assert asked == [("t", b"key", 3), ("t", None, 3)]


def test_a_batch_from_elsewhere_goes_behind_what_was_there(twin: Any) -> None:
    world = World(twin)
    world.accumulator.append("t", b"first", partition=0)
    records = twin.RecordAccumulator()
    records.extend(7, [b"a", b"b"])
    batch = world.accumulator.add_batch("t", 0, records)
    assert [row.record_count for row in world.lane().closed] == [1, 2]
    batch.complete(10)
    assert batch.delivery(1, 7).result() == ("t", 0, 11, 7)
    assert world.accumulator.add_batch("other", 0, records) is None


def test_a_failure_reaches_every_record(twin: Any) -> None:
    world = World(twin)
    deliveries = [world.accumulator.append("t", b"x", partition=0) for _ in range(3)]
    batch = world.lane().open
    bad, rest = ValueError("bad"), KeyError("rest")
    batch.fail(rest, {1: bad})
    batch.fail(TypeError("too late"))
    batch.complete(5)
    assert [row.exception(0) for row in deliveries] == [rest, bad, rest]
    with pytest.raises(ValueError, match="bad"):
        deliveries[1].result()


def test_callbacks_are_called_before_waiters_wake(twin: Any) -> None:
    world = World(twin)
    told: list[Any] = []
    delivery = world.accumulator.append(
        "t", b"x", partition=0, on_delivery=lambda error, metadata: told.append((error, metadata))
    )
    delivery.add_done_callback(told.append)
    world.lane().open.complete(3, 99)
    assert told == [(None, ("t", 0, 3, 99)), delivery]
    delivery.add_done_callback(told.append)
    assert told[-1] is delivery


def test_waiting_hurries_the_batch_and_ends_in_time(twin: Any) -> None:
    world = World(twin)
    world.accumulator.next_look_ms = 0
    delivery = world.accumulator.append("t", b"x", partition=0)
    batch = world.lane().open
    assert not batch.is_due
    with pytest.raises(TimeoutError, match=r"not confirmed after 0\.01 s"):
        delivery.result(0.01)
    assert batch.is_due
    assert world.rings == 1
    waiting = threading.Thread(target=delivery.result)
    waiting.start()
    batch.complete(0)
    waiting.join()


def test_a_delivery_is_awaited_in_any_loop(twin: Any) -> None:
    world = World(twin)
    delivery = world.accumulator.append("t", b"x", partition=0)
    batch = world.lane().open

    async def story() -> Any:
        asyncio.get_running_loop().call_soon(batch.complete, 4)
        return await delivery

    assert asyncio.run(story()).offset == 4
    assert asyncio.run(story()).offset == 4


def test_parts_stand_for_the_batch_that_was_cut(twin: Any) -> None:
    world = World(twin)
    told: list[Any] = []
    deliveries = [
        world.accumulator.append(
            "t", b"%d" % number, partition=0, on_delivery=lambda *outcome: told.append(outcome)
        )
        for number in range(3)
    ]
    batch = world.lane().open
    records = [twin.RecordAccumulator(), twin.RecordAccumulator()]
    first, second = batch.split([2, 1], records)
    second.fail(ValueError("no"))
    assert not batch.is_done
    first.complete(8)
    assert batch.is_done
    assert [row.exception() is None for row in deliveries] == [True, True, False]
    assert deliveries[1].result().offset == 9
    assert [error is None for error, _ in told] == [True, True, False]


def test_a_lane_retires_when_nothing_is_left(twin: Any) -> None:
    world = World(twin)
    world.accumulator.append("t", b"x", partition=0)
    lane = world.lane()
    world.accumulator.retire(lane)
    assert lane in world.accumulator.active
    world.accumulator.close_open(lane)
    lane.take()
    world.accumulator.retire(lane)
    assert not world.accumulator.active


def test_a_failed_producer_takes_nothing(twin: Any) -> None:
    world = World(twin)
    world.accumulator.failure = ValueError("closed")
    with pytest.raises(ValueError, match="closed"):
        world.accumulator.append("t", b"x")


def test_threads_append_side_by_side(twin: Any) -> None:
    world = World(twin, memory_bytes_max=1 << 30)

    def work() -> None:
        for _ in range(3_000):
            world.accumulator.append("t", b"x" * 10, partition=0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lane = world.lane()
    counts = [batch.record_count for batch in lane.closed]
    assert sum(counts) + lane.open.record_count == 12_000
    charged = sum(batch.charged_bytes for batch in lane.closed) + lane.open.charged_bytes
    assert charged == world.accumulator.used_bytes


def test_a_topic_that_was_made_anew_may_have_fewer_partitions(twin: Any) -> None:
    world = World(twin)
    accumulator = world.accumulator
    world.picks += [3, 3]
    assert accumulator.append("t", b"a").partition == 2
    gone = accumulator.append("t", b"b", partition=2)
    accumulator.set_partition_count("t", 2)
    assert accumulator.partition_count("t") == 2
    assert accumulator.append("t", b"c", partition=2) is None
    assert accumulator.append("t", b"d").partition < 2
    assert accumulator.append("t", b"e", b"key").partition == partition_for_key(b"key", 2)
    assert len(list(accumulator.lanes())) == 3, "what waits in the last one is given up in time"
    with pytest.raises(TimeoutError):
        gone.result(0)
    accumulator.set_partition_count("t", 3)
    assert accumulator.append("t", b"f", partition=2).partition == 2


def test_a_timestamp_is_a_whole_number_of_milliseconds(twin: Any) -> None:
    accumulator = World(twin).accumulator
    with pytest.raises(TypeError, match="milliseconds"):
        accumulator.append("t", b"", timestamp_ms=1.5)
    with pytest.raises(ValueError, match="since 1970"):
        accumulator.append("t", b"", timestamp_ms=-2)
    assert accumulator.append("t", b"", timestamp_ms=0) is not None


@pytest.mark.parametrize("count", [0, 1], ids=["its first record", "a later one"])
def test_what_nobody_takes_any_more_when_its_partition_is_known_is_not_taken(
    twin: Any, count: int
) -> None:
    def choose(_topic: str, _key: bytes | None, _count: int) -> int:
        world.accumulator.failure = RuntimeError("the transaction ends")
        return 0

    world = World(twin, partitioner=choose)
    world.accumulator.set_partition_count("new", 1)
    for _ in range(count):
        assert world.accumulator.append("new", b"before", partition=0) is not None
    with pytest.raises(RuntimeError, match="the transaction ends"):
        world.accumulator.append("new", b"value")
    (lane,) = [one for one in world.accumulator.lanes() if one.topic == "new"]
    assert (lane.open.records.record_count if lane.open else 0) == count
    assert not lane.closed
