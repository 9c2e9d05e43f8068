"""Consumers in a simulated cluster with assigned partitions, and a record of their reads."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final

from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import Position
from ottla.environment.clock import Clock
from ottla.model.identifiers import TopicPartition
from ottla.simulation.checks.history import History, Operation, Outcome, Read
from ottla.wire.records.consumer_record import ConsumerRecord

ALL: Final = ConsumerSettings(
    enable_auto_commit=False, auto_offset_reset="none", fetch_max_wait_ms=200
)
"""Read everything, committed or not; an offset out of range is an error."""
FETCHED_MIN: Final = (1, 2_000, 20_000)
"""For how many bytes a consumer may wait that long."""
POLL_SECONDS: Final = 1.0
POLLED_MAX: Final = 50
BEGINS_ANEW: Final = 0.02
"""How often a reader goes on with another consumer."""
JUMPS: Final = 0.03
PAUSES: Final = 0.05

Places = Mapping[TopicPartition, Position]


class RecordedReader:
    """One client; each of its consumers continues at the last position."""

    def __init__(self, history: History, client: str, partitions: Sequence[TopicPartition]) -> None:
        self._history = history
        self._client = client
        self.places: dict[TopicPartition, Position] = dict.fromkeys(partitions, Position(0))
        """Where reading goes on."""
        self._moved: list[TopicPartition] = []

    async def read_some(self, consumer: AsyncConsumer, stream: Random) -> None:
        """Poll once, and record the result."""
        operation = self._history.begin(self._client, moved=self._moved)
        records = await consumer.poll(stream.randint(1, POLLED_MAX), timeout=POLL_SECONDS)
        take(self._history, operation, records)
        self._moved = []
        self.places |= places_of(consumer)

    def be_restless(self, consumer: AsyncConsumer, stream: Random) -> None:
        """Jump to and fro, leave out partitions for a while."""
        if stream.random() < PAUSES:
            consumer.pause(stream.choice(list(self.places)))
        elif consumer.paused():
            consumer.resume(*sorted(consumer.paused()))
        if stream.random() < JUMPS:
            name = stream.choice(list(self.places))
            consumer.seek(name, stream.randint(0, self.places[name].offset))
            self._moved.append(name)


def patient(settings: ConsumerSettings, stream: Random) -> ConsumerSettings:
    """Draw how much there has to be before a consumer is answered."""
    return replace(settings, fetch_min_bytes=stream.choice(FETCHED_MIN))


def consumer_at(
    view: ClusterView, clock: Clock, settings: ConsumerSettings, places: Places
) -> AsyncConsumer:
    """Return a consumer that reads these partitions from there on."""
    consumer = AsyncConsumer.over(view, settings, clock)
    consumer.assign(places)
    for name, (offset, leader_epoch) in places.items():
        consumer.seek(name, offset, leader_epoch)
    return consumer


def places_of(consumer: AsyncConsumer) -> Places:
    """Return where a consumer is, in the partitions where that is known."""
    return consumer.core.state.consumed()


async def all_of(
    view: ClusterView, clock: Clock, names: Sequence[TopicPartition], settings: ConsumerSettings
) -> list[ConsumerRecord]:
    """Read everything that is there."""
    ends = await AsyncAdmin.over(view).offsets.ends(names)
    starts = {name: Position(ends[name][0]) for name in names}
    records: list[ConsumerRecord] = []
    async with consumer_at(view.sibling(), clock, settings, starts) as consumer:
        while any(ends[name][1] > place.offset for name, place in places_of(consumer).items()):
            records += await consumer.poll(timeout=POLL_SECONDS)
    return records


def take(history: History, operation: Operation, records: Sequence[ConsumerRecord]) -> None:
    """Record the values read; they count even if the operation fails."""
    for record in records:
        name = TopicPartition(record.topic, record.partition)
        operation.read.append(Read(name, value_of(record), record.offset))
    history.end(operation, Outcome.OK)


def value_of(record: ConsumerRecord) -> str:
    """Return the written value, without the padding of the record."""
    text: str = record.value.partition(b" ")[0].decode()
    return text
