"""`ottla produce`: records from stdin to a topic."""

import sys
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from ottla.cli.exits import WrongCallError, say
from ottla.cli.input_format import InputReader, InputRecord, UnreadableInputError, parse_header
from ottla.cli.options import DEFAULT_BROKERS, Brokers, Settings, with_cluster
from ottla.cli.standard_input import chunks
from ottla.clients.cluster_view import ClusterView
from ottla.clients.producer import Delivered, Producer, ProducerSettings
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandomness
from ottla.wire.records.compression import Compression

ACKS_BY_WORD: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}
DETAILS: Final = """By default every line is a value. --format says otherwise:

\b
  -f '%k:%v\\n'        a key, a colon and a value on every line
  -f '%k\\t%h\\t%v\\n'   with headers, as a=b,c=d
  -f '%v\\0'           values that end with a zero byte
  -f json             what `ottla consume -f json` writes

%k key, %v value, %h headers, %t topic, %p partition, %T time in milliseconds.
What the command line says of records goes before what they say themselves.
"""


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, help=f"{summary}\n\n{DETAILS}")(produce)


def parse_compression(word: str) -> Compression:
    """Read the name of a codec; nonsense is a wrong call."""
    if word.upper() not in Compression.__members__:
        names = ", ".join(codec.lower() for codec in Compression.__members__)
        raise WrongCallError(f"--compression is one of {names}, not {word!r}")
    return Compression[word.upper()]


def parse_acks(word: str) -> int:
    """Read how many replicas are to have a record; nonsense is a wrong call."""
    if word not in ACKS_BY_WORD:
        raise WrongCallError(f"--acks is all, 1 or 0, not {word!r}")
    return ACKS_BY_WORD[word]


def produce(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC]", help="Where records go, if they do not say it (%t)."),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", "-f", metavar="FORMAT", help="How stdin is to be read.")
    ] = "%v\\n",
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="KEY:VALUE", help="On every record. Repeatable."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Send everything to this one.")
    ] = None,
    compression: Annotated[
        str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    acks: Annotated[
        str, typer.Option("--acks", help="Who must have a record: all replicas, 1 (the leader), 0.")
    ] = "all",
    tombstone: Annotated[
        bool, typer.Option("--tombstone", "-Z", help="An empty value is null: it deletes the key.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say on stderr where batches went.")
    ] = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
) -> None:
    """Write records to a topic."""
    if topic is None and form != "json" and "%t" not in form:
        raise WrongCallError("no topic is named: give TOPIC, or a format with %t")
    fixed = _Fixed(topic, None if key is None else key.encode(), _headers(headers), partition)
    reader = InputReader(form)
    how = ProducerSettings(acks=parse_acks(acks), compression=parse_compression(compression))

    async def work(view: ClusterView) -> None:
        on_delivery = _tell if verbose else None
        producer = Producer(view, SystemClock(), SystemRandomness(), how, on_delivery)
        await _send_all(producer, reader, fixed, is_empty_null=tombstone)

    if sys.stdin.isatty():
        say("every line is a record; Ctrl-D ends")
    with_cluster(brokers, settings, work, UnreadableInputError)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What the command line says of every record, whatever the record says itself."""

    topic: str | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None


def _headers(words: list[str] | None) -> tuple[tuple[str, bytes | None], ...]:
    try:
        return tuple(parse_header(word, ":=") for word in words or ())
    except ValueError as error:
        raise WrongCallError(str(error)) from None


async def _send_all(
    producer: Producer, reader: InputReader, fixed: _Fixed, *, is_empty_null: bool
) -> None:
    """Send what stdin gives, as soon as no more of it is there at the moment."""

    async def send(record: InputRecord) -> None:
        topic = fixed.topic or record.topic
        if topic is None:
            raise UnreadableInputError("a record names no topic: give TOPIC")
        await producer.send(
            topic,
            None if is_empty_null and not record.value else record.value,
            record.key if fixed.key is None else fixed.key,
            (*record.headers, *fixed.headers),
            record.partition if fixed.partition is None else fixed.partition,
            record.timestamp_ms,
        )

    try:
        async for chunk in chunks():
            for record in reader.feed(chunk.data):
                await send(record)
            if not chunk.has_more:
                await producer.flush()
        for record in reader.finish():
            await send(record)
    finally:
        await producer.flush()


def _tell(delivered: Delivered) -> None:
    name, offset, count, _ = delivered
    say(f"{count} records to {name} from offset {offset} on")
