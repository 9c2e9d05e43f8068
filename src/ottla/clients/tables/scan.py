"""`ottla.scan`: the records of a topic as Arrow batches, without a consumer group.

The bounds are fixed when the scan is made. Each partition is cut into pieces, and threads read the
pieces ahead; the batches come in the order of partitions and offsets. Arrow, Polars, pandas and
DuckDB take a scan as it is, because it has Arrow's stream interface.
"""

import os
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from queue import SimpleQueue
from threading import Semaphore
from typing import Any, Final, TypeAlias

import pyarrow as pa

from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.config.settings import ClientSettings
from ottla.clients.consumer.state.settings import read_consumer_settings
from ottla.clients.tables.errors import SourceReadError
from ottla.clients.tables.range_reader import Fetching, OffsetRange, read_range, split
from ottla.clients.tables.topic_cluster import TopicCluster
from ottla.model.identifiers import TopicPartition
from ottla.model.isolation_level import EARLIEST, LATEST
from ottla.model.settings.settings import nearest_to
from ottla.wire.records import arrow

Bound: TypeAlias = int | datetime | Mapping[int, int]
"""An offset for every partition, a time, or an offset by partition."""

PIECE_OFFSETS_MAX: Final = 200_000
"""The offsets that a thread reads at a time."""
QUEUED_BATCHES_MAX: Final = 4
"""The batches of one piece that wait for the reader of the scan; each has about 4 MiB."""
THREADS_MAX: Final = 8
_FETCH_BYTES: Final = 4 << 20
_STUCK_MS_MAX: Final = 60_000
_ADVICE_ON_LOSS: Final = "scan again: the new scan begins where the log begins"


def scan(
    topic: str,
    settings: Mapping[str, Any] | None = None,
    /,
    *,
    start: Bound | None = None,
    end: Bound | None = None,
    partitions: Collection[int] | None = None,
    columns: Sequence[str] | None = None,
    threads: int | None = None,
    **keywords: Any,
) -> "Scan":
    """Return the records of a topic from `start` to before `end`; by default, all that exist now.

    A time stands for the first record of a partition with this timestamp or a later one. Offsets
    outside the log stand for its ends. The settings are a consumer's, by Kafka's names.
    """
    client, fetching = _settings(settings, keywords)
    schema = _schema(columns)
    if threads is None:
        threads = min(os.cpu_count() or 1, THREADS_MAX)
    elif threads < 1:
        raise ValueError(f"threads is {threads}: it must be at least 1")
    with TopicCluster(client) as cluster:
        ranges = _planned(cluster, topic, start, end, partitions, fetching)
    return Scan(client, fetching, tuple(ranges), schema, threads)


@dataclass(frozen=True, slots=True)
class Scan:
    """Records of a topic between fixed offsets. Each iteration reads them anew."""

    _client: ClientSettings
    _fetching: Fetching
    ranges: tuple[OffsetRange, ...]
    """The offsets to read, by partition."""
    schema: pa.Schema
    """The columns."""
    _threads: int

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Read the records; SourceReadError if that fails, DataLossError if some were deleted."""
        pieces = deque(split(self.ranges, records_per_partition_max=PIECE_OFFSETS_MAX))
        with TopicCluster(self._client) as cluster:

            def read(piece: OffsetRange) -> Generator[pa.RecordBatch, None, None]:
                return read_range(
                    cluster, piece, self._fetching, self.schema, fail_on_data_loss=True
                )

            with _ReadAhead(pieces, read, self._threads) as ahead:
                yield from ahead.batches()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return Arrow's C stream, for any library that takes Arrow data."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def reader(self) -> pa.RecordBatchReader:
        """Return a reader of the batches, which holds a few of them at a time."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_arrow(self) -> pa.Table:
        """Read everything into a table."""
        return pa.Table.from_batches(iter(self), self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """Read everything into a DataFrame of pandas; `pa.Table.to_pandas` has the options."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> Any:
        """Read everything into a DataFrame of Polars."""
        try:
            import polars  # noqa: PLC0415 - only for this method
        except ModuleNotFoundError:
            raise ImportError("to_polars needs Polars: pip install polars") from None
        return polars.from_arrow(self.to_arrow())


@dataclass(slots=True)
class _Piece:
    """The batches of one piece, as its thread reads them, and None at the end."""

    batches: SimpleQueue[pa.RecordBatch | BaseException | None] = field(default_factory=SimpleQueue)
    room: Semaphore = field(default_factory=lambda: Semaphore(QUEUED_BATCHES_MAX))


class _ReadAhead:
    """Reads pieces in threads, and yields their batches in order."""

    def __init__(
        self,
        pieces: deque[OffsetRange],
        read: Callable[[OffsetRange], Generator[pa.RecordBatch, None, None]],
        threads: int,
    ) -> None:
        self._waiting = pieces
        self._read = read
        self._begun: deque[_Piece] = deque()
        self._begun_max = threads + 1
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="ottla-scan")
        self._is_stopped = False

    def __enter__(self) -> "_ReadAhead":
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped = True
        for piece in self._begun:
            piece.room.release()  # its thread may wait for room, and ends now
        self._threads.shutdown(cancel_futures=True)

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._begin_more()
        while self._begun:
            piece = self._begun[0]
            while (batch := piece.batches.get()) is not None:
                if isinstance(batch, BaseException):
                    raise batch
                piece.room.release()
                yield batch
            self._begun.popleft()
            self._begin_more()

    def _begin_more(self) -> None:
        while self._waiting and len(self._begun) < self._begun_max:
            piece = _Piece()
            self._begun.append(piece)
            self._threads.submit(self._fill, piece, self._waiting.popleft())

    def _fill(self, piece: _Piece, wanted: OffsetRange) -> None:
        end: BaseException | None = None
        batches = self._read(wanted)
        try:
            while not self._is_stopped and (batch := next(batches, None)) is not None:
                piece.batches.put(batch)
                piece.room.acquire()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that reads the scan
            end = error
        finally:
            batches.close()
        piece.batches.put(end)


def _settings(
    given: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> tuple[ClientSettings, Fetching]:
    client, consumer = read_consumer_settings(given, keywords)
    if consumer.group_id is not None:
        raise InvalidClientSettingError("group.id: a scan reads for no group, and commits nothing")
    fetching = Fetching(
        is_committed_only=consumer.isolation_level == "read_committed",
        check_crcs=consumer.check_crcs,
        partition_bytes_max=max(consumer.max_partition_fetch_bytes, _FETCH_BYTES),
        wait_ms_max=consumer.fetch_max_wait_ms,
        rack=consumer.client_rack or "",
        stuck_ms_max=_STUCK_MS_MAX,
        advice_on_loss=_ADVICE_ON_LOSS,
    )
    return client, fetching


def _schema(columns: Sequence[str] | None) -> pa.Schema:
    every = arrow.schema(include_headers=True)
    if columns is None:
        return arrow.schema()
    if not columns:
        raise ValueError("columns is empty: a scan needs at least one column")
    for name in columns:
        if name not in every.names:
            near = nearest_to(name, every.names) or f": records have {', '.join(every.names)}"
            raise ValueError(f"records have no column {name!r}{near}")
    return pa.schema([every.field(name) for name in columns])


def _planned(
    cluster: TopicCluster,
    topic: str,
    start: Bound | None,
    end: Bound | None,
    partitions: Collection[int] | None,
    fetching: Fetching,
) -> list[OffsetRange]:
    shape = cluster.topics([topic]).get(topic)
    if shape is None:
        near = nearest_to(topic, list(cluster.topics_like(".*")))
        raise SourceReadError(f"there is no topic {topic!r}{near}")
    names = _chosen(topic, shape.partitions, partitions)

    def find(time_ms: int) -> dict[TopicPartition, int]:
        asked = dict.fromkeys(names, time_ms)
        return cluster.find(asked, is_committed_only=fetching.is_committed_only)

    first, last = find(EARLIEST), find(LATEST)
    starts = first | _offsets("start", start, names, last, find)
    ends = last | _offsets("end", end, names, last, find)
    return [
        OffsetRange(
            *name, max(starts[name], first[name]), min(ends[name], last[name]), shape.topic_id
        )
        for name in names
    ]


def _chosen(
    topic: str, names: Sequence[TopicPartition], numbers: Collection[int] | None
) -> list[TopicPartition]:
    if numbers is None:
        return list(names)
    chosen = [TopicPartition(topic, number) for number in sorted(set(numbers))]
    for name in chosen:
        if name not in names:
            raise ValueError(
                f"topic {topic!r} has no partition {name.partition}: it has {len(names)} of them"
            )
    return chosen


def _offsets(
    argument: str,
    bound: Bound | None,
    names: Sequence[TopicPartition],
    last: Mapping[TopicPartition, int],
    find: Callable[[int], dict[TopicPartition, int]],
) -> dict[TopicPartition, int]:
    """Return the offsets that a bound names; none where it says nothing of a partition."""
    if bound is None:
        return {}
    if isinstance(bound, datetime):
        if bound.tzinfo is None:
            raise ValueError(f"{argument} is {bound}: it needs a time zone, such as UTC")
        found = find(max(int(bound.timestamp() * 1000), 0))
        return {name: last[name] if found[name] < 0 else found[name] for name in names}
    if isinstance(bound, int):
        said = dict.fromkeys(names, bound)
    else:
        topic = names[0].topic
        said = {TopicPartition(topic, number): offset for number, offset in bound.items()}
        _chosen(topic, names, bound)
    for name, offset in said.items():
        if offset < 0:
            raise ValueError(f"{argument} is {offset} for {name}: an offset is at least 0")
    return said
