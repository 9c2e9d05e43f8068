"""The request metrics of Kafka's JMX beans, by the names that Strimzi's exporter gives them."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.broker.metrics.exposition import Family, Sample, counter, labels
from ottla.broker.metrics.request_metrics import BUCKETS, api_and_version, quantile_ns
from ottla.broker.metrics.snapshot import Snapshot
from ottla.model.error_code import ErrorCode
from ottla.wire.api_key import ApiKey

QUANTILES: Final = {
    "0.50": 0.5,
    "0.75": 0.75,
    "0.95": 0.95,
    "0.98": 0.98,
    "0.99": 0.99,
    "0.999": 0.999,
}
_NS_PER_MS: Final = 1e6
_ALSO_KNOWN_AS: Final = {ApiKey.FETCH: "FetchConsumer"}
"""Kafka counts consumers' fetches separately, besides counting all fetches."""


class ApiFacts(NamedTuple):
    """One API, over all its versions."""

    name: str
    buckets: list[int]
    recent_buckets: list[int]
    total_ns: int
    request_bytes: int


def api_name(api_key: int) -> str:
    """Return Kafka's name of an API, as in ListOffsets."""
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))


def facts_by_api(snapshot: Snapshot) -> list[ApiFacts]:
    """Add the versions of each API up."""
    by_api: dict[int, ApiFacts] = {}
    for key, meter in snapshot.meters.items():
        api_key, _ = api_and_version(key)
        old = by_api.get(api_key) or ApiFacts("", [0] * BUCKETS, [0] * BUCKETS, 0, 0)
        by_api[api_key] = ApiFacts(
            api_name(api_key),
            [a + b for a, b in zip(old.buckets, meter.buckets, strict=True)],
            [a + b for a, b in zip(old.recent_buckets, meter.recent_buckets, strict=True)],
            old.total_ns + meter.total_ns,
            old.request_bytes + meter.request_bytes,
        )
    also = [
        facts._replace(name=name)
        for key, name in _ALSO_KNOWN_AS.items()
        if (facts := by_api.get(key))
    ]
    return [*by_api.values(), *also]


def jmx_request_families(snapshot: Snapshot) -> Iterator[Family]:
    """Yield the requests of each API: counts, times and errors."""
    apis = facts_by_api(snapshot)
    yield counter(
        "kafka_network_requestmetrics_requests_total",
        "Requests that were answered.",
        list(_requests(snapshot)),
    )
    yield counter(
        "kafka_network_requestmetrics_errors_total",
        "Error codes in answers, one for each thing that failed.",
        [
            Sample(labels(request=api_name(api_key), error=ErrorCode(code).name), count)
            for (api_key, code), count in sorted(snapshot.errors.items())
        ],
    )
    yield Family(
        "kafka_network_requestmetrics_totaltimems",
        "summary",
        "Milliseconds from a request's arrival to its answer, waiting included; quantiles are of"
        " the last minutes.",
        [sample for api in apis for sample in _times(api)],
    )
    yield Family(
        "kafka_network_requestmetrics_requestbytes",
        "summary",
        "Sizes of requests.",
        [sample for api in apis for sample in _sizes(api)],
    )


def _requests(snapshot: Snapshot) -> Iterator[Sample]:
    for key, meter in snapshot.meters.items():
        api_key, version = api_and_version(key)
        names = [api_name(api_key)]
        if ApiKey(api_key) in _ALSO_KNOWN_AS:
            names.append(_ALSO_KNOWN_AS[ApiKey(api_key)])
        for name in names:
            yield Sample(labels(request=name, version=version), sum(meter.buckets))


def _times(api: ApiFacts) -> Iterator[Sample]:
    for name, quantile in QUANTILES.items():
        time_ms = quantile_ns(api.recent_buckets, quantile) / _NS_PER_MS
        yield Sample(labels(request=api.name, quantile=name), round(time_ms, 6))
    yield Sample(labels(request=api.name), api.total_ns / _NS_PER_MS, "_sum")
    yield Sample(labels(request=api.name), sum(api.buckets), "_count")


def _sizes(api: ApiFacts) -> Iterator[Sample]:
    yield Sample(labels(request=api.name), api.request_bytes, "_sum")
    yield Sample(labels(request=api.name), sum(api.buckets), "_count")
