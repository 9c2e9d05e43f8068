"""`ottla produce`: records from stdin to a topic."""

import sys
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ottla.cli.support.deliveries import REFUSALS, Deliveries, producer_over
from ottla.cli.support.exit_codes import WrongCallError, say
from ottla.cli.support.input_format import (
    RECORD_BYTES_MAX,
    InputReader,
    InputRecord,
    UnreadableInputError,
    parse_header,
)
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
from ottla.cli.support.standard_input import chunks
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.producer.bulk.bulk_delivery import BulkDelivery
from ottla.clients.producer.state.settings import ALL_REPLICAS, ProducerSettings
from ottla.model.identifiers import TopicPartition
from ottla.wire.records.compression.codecs import Compression

if TYPE_CHECKING:
    from ottla.cli.schemas.schema_records import PartSchema

ACKS_BY_WORD: Final = {"all": ALL_REPLICAS, "-1": ALL_REPLICAS, "0": 0, "1": 1}
REQUEST_BYTES_MAX: Final = RECORD_BYTES_MAX + (1 << 20)
"""The limit of a request, above every record limit: the topic's limit decides."""
SENDING: Final = ProducerSettings(
    max_request_size=REQUEST_BYTES_MAX, buffer_memory=REQUEST_BYTES_MAX
)
DETAILS: Final = """By default every line is a value. --format says otherwise:

\b
  -f '%k:%v\\n'        a key, a colon and a value on every line
  -f '%k\\t%h\\t%v\\n'   with headers, as a=b,c=d
  -f '%v\\0'           values that end with a zero byte
  -f json             the output of `ottla consume -f json`; --ignore-partition
                      fits it to a topic with other partitions

%k key, %v value, %h headers, %t topic, %p partition, %T time in milliseconds.
Options of the command line take precedence over fields of a record.

--value-schema and --key-schema encode JSON by a schema. A file (.avsc, .json, .proto) or a
package.module:Class is registered as TOPIC-value or TOPIC-key at the first record; SUBJECT,
SUBJECT@VERSION and an id are schemas in the registry.
"""


Codec = Annotated[str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.")]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Send all to this partition.")
]
Tombstone = Annotated[
    bool, typer.Option("--tombstone", "-Z", help="An empty value is null: it deletes the key.")
]
Acks = Annotated[str, typer.Option("--acks", help="Acknowledging replicas: all, 1, 0.")]
IgnorePartition = Annotated[
    bool,
    typer.Option(
        "--ignore-partition", help="Choose partitions by key; ignore the records' partitions."
    ),
]


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, help=f"{summary}\n\n{DETAILS}")(produce)


def parse_compression(word: str) -> Compression:
    """Parse the name of a codec; an invalid name is a wrong call."""
    if word.upper() not in Compression.__members__:
        names = ", ".join(codec.lower() for codec in Compression.__members__)
        raise WrongCallError(f"--compression is one of {names}, not {word!r}")
    return Compression[word.upper()]


def parse_acks(word: str) -> int:
    """Parse the number of acknowledgements; an invalid number is a wrong call."""
    if word not in ACKS_BY_WORD:
        raise WrongCallError(f"--acks is all, 1 or 0, not {word!r}")
    return ACKS_BY_WORD[word]


def produce(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC]", help="The topic of records without one (%t)."),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", "-f", metavar="FORMAT", help="The format of standard input.")
    ] = "%v\\n",
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="KEY:VALUE", help="A record header. Repeatable."),
    ] = None,
    partition: Partition = None,
    ignore_partition: IgnorePartition = False,
    compression: Codec = "none",
    acks: Acks = "all",
    tombstone: Tombstone = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print each batch's partition and offset.")
    ] = False,
    key_schema: KeySchema = None,
    value_schema: ValueSchema = None,
    registry: RegistryUrl = DEFAULT_REGISTRY,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
) -> None:
    """Write records to a topic."""
    if topic is None and form != "json" and "%t" not in form:
        raise WrongCallError("no topic is named: give TOPIC, or a format with %t")
    if ignore_partition and partition is not None:
        raise WrongCallError("--partition and --ignore-partition exclude each other: give only one")
    key_bytes = None if key is None else key.encode()
    fixed = _Fixed(topic, key_bytes, _headers(headers), partition, ignore_partition)
    encoding = _Encoding(registry, _part_schemas(registry, key_schema, value_schema))
    reader = InputReader(form, encoding.parts)
    how = replace(SENDING, acks=parse_acks(acks), compression_type=parse_compression(compression))

    async def work(view: ClusterView) -> None:
        async with AsyncExitStack() as stack:
            producer = await stack.enter_async_context(producer_over(view, how))
            encoder = await encoding.open(stack)
            gathering = _Gathering(view, fixed, encoder, is_empty_null=tombstone)
            on_delivered = _print_batches if verbose else _say_nothing
            await _send_all(Deliveries(producer), gathering, reader, on_delivered)

    if sys.stdin.isatty():
        say("every line is a record; Ctrl-D ends")
    with_cluster(brokers, settings, work, UnreadableInputError, *REFUSALS, *encoding.refusals())


@dataclass(frozen=True, slots=True)
class _Encoding:
    """The parts of records to encode; the modules of schemas are imported only for them."""

    url: str
    schemas: "list[PartSchema]"

    @property
    def parts(self) -> frozenset[str]:
        """The parts that are encoded: key, value."""
        return frozenset(row.part for row in self.schemas)

    async def open(self, stack: AsyncExitStack) -> Any:
        """Return the RecordEncoder, which the stack closes; None if nothing is encoded."""
        if not self.schemas:
            return None
        from ottla.cli.schemas.schema_records import RecordEncoder  # noqa: PLC0415

        return await stack.enter_async_context(RecordEncoder(self.url, self.schemas))

    def refusals(self) -> tuple[type[Exception], ...]:
        """Return the exceptions of encoding."""
        if not self.schemas:
            return ()
        from ottla.cli.schemas import schema_records, schema_registry  # noqa: PLC0415

        return (schema_records.UnfitRecordError, *schema_registry.REFUSALS)


def _part_schemas(url: str, key: str | None, value: str | None) -> "list[PartSchema]":
    if not (key or value):
        return []
    from ottla.cli.schemas.schema_records import part_schemas  # noqa: PLC0415

    return part_schemas(url, key, value, is_registering=True)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Values from the command line that override the fields of every record."""

    topic: str | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    ignores_partition: bool
    """Whether the partitioner chooses even if a record has a partition."""

    def partition_of(self, record: InputRecord) -> int | None:
        """Return the partition of a record; None leaves the choice to the partitioner."""
        if self.ignores_partition:
            return None
        return record.partition if self.partition is None else self.partition


def _headers(words: list[str] | None) -> tuple[tuple[str, bytes | None], ...]:
    try:
        return tuple(parse_header(word, ":=") for word in words or ())
    except ValueError as error:
        raise WrongCallError(str(error)) from None


async def _send_all(
    deliveries: Deliveries,
    gathering: "_Gathering",
    reader: InputReader,
    on_delivered: Callable[[BulkDelivery], None],
) -> None:
    """Send the records of stdin, and wait for delivery whenever stdin pauses."""

    async def send(records: Iterable[InputRecord]) -> None:
        try:
            for record in records:
                await gathering.add(record)
        finally:  # records before an unreadable one are sent
            for topic, rows in await gathering.take():
                await deliveries.send(topic, rows, on_delivered)

    async for chunk in chunks():
        await send(reader.feed(chunk.data))
        if not chunk.has_more:
            await deliveries.flush()
    await send(reader.finish())
    await deliveries.flush()


class _Gathering:
    """Collects records to send together."""

    def __init__(
        self, view: ClusterView, fixed: _Fixed, encoder: Any, *, is_empty_null: bool
    ) -> None:
        self._view = view
        self._fixed = fixed
        self._is_empty_null = is_empty_null
        self._rows_by_topic: dict[str, list[Any]] = {}
        self._is_known_by_partition: dict[TopicPartition, bool] = {}
        self._number = 0
        self._encoder = encoder

    async def add(self, record: InputRecord) -> None:
        """Add a record; UnreadableInputError if it has no topic."""
        self._number += 1
        fixed = self._fixed
        topic = fixed.topic or record.topic
        if topic is None:
            raise UnreadableInputError("a record names no topic: give TOPIC")
        value = None if self._is_empty_null and not record.value else record.value
        key = record.key if fixed.key is None else fixed.key
        if self._encoder is not None:
            key = await self._encoder.encoded(topic, "key", self._number, key)
            value = await self._encoder.encoded(topic, "value", self._number, value)
        headers = (*record.headers, *fixed.headers)
        partition = fixed.partition_of(record)
        row: Any = (key, value)
        if headers or partition is not None or record.timestamp_ms is not None:
            row = {"value": value, "key": key, "headers": headers}
            row |= {"timestamp": record.timestamp_ms, "partition": partition}
        if partition is not None:
            self._is_known_by_partition.setdefault(TopicPartition(topic, partition), False)
        self._rows_by_topic.setdefault(topic, []).append(row)

    async def take(self) -> list[tuple[str, list[Any]]]:
        """Return the added records; raises at once if broker, topic or partition does not exist."""
        taken, self._rows_by_topic = list(self._rows_by_topic.items()), {}
        for topic, _ in taken:
            await self._view.topic(topic, allow_auto_creation=True)
        for name, is_known in self._is_known_by_partition.items():
            if not is_known:
                await self._view.partition(name)
        self._is_known_by_partition = dict.fromkeys(self._is_known_by_partition, True)
        return taken


def _print_batches(delivery: BulkDelivery) -> None:
    for partition, landed in delivery.result().offsets.items():
        name = TopicPartition(delivery.topic, partition)
        say(f"{landed.record_count} records to {name} from offset {landed.first_offset} on")


def _say_nothing(_: BulkDelivery) -> None:
    """Ignore a delivery."""
