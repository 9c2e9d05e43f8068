"""`ottla bench`: a load generator that measures the throughput and latency of a cluster."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Annotated, Final

import typer

from ottla.cli.commands.consume import unread
from ottla.cli.commands.produce import parse_acks, parse_compression
from ottla.cli.support.deliveries import REFUSALS, Deliveries, producer_over
from ottla.cli.support.exit_codes import WrongCallError
from ottla.cli.support.options import DEFAULT_BROKERS, Brokers, Format, Settings, with_cluster
from ottla.cli.support.output import OutputFormat, show_one
from ottla.cli.support.positions import END, START, resolve
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.producer.bulk.bulk_delivery import BulkDelivery
from ottla.clients.producer.sending.sender import REQUEST_OVERHEAD_BYTES
from ottla.clients.producer.state.settings import ProducerSettings
from ottla.concurrency.sleep import pause
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.wire.records.batch import HEADER_BYTES
from ottla.wire.records.builder import record_bytes_max

PERCENTILES: Final = (50, 95, 99, 99.9)
MEGABYTE: Final = 1_000_000
TURN_RECORDS_MAX: Final = 200
"""The number of records that are sent together at a limited rate."""
BATCHES_WAITING_MAX: Final = 16
"""The limit of waiting batches, so that the latency has no queueing in this process."""
POLLED_RECORDS_MAX: Final = 2_000
END_SECONDS: Final = 0.1
"""How long to wait for records before checking whether any are left."""
READING: Final = ConsumerSettings(
    enable_auto_commit=False, fetch_max_bytes=16 << 20, max_partition_fetch_bytes=4 << 20
)
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
        int, typer.Option("--rate", "-r", min=0, help="Records per second; 0: as many as possible.")
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
    """Send records as fast as possible, or at a rate; latency is measured per batch."""
    value = (b"Dearest Ottla, " * (size // 15 + 1))[:size]
    one_bytes = record_bytes_max(None, value, ())
    request_bytes = max(batch, HEADER_BYTES + one_bytes) + REQUEST_OVERHEAD_BYTES
    how = ProducerSettings(
        acks=parse_acks(acks),
        compression_type=parse_compression(compression),
        batch_size=batch,
        max_request_size=max(request_bytes, 1 << 20),
        buffer_memory=BATCHES_WAITING_MAX * request_bytes,
    )
    turn = max((batch - HEADER_BYTES) // one_bytes, 1)
    load = _Load(topic, value, count, min(turn, TURN_RECORDS_MAX) if rate else turn, rate)
    show_one(
        with_cluster(brokers, settings, lambda view: _produce(view, how, load), *REFUSALS), form
    )


@dataclass(frozen=True, slots=True)
class _Load:
    """The load: a number of records with one value, in portions."""

    topic: str
    value: bytes
    count: int
    turn: int
    rate: int
    """Records per second; 0 for no limit."""


async def _produce(view: ClusterView, how: ProducerSettings, load: _Load) -> dict[str, object]:
    loop = asyncio.get_running_loop()
    latencies_ms: list[float] = []

    def note(asked: float, _: BulkDelivery) -> None:
        latencies_ms.append((loop.time() - asked) * 1000)

    await view.topic(load.topic, allow_auto_creation=True)
    async with producer_over(view, how) as producer:
        deliveries = Deliveries(producer)
        began = loop.time()
        for sent in range(0, load.count, load.turn):
            if load.rate and (ahead := sent / load.rate - (loop.time() - began)) > 0:
                await pause(ahead * 1000)
            records = repeat(load.value, min(load.turn, load.count - sent))
            await deliveries.send(load.topic, records, partial(note, loop.time()))
        await deliveries.flush()
        seconds = loop.time() - began
    size_bytes = load.count * len(load.value)
    return _result(load.count, size_bytes, seconds) | _percentiles(latencies_ms)


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
    """Read records from the start of a topic; latency is the time spent waiting for fetches."""
    show_one(with_cluster(brokers, settings, lambda view: _consume(view, topic, count)), form)


async def _consume(view: ClusterView, topic: str, count: int | None) -> dict[str, object]:
    admin = AsyncAdmin.over(view)
    names = [TopicPartition(topic, n) for n in range(len((await view.topic(topic)).partitions))]
    starts = await resolve(admin, names, START)
    ends = await resolve(admin, names, END)
    pending = {name: offset for name, offset in starts.items() if offset < ends[name]}
    if not pending:
        raise WrongCallError(f"topic {topic!r} is empty: `ottla bench produce {topic}` fills it")
    loop = asyncio.get_running_loop()
    latencies_ms, records, size_bytes = [], 0, 0
    async with AsyncConsumer.over(view, READING, SystemClock()) as consumer:
        consumer.assign(pending)
        for name, offset in pending.items():
            consumer.seek(name, offset)
        began = loop.time()
        while unread(consumer, ends) and (count is None or records < count):
            wanted = min(POLLED_RECORDS_MAX, count - records if count else POLLED_RECORDS_MAX)
            is_there, asked = consumer.core.buffer.has_records, loop.time()
            polled = await consumer.poll(wanted, timeout=END_SECONDS)
            if not is_there:
                latencies_ms.append((loop.time() - asked) * 1000)
            records += len(polled)
            size_bytes += sum(len(one.value or b"") + len(one.key or b"") for one in polled)
        seconds = loop.time() - began
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
    """Return the latency at each percentile, and the maximum."""
    if not latencies_ms:
        return {}
    ordered = sorted(latencies_ms)
    last = len(ordered) - 1
    found: dict[str, object] = {
        f"P{percent:g}-MS": round(ordered[min(int(len(ordered) * percent / 100), last)], 2)
        for percent in PERCENTILES
    }
    return found | {"MAX-MS": round(ordered[-1], 2)}
