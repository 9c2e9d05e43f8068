"""One scrape: gathered on the event loop, written on a thread, neither of them for long at a time.

A thread that computes takes the interpreter away from the event loop for five milliseconds each
time, and the loop gives it up at every call of the kernel. So the thread rests after every part:
a request that comes in meanwhile waits for one part only.
"""

import asyncio
from collections.abc import Iterator
from itertools import chain
from time import sleep
from typing import Final

from ottla.broker.metrics.exposition import Family, text_parts
from ottla.broker.metrics.jmx import jmx_families
from ottla.broker.metrics.jmx_requests import jmx_request_families
from ottla.broker.metrics.kafka_exporter import kafka_exporter_families
from ottla.broker.metrics.ottla_metrics import ottla_families, process_families
from ottla.broker.metrics.snapshot import Snapshot, Sources

REST_SECONDS: Final = 0.0005
GATHERING_SECONDS_MAX: Final = 8.0
"""Less than Prometheus' default timeout."""


def scrape_text(sources: Sources, loop: asyncio.AbstractEventLoop) -> bytes:
    """Write all metrics; blocks, so it must be called on a thread that is not the loop's.

    TimeoutError if the event loop does not respond.
    """
    gathering = asyncio.run_coroutine_threadsafe(sources.snapshot(), loop)
    try:
        snapshot = gathering.result(GATHERING_SECONDS_MAX)
    finally:
        gathering.cancel()
    parts = []
    for part in text_parts(_families(snapshot)):
        parts.append(part.encode())
        sleep(REST_SECONDS)
    return b"".join(parts)


def _families(snapshot: Snapshot) -> Iterator[Family]:
    return chain(
        kafka_exporter_families(snapshot),
        jmx_families(snapshot),
        jmx_request_families(snapshot),
        ottla_families(snapshot),
        process_families(),
    )
