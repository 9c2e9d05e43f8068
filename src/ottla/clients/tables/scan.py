"""`ottla.scan`: the records of a topic as Arrow batches, without a consumer group.

The bounds are fixed when the scan is made. Each partition is cut into pieces, and threads read the
pieces ahead; the batches come in the order of partitions and offsets. Arrow, Polars, pandas and
DuckDB take a scan as it is, because it has Arrow's stream interface. With `decode`, values become
typed columns in the threads that read.
"""

import os
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import datetime
from queue import SimpleQueue
from threading import Semaphore
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

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

if TYPE_CHECKING:
    from ottla.clients.schemas.registry_client import RegistryClient
    from ottla.clients.schemas.schema_settings import ClientSchemas
    from ottla.clients.tables.typed_records import Decoding, TypedRecords
    from ottla.schemas.schema import Schema

Bound: TypeAlias = int | datetime | Mapping[int, int]
"""An offset for every partition, a time, or an offset by partition."""
OnError: TypeAlias = Literal["raise", "null"]
"""Whether a value that cannot be decoded ends a scan, or is a row of nulls."""

PIECE_OFFSETS_MAX: Final = 200_000
"""The offsets that a thread reads at a time."""
QUEUED_BATCHES_MAX: Final = 4
"""The batches of one piece that wait for the reader of the scan; each has about 4 MiB."""
THREADS_MAX: Final = 8
_FETCH_BYTES: Final = 4 << 20
_STUCK_MS_MAX: Final = 60_000
_ADVICE_ON_LOSS: Final = "scan again: the new scan begins where the log begins"
_ADVICE_ON_ERROR: Final = 'on_error="null" makes such rows null'


def scan(  # noqa: PLR0913 - keywords with defaults, in two independent groups
    topic: str,
    settings: Mapping[str, Any] | None = None,
    /,
    *,
    start: Bound | None = None,
    end: Bound | None = None,
    partitions: Collection[int] | None = None,
    columns: Sequence[str] | None = None,
    threads: int | None = None,
    decode: str | None = None,
    subject: str | None = None,
    version: int | None = None,
    schema: "Schema | None" = None,
    on_error: OnError = "raise",
    **keywords: Any,
) -> "Scan":
    """Return the records of a topic from `start` to before `end`; by default, all that exist now.

    A time stands for the first record of a partition with this timestamp or a later one. Offsets
    outside the log stand for its ends. The settings are a consumer's, by Kafka's names.

    `decode` is `value`, `key` or `key,value`. The columns are the fields of a schema: `schema`, or
    the latest version, or `version`, of the topic's subject in the registry, or of `subject`. Then
    follow `_key`, `_partition`, `_offset` and `_timestamp`. Without schema.registry.url, all values
    are of `schema`, and have no id of a schema before them.
    """
    client, fetching, registry = _settings(settings, keywords)
    typing = None
    if decode is not None:
        decoding = _decoding(topic, registry, decode, subject, version, schema)
        typing = _Typing(decoding, None if columns is None else tuple(columns), on_error)
        shown = typing.schema()
    elif subject is not None or version is not None or schema is not None:
        raise ValueError('subject, version and schema are for values: add decode="value"')
    else:
        shown = _schema(columns)
    if threads is None:
        threads = min(os.cpu_count() or 1, THREADS_MAX)
    elif threads < 1:
        raise ValueError(f"threads is {threads}: it must be at least 1")
    with TopicCluster(client) as cluster:
        ranges = _planned(cluster, topic, start, end, partitions, fetching)
    return Scan(client, fetching, tuple(ranges), shown, threads, typing)


@dataclass(frozen=True, slots=True)
class _Typing:
    """How records become typed columns."""

    decoding: "Decoding"
    columns: tuple[str, ...] | None
    on_error: OnError

    def __post_init__(self) -> None:
        if self.on_error not in {"raise", "null"}:
            raise ValueError(f"on_error is {self.on_error!r}: expected raise or null")

    def schema(self) -> pa.Schema:
        with ExitStack() as stack:
            return self.records(self.registry(stack)).schema

    def registry(self, stack: ExitStack) -> "RegistryClient | None":
        """Make the client of the registry, which threads may share."""
        from ottla.clients.schemas.registry_client import RegistryClient  # noqa: PLC0415

        settings = self.decoding.registry
        return None if settings is None else stack.enter_context(RegistryClient(settings))

    def records(self, registry: "RegistryClient | None") -> "TypedRecords":
        """Make the decoders of one thread."""
        from ottla.clients.tables.typed_records import TypedRecords  # noqa: PLC0415

        return TypedRecords(self.decoding, registry, self.columns)

    def typed(
        self, records: "TypedRecords", batch: pa.RecordBatch, piece: OffsetRange
    ) -> pa.RecordBatch:
        from ottla.clients.tables.typed_records import raise_first  # noqa: PLC0415

        found = records.decode(batch)
        if found.errors and self.on_error == "raise":
            raise_first(found, batch.column("offset"), piece.name, _ADVICE_ON_ERROR)
        return found.batch


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
    _typing: _Typing | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Read the records; SourceReadError if that fails.

        It is a DataLossError if records were deleted, and a ValueDecodingError for a bad value.
        A failing registry raises RegistryError or RegistryUnreachableError.
        """
        pieces = deque(split(self.ranges, records_per_partition_max=PIECE_OFFSETS_MAX))
        with ExitStack() as stack:
            cluster = stack.enter_context(TopicCluster(self._client))
            registry = None if self._typing is None else self._typing.registry(stack)

            def read(piece: OffsetRange) -> Generator[pa.RecordBatch, None, None]:
                if self._typing is None:
                    return self._read(cluster, piece, self.schema)
                return self._read_typed(cluster, piece, self._typing, registry)

            with _ReadAhead(pieces, read, self._threads) as ahead:
                yield from ahead.batches()

    def _read(
        self, cluster: TopicCluster, piece: OffsetRange, columns: pa.Schema
    ) -> Generator[pa.RecordBatch, None, None]:
        return read_range(cluster, piece, self._fetching, columns, fail_on_data_loss=True)

    def _read_typed(
        self,
        cluster: TopicCluster,
        piece: OffsetRange,
        typing: _Typing,
        registry: "RegistryClient | None",
    ) -> Generator[pa.RecordBatch, None, None]:
        records = typing.records(registry)
        with closing(self._read(cluster, piece, records.raw)) as batches:
            for batch in batches:
                yield typing.typed(records, batch, piece)

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
) -> "tuple[ClientSettings, Fetching, ClientSchemas | None]":
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
    return client, fetching, consumer.schemas


def _decoding(
    topic: str,
    schemas: "ClientSchemas | None",
    decode: str,
    subject: str | None,
    version: int | None,
    schema: "Schema | None",
) -> "Decoding":
    """Find the schemas of the columns; ValueError if no argument leads to them."""
    from ottla.clients.tables.typed_records import Decoding, find_decoding, parts_of  # noqa: PLC0415

    parts = parts_of(decode)
    if schema is not None:
        if len(parts) != 1 or subject is not None or version is not None:
            raise ValueError("schema is for one part, without subject and version")
        return Decoding({parts[0]: schema}, None if schemas is None else schemas.registry)
    if schemas is None:
        raise ValueError("decode needs schema_registry_url, or schema for values without an id")
    if subject is not None and len(parts) != 1:
        raise ValueError("subject is for one part: give decode='value' or decode='key'")
    name = schemas.settings.subject_name_strategy
    subjects = {part: subject or name(topic, part, None) for part in parts}
    return find_decoding(schemas.registry, subjects, version=version)


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
