"""`ottla consume`: records from topics to stdout."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from ottla.cli.exits import WrongCallError
from ottla.cli.options import DEFAULT_BROKERS, Brokers, Settings, with_cluster
from ottla.cli.positions import END, Position, parse_position, resolve
from ottla.cli.record_format import Render, Seen, renderer
from ottla.clients.admin import Admin
from ottla.clients.admin_offsets import LATEST
from ottla.clients.cluster_view import ClusterView
from ottla.clients.fetcher import Fetched, Fetcher, FetcherSettings
from ottla.clients.group_reader import GroupReader
from ottla.model.identifiers import TopicPartition

DETAILS: Final = """Reads what is there and ends; --follow waits for more.

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
"""


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, help=f"{summary}\n\n{DETAILS}")(consume)


@dataclass(frozen=True, slots=True)
class Reading:
    """What is to be read, and how it is to be shown."""

    topics: list[str]
    partitions: list[int]
    begin: Position
    end: Position | None
    """None to go on for ever."""
    count_max: int | None
    render: Render
    is_committed_only: bool


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="What to read.")],
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
        int | None, typer.Option("--num", "-n", min=1, help="End after so many records.")
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this one. Repeatable.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Wait for more at the end.")
    ] = False,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as a member of this consumer group.")
    ] = None,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Leave out transactions not committed.")
    ] = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
) -> None:
    """Read records from topics."""
    if group is not None and partitions:
        raise WrongCallError("a group shares out the partitions itself: leave out --partition")
    if follow and end is not None:
        raise WrongCallError("--follow does not end, but --to says where: give one of them")
    reading = Reading(
        topics,
        partitions or [],
        parse_position(begin),
        None if follow else parse_position(end) if end is not None else END,
        count,
        renderer(form),
        read_committed,
    )
    if group is None:
        with_cluster(brokers, settings, lambda view: _read(view, reading))
    else:
        with_cluster(brokers, settings, lambda view: _read_as_member(view, reading, group))


async def _read(view: ClusterView, reading: Reading) -> None:
    names = await _partitions(view, reading)
    begins, ends = await _bounds(Admin.over(view), names, reading)
    pending = {name: at for name, at in begins.items() if name not in ends or at < ends[name]}
    if not pending:
        return
    settings = FetcherSettings(is_committed_only=reading.is_committed_only)
    fetcher = Fetcher(view, pending, settings)
    printer = Printer(reading.render, reading.count_max)
    try:
        while fetcher.offset_by_partition and not printer.is_done:
            for fetched in await fetcher.poll():
                printer.write(fetched, ends.get(fetched.partition))
                drop_at_end(fetcher, fetched, ends)
            sys.stdout.flush()
    finally:
        await fetcher.close()


async def _read_as_member(view: ClusterView, reading: Reading, group_id: str) -> None:
    admin = Admin.over(view)
    names = await _partitions(view, reading)
    _, ends = await _bounds(admin, names, reading)
    reader = GroupReader.of_group(
        view,
        group_id,
        reading.topics,
        lambda unknown: resolve(admin, unknown, reading.begin),
        FetcherSettings(is_committed_only=reading.is_committed_only),
    )
    printer = Printer(reading.render, reading.count_max)
    try:
        while not printer.is_done:
            marks = {}
            for fetched in await reader.poll():
                end_offset = ends.get(fetched.partition)
                marks[fetched.partition] = printer.write(fetched, end_offset)
                drop_at_end(reader, fetched, ends)
            sys.stdout.flush()
            for name, next_offset in marks.items():
                reader.mark(name, next_offset)
            if _is_at_end(reader, ends):
                return
    finally:
        await reader.close()


def _is_at_end(reader: GroupReader, ends: Mapping[TopicPartition, int]) -> bool:
    """Whether all that was to be read, of what this member has now, has been read."""
    left = reader.offset_by_partition.items()
    is_read = all(name in ends and offset >= ends[name] for name, offset in left)
    return bool(ends) and is_read and not reader.is_waiting_for_partitions


def drop_at_end(
    reader: Fetcher | GroupReader, fetched: Fetched, ends: Mapping[TopicPartition, int]
) -> None:
    """Read a partition no further once its end is reached."""
    end_offset = ends.get(fetched.partition)
    if end_offset is not None and fetched.end_offset >= end_offset:
        reader.drop(fetched.partition)


async def _partitions(view: ClusterView, reading: Reading) -> list[TopicPartition]:
    names = []
    for topic in reading.topics:
        numbers = reading.partitions or range(len((await view.topic(topic)).partitions))
        names += [TopicPartition(topic, number) for number in sorted(set(numbers))]
    for name in names:
        await view.partition(name)
    return names


async def _bounds(
    admin: Admin, names: list[TopicPartition], reading: Reading
) -> tuple[dict[TopicPartition, int], Mapping[TopicPartition, int]]:
    begins = await resolve(admin, names, reading.begin)
    if reading.end is None:
        return begins, {}
    if reading.end == END and reading.is_committed_only:
        stable = await admin.offsets.find(dict.fromkeys(names, LATEST), is_committed_only=True)
        return begins, {name: found.offset for name, found in stable.items()}
    return begins, await resolve(admin, names, reading.end)


class Printer:
    """Writes records to stdout until there are enough."""

    def __init__(self, render: Render, count_max: int | None) -> None:
        self._render = render
        self._count_max = count_max
        self._number = 0

    @property
    def is_done(self) -> bool:
        """Whether no more records are wanted."""
        return self._count_max is not None and self._number >= self._count_max

    def write(self, fetched: Fetched, end_offset: int | None) -> int:
        """Write the records before an offset, as far as wanted; return where it stopped."""
        out = sys.stdout.buffer
        for epoch, record in fetched.records_with_epoch():
            if self.is_done or (end_offset is not None and record.offset >= end_offset):
                return record.offset
            self._number += 1
            out.write(self._render(Seen(fetched.partition, epoch, record, self._number)))
        return fetched.end_offset
