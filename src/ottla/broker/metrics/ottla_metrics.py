"""Metrics without a name in Kafka or its exporters, and Prometheus' metrics of a process."""

import resource
from collections.abc import Iterator
from typing import Final

from ottla.broker.maintenance.log_scrubber import DamageCounts
from ottla.broker.metrics.exposition import Family, Sample, counter, gauge, labels
from ottla.broker.metrics.jmx import ApiFacts, facts_by_api
from ottla.broker.metrics.snapshot import Snapshot
from ottla.broker.requests.request_metrics import bucket_bound_ns
from ottla.runtime.process import open_descriptor_count, resident_bytes

BUCKET_STEP: Final = 4
"""Every fourth bucket is exported: bounds grow by the factor four."""
FIRST_TOLD: Final = 28
LAST_TOLD: Final = 72
"""From about sixteen microseconds to about a minute."""
_NS_PER_SECOND: Final = 1e9


def ottla_families(snapshot: Snapshot) -> Iterator[Family]:
    """Yield Ottla's own metrics."""
    yield gauge(
        "ottla_start_seconds",
        "How long the start took, until clients were let in.",
        snapshot.start_seconds,
    )
    yield from _loop(snapshot)
    yield counter(
        "ottla_connections_closed_total",
        "Connections that ended or were not let in, by the reason.",
        [Sample(labels(reason=why), n) for why, n in sorted(snapshot.closed_by_reason.items())],
    )
    yield counter(
        "ottla_cold_reads_total",
        "Parts of logs that were fetched from disk before they were sent.",
        snapshot.cold_reads,
    )
    yield counter("ottla_cold_read_bytes_total", "Bytes of these.", snapshot.cold_bytes)
    yield from _damage(snapshot.damage)
    yield gauge("ottla_groups", "Groups, by their state.", list(_groups(snapshot)))
    counts = snapshot.transactions.count_by_state
    yield gauge(
        "ottla_transactions",
        "Transactional ids that this broker coordinates, by their state.",
        [Sample(labels(state=state), count) for state, count in sorted(counts.items())],
    )
    yield gauge(
        "ottla_full_log_directories",
        "Log dirs on a full disk.",
        snapshot.full_log_dirs,
    )
    yield Family(
        "ottla_request_seconds",
        "histogram",
        "Seconds from a request's arrival to its answer, waiting included.",
        [sample for api in facts_by_api(snapshot) for sample in _histogram(api)],
    )


def _damage(damage: DamageCounts) -> Iterator[Family]:
    yield gauge(
        "ottla_damaged_ranges",
        "Ranges of offsets that the disks of this broker have lost and that are not repaired yet.",
        damage.ranges,
    )
    yield counter(
        "ottla_damaged_ranges_found_total",
        "Damaged ranges that were found while the broker ran.",
        damage.found_ranges,
    )
    yield counter(
        "ottla_repaired_ranges_total",
        "Damaged ranges that were fetched again from other brokers.",
        damage.repaired_ranges,
    )
    yield counter(
        "ottla_scrubbed_bytes_total",
        "Bytes of logs that were read to find damage.",
        damage.scrubbed_bytes,
    )


def process_families() -> Iterator[Family]:
    """Yield the process metrics of Prometheus' client libraries."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield gauge("process_open_fds", "Open file descriptors.", open_descriptor_count())
    yield gauge(
        "process_max_fds",
        "File descriptors that may be open.",
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
    yield gauge("process_resident_memory_bytes", "Memory in use.", resident_bytes())
    yield counter(
        "process_cpu_seconds_total", "Processor time used.", usage.ru_utime + usage.ru_stime
    )


def _loop(snapshot: Snapshot) -> Iterator[Family]:
    yield gauge(
        "ottla_loop_lag_seconds", "How late the event loop last was.", snapshot.loop.lag_seconds
    )
    yield gauge(
        "ottla_loop_lag_seconds_max",
        "How late it was at worst in the last minute or two.",
        snapshot.loop.lag_seconds_max,
    )


def _groups(snapshot: Snapshot) -> Iterator[Sample]:
    count_by_state: dict[str, int] = {}
    for group in snapshot.groups:
        count_by_state[group.state] = count_by_state.get(group.state, 0) + 1
    for state, count in sorted(count_by_state.items()):
        yield Sample(labels(state=state), count)


def _histogram(api: ApiFacts) -> Iterator[Sample]:
    seen, told = 0, 0
    for bound in range(FIRST_TOLD, LAST_TOLD + 1, BUCKET_STEP):
        seen += sum(api.buckets[told : bound + 1])
        told = bound + 1
        seconds = bucket_bound_ns(bound) / _NS_PER_SECOND
        yield Sample(labels(request=api.name, le=f"{seconds:.6g}"), seen, "_bucket")
    count = sum(api.buckets)
    yield Sample(labels(request=api.name, le="+Inf"), count, "_bucket")
    yield Sample(labels(request=api.name), api.total_ns / _NS_PER_SECOND, "_sum")
    yield Sample(labels(request=api.name), count, "_count")
