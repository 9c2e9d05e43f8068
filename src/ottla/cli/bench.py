"""`ottla bench`: a load generator that measures what a cluster takes and gives."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from ottla.cli.exits import WrongCallError
from ottla.cli.options import DEFAULT_BROKERS, Brokers, Format, Settings, with_cluster
from ottla.cli.output import OutputFormat, show_one
from ottla.cli.positions import START, resolve
from ottla.cli.produce import parse_acks, parse_compression
from ottla.clients.admin import Admin
from ottla.clients.cluster_view import ClusterView, pause
from ottla.clients.fetcher import Fetcher
from ottla.clients.producer import Delivered, Producer, ProducerSettings
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandomness

PERCENTILES: Final = (50, 95, 99, 99.9)
MEGABYTE: Final = 1_000_000
_TURN_RECORDS: Final = 200
"""How many records are made before time is looked at."""
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to measure with.")]
benches = typer.Typer(no_args_is_help=True)


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(benches, name=name, help=summary)


@benches.command("produce")
def produce(
    topic: Topic,
    count: Annotated[int, typer.Option("--num", "-n", min=1, help="How many records.")] = 1_000_000,
    size: Annotated[int, typer.Option("--size", "-s", min=1, help="Bytes of each value.")] = 100,
    rate: Annotated[
        int, typer.Option("--rate", "-r", min=0, help="Records per second; 0 is all it can.")
    ] = 0,
    batch: Annotated[int, typer.Option("--batch-bytes", min=1, help="How large batches are.")] = 256
    << 10,
    compression: Annotated[
        str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "all",
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Send records as fast as they are taken, or at a rate; latency is that of batches."""
    how = ProducerSettings(
        acks=parse_acks(acks), compression=parse_compression(compression), batch_bytes=batch
    )
    value = (b"Dearest Ottla, " * (size // 15 + 1))[:size]

    async def work(view: ClusterView) -> dict[str, object]:
        latencies_ms: list[float] = []

        def on_delivery(delivered: Delivered) -> None:
            latencies_ms.append(delivered.latency_ms)

        producer = Producer(view, SystemClock(), SystemRandomness(), how, on_delivery)
        await view.topic(topic, allow_auto_creation=True)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for sent in range(0, count, _TURN_RECORDS):
            if rate and (ahead := sent / rate - (loop.time() - began)) > 0:
                await producer.flush()
                await pause(ahead * 1000)
            for _ in range(min(_TURN_RECORDS, count - sent)):
                await producer.send(topic, value)
        await producer.flush()
        return _result(count, count * size, loop.time() - began) | _percentiles(latencies_ms)

    show_one(with_cluster(brokers, settings, work), form)


@benches.command("consume")
def consume(
    topic: Topic,
    count: Annotated[
        int | None, typer.Option("--num", "-n", min=1, help="How many records; all, if not said.")
    ] = None,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Read records from the start of a topic; latency is that of fetches."""
    show_one(with_cluster(brokers, settings, lambda view: _consume(view, topic, count)), form)


async def _consume(view: ClusterView, topic: str, count: int | None) -> dict[str, object]:
    admin = Admin.over(view)
    names = [TopicPartition(topic, n) for n in range(len((await view.topic(topic)).partitions))]
    starts = await resolve(admin, names, START)
    ends = await admin.offsets.ends(names)
    pending = {name: offset for name, offset in starts.items() if offset < ends[name][1]}
    if not pending:
        raise WrongCallError(f"topic {topic!r} is empty: `ottla bench produce {topic}` fills it")
    loop = asyncio.get_running_loop()
    latencies_ms, records, size_bytes = [], 0, 0
    fetcher = Fetcher(view, pending)
    began = loop.time()
    while fetcher.offset_by_partition and (count is None or records < count):
        asked = loop.time()
        for fetched in await fetcher.poll():
            records += sum(1 for _ in fetched.records())
            size_bytes += sum(batch.size_bytes for batch in fetched.batches)
            if fetched.end_offset >= ends[fetched.partition][1]:
                fetcher.drop(fetched.partition)
        latencies_ms.append((loop.time() - asked) * 1000)
    seconds = loop.time() - began
    await fetcher.close()
    return _result(records, size_bytes, seconds) | _percentiles(latencies_ms)


def _result(records: int, size_bytes: int, seconds: float) -> dict[str, object]:
    seconds = max(seconds, sys.float_info.epsilon)
    return {
        "RECORDS": records,
        "SECONDS": round(seconds, 3),
        "RECORDS/S": round(records / seconds),
        "MB/S": round(size_bytes / seconds / MEGABYTE, 1),
    }


def _percentiles(latencies_ms: Sequence[float]) -> dict[str, object]:
    """Return the smallest latency that so many per cent do not exceed, for each percentage."""
    if not latencies_ms:
        return {}
    ordered = sorted(latencies_ms)
    last = len(ordered) - 1
    found: dict[str, object] = {
        f"P{percent:g}-MS": round(ordered[min(int(len(ordered) * percent / 100), last)], 2)
        for percent in PERCENTILES
    }
    return found | {"MAX-MS": round(ordered[-1], 2)}
