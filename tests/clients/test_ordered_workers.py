"""Ordered workers: parallel, in order per key, and committed only up to finished records."""

import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from ottla import (
    Admin,
    Consumer,
    ConsumerRecord,
    HandlerError,
    TopicPartition,
    aio,
)
from ottla.clients.consumer.state.errors import ConcurrentUseError
from tests.clients.consumer_stories import SECONDS_MAX, new_topic, wait_until
from tests.clients.workshop import (
    CONSUMER,
    FACES,
    Book,
    Workshop,
    committed,
    ends,
    wait_for,
    workshops,
    write,
)

Make = Callable[..., Workshop]
ROOT = Path(__file__).parents[2]
each_face = pytest.mark.parametrize("face", FACES)


@pytest.fixture
def make() -> Iterator[Make]:
    with workshops() as make:
        yield make


def of_key(record: ConsumerRecord) -> object:
    return (record.partition, record.key)


def of_partition(record: ConsumerRecord) -> object:
    return record.partition


def in_order(offsets: list[int]) -> bool:
    """Whether no offset comes before a smaller one for the first time; repetitions are allowed."""
    first_times = list(dict.fromkeys(offsets))
    return first_times == sorted(first_times)


def each_once(book: Book) -> bool:
    return max(Counter(record[:3] for record in book.begun).values()) == 1


# -- order ----------------------------------------------------------------------------------------


@each_face
@pytest.mark.parametrize(("ordering", "lane_of"), [("key", of_key), ("partition", of_partition)])
def test_eight_workers_keep_the_order(
    story_servers: str,
    make: Make,
    face: str,
    ordering: str,
    lane_of: Callable[[ConsumerRecord], object],
) -> None:
    seed = random.randrange(1 << 32)
    sys.stdout.write(f"seed {seed}\n")
    dice = random.Random(seed)
    topic = new_topic(story_servers, 3)
    count = write(story_servers, topic, (f"key {dice.randrange(12)}" for _ in range(300)))
    book = Book()
    book.lane_of = lane_of
    durations = [dice.random() / 200 for _ in range(count)]
    shop = make(
        face,
        story_servers,
        topic,
        book,
        duration=lambda record: durations[(record.offset * 3 + record.partition) % count],
        workers=8,
        ordering=ordering,
    )
    wait_for(book, count)
    assert shop.stop() is None
    assert not book.clashes
    assert all(offsets == sorted(offsets) for offsets in book.offsets_by_lane().values())
    assert len(book.done) == count
    assert each_once(book)
    assert book.together_max > 1, "nothing was parallel"
    assert committed(story_servers, topic, 3) == ends(story_servers, topic, 3)


@each_face
@pytest.mark.parametrize("ordering", ["key", "none"])
def test_without_keys_or_order_records_overtake_each_other(
    story_servers: str, make: Make, face: str, ordering: str
) -> None:
    topic = new_topic(story_servers)
    write(story_servers, topic, ["one key"] * 20 if ordering == "none" else [None] * 20)
    book = Book()
    shop = make(
        face,
        story_servers,
        topic,
        book,
        held=lambda record: record.offset == 0 and len(book.done) < 19,
        ordering=ordering,
    )
    wait_for(book, 20)
    assert shop.stop() is None
    assert book.done[-1].offset == 0
    assert committed(story_servers, topic) == [20]


# -- commits --------------------------------------------------------------------------------------


@each_face
def test_nothing_is_committed_past_a_record_that_is_not_done(
    story_servers: str, make: Make, face: str
) -> None:
    topic = new_topic(story_servers)
    write(story_servers, topic, [f"key {number % 10}" for number in range(50)])
    book = Book()
    gate = Event()
    shop = make(
        face,
        story_servers,
        topic,
        book,
        held=lambda record: record.offset == 7 and not gate.is_set(),
    )
    wait_for(book, 45)  # all but four of the same key, and itself
    wait_until(lambda: committed(story_servers, topic) == [7], "7 is the first that is not done")
    assert shop.metric("records-in-progress") == 5
    assert shop.metric("oldest-unfinished-ms") > 0
    gate.set()
    wait_for(book, 50)
    wait_until(lambda: committed(story_servers, topic) == [50], "all are done")
    assert shop.stop() is None


@each_face
def test_a_run_ends_and_reading_goes_on_with_what_is_not_done(
    story_servers: str, face: str
) -> None:
    topic = new_topic(story_servers)
    write(story_servers, topic, ["one key"] * 30)
    settings = CONSUMER | {"bootstrap_servers": story_servers, "group_id": topic}
    done: list[int] = []

    if face == "threads":
        with Consumer(settings, value_deserializer="string") as consumer:

            def handle(record: ConsumerRecord) -> None:
                done.append(record.offset)
                if record.offset == 9:
                    consumer.stop()

            consumer.subscribe([topic])
            consumer.run(handle)
            record = consumer.poll(1, timeout=SECONDS_MAX)[0]
    else:

        async def story() -> ConsumerRecord:
            async with aio.Consumer(settings, value_deserializer="string") as consumer:

                async def handle(record: ConsumerRecord) -> None:  # noqa: RUF029
                    done.append(record.offset)
                    if record.offset == 9:
                        consumer.stop()

                await consumer.subscribe([topic])
                await consumer.run(handle)
                return (await consumer.poll(1, timeout=SECONDS_MAX))[0]

        record = asyncio.run(story())
    assert done == [*range(len(done))]
    assert (record.offset, record.value) == (len(done), f"letter {len(done) + 1}")
    assert len(done) < 30


# -- how much -------------------------------------------------------------------------------------


@each_face
def test_no_more_is_taken_than_there_is_room_for(story_servers: str, make: Make, face: str) -> None:
    topic = new_topic(story_servers, 2)
    count = write(story_servers, topic, [f"key {number}" for number in range(400)])
    book = Book()
    gate = Event()
    shop = make(
        face,
        story_servers,
        topic,
        book,
        held=lambda _record: not gate.is_set(),
        workers=4,
        max_in_progress=10,
    )
    wait_until(lambda: shop.metric("records-in-progress") == 10, "ten are taken")
    assert len(shop.consumer.paused()) == 2
    assert len(book.begun) <= 4
    gate.set()
    wait_for(book, count)
    assert book.together_max <= 4
    assert shop.stop() is None
    assert each_once(book)


def test_a_handler_longer_than_max_poll_interval_stays_in_the_group(
    story_servers: str, make: Make
) -> None:
    shops = []
    for face in FACES:
        topic = new_topic(story_servers)
        write(story_servers, topic, ["key"] * 3)
        book = Book()
        settings = {"max_poll_interval_ms": 2000}
        shop = make(
            face,
            story_servers,
            topic,
            book,
            duration=lambda record: 5.0 if record.offset == 0 else 0.0,
            settings=settings,
        )
        shops.append((shop, book, topic))
    for shop, book, topic in shops:
        wait_for(book, 3)
        generation_id = shop.consumer.group_metadata().generation_id
        assert shop.stop() is None
        assert [record.offset for record in book.begun] == [0, 1, 2]
        assert generation_id == 1
        assert committed(story_servers, topic) == [3]


# -- partitions that go ---------------------------------------------------------------------------


@each_face
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(("ordering", "lane_of"), [("key", of_key), ("partition", of_partition)])
def test_a_second_member_comes_in_the_middle_and_nothing_is_left_out(
    story_servers: str,
    make: Make,
    face: str,
    strategy: str,
    ordering: str,
    lane_of: Callable[[ConsumerRecord], object],
) -> None:
    topic = new_topic(story_servers, 4)
    keys = [f"key {number % 40}" for number in range(400)]
    count = write(story_servers, topic, keys)
    book = Book()
    book.lane_of = lane_of
    told = {
        "ordering": ordering,
        "duration": lambda _record: 0.005,
        "settings": {"partition_assignment_strategy": strategy, "heartbeat_interval_ms": 100},
    }
    listeners = {}
    if ordering == "key":  # a common call; it must not commit records that are not finished
        listeners["on_revoked"] = lambda _names: first.consumer.commit()
    first = make(face, story_servers, topic, book, listeners=listeners, **told)
    wait_for(book, 50)
    second = make(face, story_servers, topic, book, **told)
    wait_until(lambda: len(second.consumer.assignment()) == 2, "partitions change hands")
    count += write(story_servers, topic, keys)
    wait_until(lambda: len({record[:3] for record in book.done}) == count, "all are done")
    assert first.metric("records-done-total") > 50
    assert second.metric("records-done-total") > 0
    assert first.stop() is None
    assert second.stop() is None
    assert not book.clashes
    assert all(in_order(offsets) for offsets in book.offsets_by_lane().values())
    if ordering == "partition":
        assert each_once(book), "what is done has no gaps then, and nothing comes again"
    assert committed(story_servers, topic, 4) == ends(story_servers, topic, 4)


@each_face
def test_what_was_lost_is_not_committed_and_done_again_but_never_twice_at_once(
    story_servers: str, make: Make, face: str
) -> None:
    topic = new_topic(story_servers)
    write(story_servers, topic, ["key", "key", "other"])
    book = Book()
    book.lane_of = of_key
    heard: list[str] = []
    gate = Event()
    shop = make(
        face,
        story_servers,
        topic,
        book,
        held=lambda record: record.offset == 0 and not gate.is_set(),
        settings={"heartbeat_interval_ms": 100},
        listeners={"on_lost": lambda _names: heard.append("lost")},
    )
    wait_for(book, 1)  # the other key; the first record is still at work
    with Admin(bootstrap_servers=story_servers) as admin:
        admin.groups.remove_members(topic)
    wait_until(lambda: heard == ["lost"], "the member was thrown out")
    wait_until(lambda: len(book.done) == 2, "the other key is done again, meanwhile")
    assert [record.offset for record in book.done] == [2, 2]
    assert committed(story_servers, topic) == [0]
    gate.set()
    wait_until(lambda: committed(story_servers, topic) == [3], "all are done at last")
    assert shop.stop() is None
    assert not book.clashes
    assert Counter(record.offset for record in book.begun) == {0: 2, 1: 1, 2: 2}


def test_a_commit_in_a_handler_does_not_pass_what_is_not_done(story_servers: str) -> None:
    topic = new_topic(story_servers)
    name = TopicPartition(topic, 0)
    write(story_servers, topic, ["key"] * 10)
    settings = CONSUMER | {"bootstrap_servers": story_servers, "group_id": topic}
    found: list[int] = []

    async def story() -> None:
        async with aio.Consumer(settings) as consumer:

            async def handle(record: ConsumerRecord) -> None:
                if record.offset == 4:
                    await consumer.commit()  # of all that was taken, one might think
                    found.append((await consumer.committed([name]))[name].offset)
                    consumer.stop()

            await consumer.subscribe([topic])
            await consumer.run(handle)

    asyncio.run(story())
    assert found == [4]


def test_a_worker_cannot_use_the_consumer_that_runs_it(story_servers: str) -> None:
    topic = new_topic(story_servers)
    write(story_servers, topic, ["key"])
    settings = CONSUMER | {"bootstrap_servers": story_servers, "group_id": topic}
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(HandlerError) as raised:
            consumer.run(lambda _record: consumer.commit(), retries=0)
    assert isinstance(raised.value.__cause__, ConcurrentUseError)


# -- processes ------------------------------------------------------------------------------------


def start_process(servers: str, topic: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.clients.working_process", servers, topic]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def read_lines(process: subprocess.Popen[str], count: int) -> list[tuple[int, int]]:
    assert process.stdout is not None
    return [placed(next(process.stdout)) for _ in range(count)]


def placed(line: str) -> tuple[int, int]:
    partition, offset = map(int, line.split())
    return partition, offset


def test_after_kill_9_every_record_is_done_and_only_the_uncommitted_again(
    story_servers: str,
) -> None:
    topic = new_topic(story_servers, 3)
    count = write(story_servers, topic, [f"key {number % 30}" for number in range(1500)])
    with start_process(story_servers, topic) as process:
        first = read_lines(process, 700)
        process.kill()
        assert process.stdout is not None
        first += [placed(line) for line in process.stdout if line.endswith("\n")]
    before = committed(story_servers, topic, 3)
    assert sum(before) > 0, "nothing was committed"
    must_be_done = {(number, offset) for number in range(3) for offset in range(before[number])}
    assert must_be_done <= set(first), "a commit passed a record that was not done"
    left = count - sum(before)
    with start_process(story_servers, topic) as process:
        second = read_lines(process, left)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.read() == "ended\n"
        assert process.wait(SECONDS_MAX) == 0
    assert len(set(second)) == left, "nothing twice"
    assert not set(second) & must_be_done, "nothing that was committed"
    assert len(set(first) | set(second)) == count
    assert committed(story_servers, topic, 3) == ends(story_servers, topic, 3)
