"""`ottla consume`: records from topics to stdout."""

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import typer

from ottla.cli.support.exit_codes import WrongCallError, say
from ottla.cli.support.options import (
    DEFAULT_BROKERS,
    DEFAULT_REGISTRY,
    Brokers,
    KeySchema,
    RegistryUrl,
    Settings,
    ValueSchema,
    with_cluster,
)
from ottla.cli.support.positions import END, Position, parse_position, resolve
from ottla.cli.support.record_format import Render, renderer
from ottla.clients.admin.admin_offsets import OffsetSpec
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.state.errors import ConsumerError
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.wire.records.consumer_record import ConsumerRecord

if TYPE_CHECKING:
    from ottla.cli.schemas.schema_records import PartSchema
    from ottla.clients.consumer.state.offsets import OffsetAndMetadata


COMMIT_SECONDS: Final = 5.0
StartOffsets = Callable[[Sequence[TopicPartition]], Awaitable[dict[TopicPartition, int]]]

POLLED_RECORDS_MAX: Final = 2_000
LOOK_SECONDS: Final = 0.2
"""How long to wait for records before checking whether any are left."""
READING: Final = ConsumerSettings(
    enable_auto_commit=False,
    auto_offset_reset="none",
    fetch_max_bytes=16 << 20,
    max_partition_fetch_bytes=4 << 20,
    allow_auto_create_topics=False,
)
DETAILS: Final = """Reads the existing records and ends; --follow waits for more.
Records of open and aborted transactions are left out; --read-uncommitted shows them.

Where to begin and to end (--from, --to):

\b
  start, end           the ends of the log
  47                   this offset
  +2, -3               two after the start, three before the end
  @1700000000000       the first record at or after this time, in milliseconds,
  @2026-11-15T12:00    or by date (UTC, if no other zone is said),
  @-5m                 or this long ago (ms, s, m, h, d)

The format is `json`, for one object per line, or has these fields:

\b
  %t topic   %p partition   %o offset   %k key   %v value   %h headers
  %T time in milliseconds   %K %V size of key and value    %H number of headers
  %e leader epoch   %i number of the record   %%   \\n \\t \\r \\0 \\xHH

--decode value (or key, or key,value) reads values by the schema of their writer, which is in the
registry, and shows them as JSON; --value-schema and --key-schema read them as another schema.
"""


ReadCommitted = Annotated[
    bool,
    typer.Option(
        "--read-committed/--read-uncommitted",
        help="Leave out or show records of transactions that are open or aborted.",
    ),
]
Decode = Annotated[
    str | None,
    typer.Option("--decode", metavar="PARTS", help="value, key, or key,value: by the registry."),
]


class ReadingMember:
    """A member; call `mark` whenever all polled records have been shown.

    Shown records are committed every few seconds, before a revocation, and when the consumer is
    closed: at least once, as Kafka's console consumer does.
    """

    def __init__(self, consumer: AsyncConsumer, start_offsets: StartOffsets) -> None:
        self._consumer = consumer
        self._start_offsets = start_offsets
        self._marked: dict[TopicPartition, OffsetAndMetadata] = {}
        self._committed_at = asyncio.get_running_loop().time()
        self.has_partitions = False
        """Whether the group has assigned partitions to this member."""

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Join; partitions without a commit start at the offsets of start_offsets."""
        await self._consumer.subscribe(
            topics, on_assigned=self._begin, on_revoked=self._end, on_lost=self._lose
        )

    async def mark(self) -> None:
        """Mark all polled records as shown."""
        self._marked = self._consumer.core.offsets_to_commit(None)
        now = asyncio.get_running_loop().time()
        if self._marked and now - self._committed_at > COMMIT_SECONDS:
            self._committed_at = now
            await self._consumer.commit_async(self._marked)

    async def _begin(self, partitions: list[TopicPartition]) -> None:
        known = await self._consumer.committed(partitions) if partitions else {}
        unknown = [name for name in partitions if name not in known]
        for name, offset in (await self._start_offsets(unknown) if unknown else {}).items():
            self._consumer.seek(name, offset)
        self.has_partitions = True

    async def _end(self, partitions: list[TopicPartition]) -> None:
        self.has_partitions = False
        marked = {name: self._marked[name] for name in partitions if name in self._marked}
        self._marked = {}
        if marked:
            with suppress(
                ApiError, OSError
            ):  # the generation is over: another member reads it again
                await self._consumer.commit(marked)

    def _lose(self, _: list[TopicPartition]) -> None:
        self.has_partitions = False
        self._marked = {}


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, help=f"{summary}\n\n{DETAILS}")(consume)


class RecordSink(Protocol):
    """Takes records until it has enough."""

    @property
    def is_done(self) -> bool:
        """Whether there are enough records."""
        ...

    @property
    def wanted_max(self) -> int:
        """The largest number of records to take at once."""
        ...

    async def take(self, records: Sequence[ConsumerRecord]) -> None:
        """Take the next records."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """The records to read."""

    topics: list[str]
    partitions: list[int]
    begin: Position
    end: Position | None
    """None for no end."""
    is_committed_only: bool = True

    def settings(self, group_id: str | None = None) -> ConsumerSettings:
        """Return the settings of the consumer."""
        level = "read_committed" if self.is_committed_only else "read_uncommitted"
        return replace(READING, group_id=group_id, isolation_level=level)


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="The topics to read.")],
    form: Annotated[
        str, typer.Option("--format", "-f", metavar="FORMAT", help="json, or percent fields.")
    ] = "%v\\n",
    begin: Annotated[
        str, typer.Option("--from", "-o", "--offset", metavar="PLACE", help="Where to begin.")
    ] = "start",
    end: Annotated[
        str | None, typer.Option("--to", metavar="PLACE", help="Where to end; this is left out.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--num", "-n", min=1, help="End after this many records.")
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", help="Read only this partition. Repeatable."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Wait for more at the end.")
    ] = False,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as a member of this consumer group.")
    ] = None,
    read_committed: ReadCommitted = True,
    decode: Decode = None,
    key_schema: KeySchema = None,
    value_schema: ValueSchema = None,
    registry: RegistryUrl = DEFAULT_REGISTRY,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
) -> None:
    """Read records from topics."""
    if group is not None and partitions:
        raise WrongCallError("a group shares out the partitions itself: leave out --partition")
    if follow and end is not None:
        raise WrongCallError("--follow and --to exclude each other: give only one")
    reading = Reading(
        topics,
        partitions or [],
        parse_position(begin),
        None if follow else parse_position(end) if end is not None else END,
        read_committed,
    )
    decoding = _decoding(registry, decode, key_schema, value_schema)
    expected = () if decoding is None else decoding.refusals()
    show = partial(_show, reading=reading, group=group, decoding=decoding)
    printer = Printer(renderer(form), count)
    with_cluster(brokers, settings, lambda view: show(view, printer), ConsumerError, *expected)


async def _show(
    view: ClusterView,
    printer: "Printer",
    reading: Reading,
    group: str | None,
    decoding: "_Decoding | None",
) -> None:
    async with AsyncExitStack() as stack:
        if decoding is not None:
            printer.decoder = await stack.enter_async_context(decoding.open())
        if group is None:
            await read(view, reading, printer)
        else:
            await _read_as_member(view, reading, printer, group)


@dataclass(frozen=True, slots=True)
class _Decoding:
    """The parts of records to decode; the modules of schemas are imported only for them."""

    url: str
    parts: tuple[str, ...]
    readers: "Sequence[PartSchema]"

    def open(self) -> Any:
        """Return the decoder, for `async with`."""
        from ottla.cli.schemas.schema_records import RecordDecoder  # noqa: PLC0415

        return RecordDecoder(self.url, self.parts, self.readers)

    @staticmethod
    def refusals() -> tuple[type[Exception], ...]:
        """Return the exceptions of decoding."""
        from ottla.cli.schemas import schema_records, schema_registry  # noqa: PLC0415

        return (schema_records.UnfitRecordError, *schema_registry.REFUSALS)


def _decoding(
    url: str, decode: str | None, key_schema: str | None, value_schema: str | None
) -> _Decoding | None:
    if not (decode or key_schema or value_schema):
        return None
    from ottla.cli.schemas.schema_records import parse_parts, part_schemas  # noqa: PLC0415

    readers = part_schemas(url, key_schema, value_schema, is_registering=False)
    return _Decoding(url, parse_parts(decode), readers)


async def read(view: ClusterView, reading: Reading, sink: RecordSink) -> None:
    """Read records into a sink, without a group."""
    names = await _partitions(view, reading)
    begins, ends = await _bounds(AsyncAdmin.over(view), names, reading)
    pending = {name: at for name, at in begins.items() if name not in ends or at < ends[name]}
    async with AsyncConsumer.over(view, reading.settings(), SystemClock()) as consumer:
        consumer.assign(pending)
        for name, offset in pending.items():
            consumer.seek(name, offset)
        while consumer.assignment() and not sink.is_done:
            await sink.take(await _poll(consumer, sink.wanted_max, ends))
            if ends:
                consumer.assign(unread(consumer, ends))


async def _read_as_member(
    view: ClusterView, reading: Reading, sink: RecordSink, group_id: str
) -> None:
    admin = AsyncAdmin.over(view)
    names = await _partitions(view, reading)
    _, ends = await _bounds(admin, names, reading)
    async with AsyncConsumer.over(view, reading.settings(group_id), SystemClock()) as consumer:
        member = ReadingMember(consumer, lambda unknown: resolve(admin, unknown, reading.begin))
        await member.subscribe(reading.topics)
        while not sink.is_done:
            await sink.take(await _poll(consumer, sink.wanted_max, ends))
            await member.mark()
            if ends and member.has_partitions and not unread(consumer, ends):
                return


async def _poll(
    consumer: AsyncConsumer, count_max: int, ends: Mapping[TopicPartition, int]
) -> list[ConsumerRecord]:
    """Return the next records before the ends; a partition at its end is not read further."""
    records = await consumer.poll(count_max, timeout=LOOK_SECONDS)
    places = consumer.core.state.consumed() if ends else {}
    at_end = [name for name, place in places.items() if place.offset >= ends.get(name, math.inf)]
    consumer.pause(*at_end)
    past = [name for name in at_end if places[name].offset > ends[name]]
    if not past:
        return records
    for name in past:
        consumer.seek(name, ends[name])
    return [one for one in records if one.offset < ends.get(TopicPartition(*one[:2]), math.inf)]


def unread(consumer: AsyncConsumer, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Return the partitions of this consumer that it has not read to these ends."""
    places = consumer.core.state.consumed()
    return [
        name
        for name in consumer.core.state.assigned
        if name not in places or name not in ends or places[name].offset < ends[name]
    ]


async def _partitions(view: ClusterView, reading: Reading) -> list[TopicPartition]:
    names = []
    for topic in reading.topics:
        numbers = reading.partitions or range(len((await view.topic(topic)).partitions))
        names += [TopicPartition(topic, number) for number in sorted(set(numbers))]
    for name in names:
        await view.partition(name)
    return names


async def _bounds(
    admin: AsyncAdmin, names: list[TopicPartition], reading: Reading
) -> tuple[dict[TopicPartition, int], Mapping[TopicPartition, int]]:
    begins = await resolve(admin, names, reading.begin)
    if reading.end is None:
        return begins, {}
    if reading.end == END and reading.is_committed_only:
        return begins, await _stable_ends(admin, names)
    return begins, await resolve(admin, names, reading.end)


async def _stable_ends(admin: AsyncAdmin, names: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the last stable offset of each partition, and report partitions that end later.

    High watermarks are asked for first: a transaction that ends in between is not reported.
    """
    latest = dict.fromkeys(names, OffsetSpec.LATEST)
    ends = await admin.offsets.find(latest)
    stable = await admin.offsets.find(latest, is_committed_only=True)
    held = [name for name in names if stable[name].offset < ends[name].offset]
    if held:
        more = f" (and {len(held) - 1} more partitions)" if len(held) > 1 else ""
        say(
            f"{held[0]}{more} has an open transaction: records from offset "
            f"{stable[held[0]].offset} on are left out, and --read-uncommitted shows them"
        )
    return {name: found.offset for name, found in stable.items()}


class Printer:
    """Writes records to stdout until there are enough."""

    def __init__(self, render: Render, count_max: int | None) -> None:
        self._render = render
        self._count_max = count_max
        self._number = 0
        self.decoder: Any = None
        """A RecordDecoder, if parts of the records are decoded."""

    @property
    def is_done(self) -> bool:
        """Whether enough records are written."""
        return self._count_max is not None and self._number >= self._count_max

    @property
    def wanted_max(self) -> int:
        """The largest number of records to take at once."""
        if self._count_max is None:
            return POLLED_RECORDS_MAX
        return min(self._count_max - self._number, POLLED_RECORDS_MAX)

    async def take(self, records: Sequence[ConsumerRecord]) -> None:
        """Write records, also the records before a record that cannot be decoded."""
        if self.decoder is None:
            self._write(records)
            return
        decoded: list[ConsumerRecord] = []
        try:
            for record in records:
                decoded.append(await self.decoder.decoded(record))  # noqa: PERF401 - a part counts
        finally:
            self._write(decoded)

    def _write(self, records: Sequence[ConsumerRecord]) -> None:
        """Write records, and flush stdout."""
        numbers = range(self._number + 1, self._number + len(records) + 1)
        self._number += len(records)
        sys.stdout.buffer.write(b"".join(map(self._render, records, numbers)))
        sys.stdout.flush()
