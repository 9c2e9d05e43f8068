"""The metrics of Kafka's JMX beans, under the names of Strimzi's exporter.

Metrics that a single broker cannot have (lagging replicas, elections) are exported as zeros, so
that dashboards and alerts work.
"""

from collections.abc import Callable, Iterator
from itertools import compress
from typing import Final, NamedTuple

from ottla.broker.metrics.exposition import Family, Sample, column, counter, gauge, labels
from ottla.broker.metrics.snapshot import PartitionFacts, Snapshot
from ottla.broker.requests.request_metrics import BUCKETS, api_and_version, quantile_ns
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import NO_LEADER
from ottla.model.error_code import ErrorCode
from ottla.replication.partition import Traffic
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

RUNNING = 3
"""Kafka's number for a broker that serves clients."""
_GONE = PartitionImage(replicas=(), isr=())


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


def jmx_families(snapshot: Snapshot) -> Iterator[Family]:
    """Yield Kafka's metrics of a broker, its topics and its partitions."""
    states = list(_states(snapshot))
    yield from _traffic(snapshot)
    yield from _replica_manager(snapshot, states)
    yield from _controller(snapshot)
    yield gauge(
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
        "Transaction markers for partitions without a leader.",
        snapshot.transactions.unsendable_markers,
    )
    yield from _sockets(snapshot)
    yield from _logs(snapshot.partitions)
    yield from _partitions(snapshot.partitions, states)


def _states(snapshot: Snapshot) -> Iterator[PartitionImage]:
    """Yield the metadata of each partition here; deleted partitions have none."""
    topics, partitions = snapshot.image.topics, snapshot.partitions
    for name, number in zip(partitions.topics, partitions.numbers, strict=True):
        topic = topics.get(name)
        yield (topic and topic.partition(number)) or _GONE


def _traffic(snapshot: Snapshot) -> Iterator[Family]:
    def family(name: str, documentation: str, value: Callable[[Traffic], int]) -> Family:
        whole = Sample("", value(snapshot.traffic))
        each = [
            Sample(labels(topic=topic), value(traffic))
            for topic, traffic in snapshot.traffic_by_topic.items()
        ]
        return _topic_counter(name, documentation, [whole, *each])

    yield family("messagesin", "Records appended.", lambda traffic: traffic.records_in)
    yield family("bytesin", "Bytes appended.", lambda traffic: traffic.bytes_in)
    yield family("bytesout", "Bytes sent to consumers.", lambda traffic: traffic.bytes_out)
    yield family("totalproducerequests", "Batches appended.", lambda traffic: traffic.batches_in)
    yield family("totalfetchrequests", "Partitions read from.", lambda traffic: traffic.reads)
    for name, api_key in (("produce", ApiKey.PRODUCE), ("fetch", ApiKey.FETCH)):
        failed = sum(count for (key, _), count in snapshot.errors.items() if key == api_key)
        yield _topic_counter(
            f"failed{name}requests", "Partitions of requests that failed.", [Sample("", failed)]
        )


def _topic_counter(name: str, documentation: str, samples: list[Sample]) -> Family:
    return counter(
        f"kafka_server_brokertopicmetrics_{name}_total",
        f"{documentation} Without a topic: on the whole broker.",
        samples,
    )


def _replica_manager(snapshot: Snapshot, states: list[PartitionImage]) -> Iterator[Family]:
    is_led = [state.leader == snapshot.node_id for state in states]
    # Each partition counts where it is led, so that it counts once in a cluster.
    surpluses = list(compress(_isr_surpluses(snapshot.partitions, states), is_led))
    led = list(compress(states, is_led))
    lagging = sum(len(state.isr) < len(state.replicas) for state in led)
    moving = sum(bool(state.adding_replicas or state.removing_replicas) for state in led)
    for name, documentation, value in (
        ("partitioncount", "Partitions on this broker.", len(states)),
        (
            "leadercount",
            "Partitions that this broker leads.",
            sum(is_led),
        ),
        ("underreplicatedpartitions", "Partitions with replicas that are not in sync.", lagging),
        ("reassigningpartitions", "Partitions that this broker leads and that move.", moving),
        (
            "underminisrpartitioncount",
            "Partitions with fewer replicas in sync than min.insync.replicas.",
            sum(surplus < 0 for surplus in surpluses),
        ),
        (
            "atminisrpartitioncount",
            "Partitions with just min.insync.replicas in sync.",
            surpluses.count(0),
        ),
    ):
        yield gauge(f"kafka_server_replicamanager_{name}", documentation, value)
    facts = snapshot.replication
    for name, documentation, count in (
        ("isrexpands", "Replicas that came into sync.", facts.isr_expands),
        ("isrshrinks", "Replicas that were taken out of sync.", facts.isr_shrinks),
        ("failedisrupdates", "Changes of them that the controller refused.", facts.isr_failures),
    ):
        yield counter(f"kafka_server_replicamanager_{name}_total", documentation, count)
    yield gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Directories that have failed.",
        snapshot.offline_folders,
    )


def _controller(snapshot: Snapshot) -> Iterator[Family]:
    """Yield the controller's metrics; other brokers export 0, because dashboards sum them up."""
    image = snapshot.image
    topics = image.topics.values() if snapshot.is_controller else ()
    states = [state for topic in topics for state in topic.partitions]
    brokers = image.brokers.values()
    prefix = "kafka_controller_kafkacontroller_"
    for name, documentation, value in (
        (
            "activecontrollercount",
            "1 on the broker that is the controller.",
            int(snapshot.is_controller),
        ),
        (
            "offlinepartitionscount",
            "Partitions without a leader.",
            sum(state.leader == NO_LEADER for state in states),
        ),
        (
            "preferredreplicaimbalancecount",
            "Partitions that are not led by the first of their replicas.",
            sum(state.leader != state.replicas[0] for state in states),
        ),
        ("globaltopiccount", "Topics in the cluster.", len(topics)),
        ("globalpartitioncount", "Partitions in the cluster.", len(states)),
        (
            "activebrokercount",
            "Brokers that serve clients.",
            sum(broker.is_active for broker in brokers),
        ),
        (
            "fencedbrokercount",
            "Brokers that are registered, and away.",
            sum(broker.is_fenced for broker in brokers),
        ),
    ):
        yield gauge(f"{prefix}{name}", documentation, value)
    yield from _elections(snapshot)
    yield gauge("kafka_server_kafkaserver_brokerstate", "3 is running.", RUNNING)


def _elections(snapshot: Snapshot) -> Iterator[Family]:
    prefix = "kafka_controller_controllerstats_"
    yield Family(
        f"{prefix}leaderelectionrateandtimems",
        "summary",
        "Elections that this broker decided on as the controller; how long they took is not told.",
        [Sample("", snapshot.replication.elections, "_count")],
    )
    yield counter(
        f"{prefix}uncleanleaderelections_total",
        "Elections of a leader that was not in sync.",
        snapshot.replication.unclean_elections,
    )


def _sockets(snapshot: Snapshot) -> Iterator[Family]:
    prefix = "kafka_server_socket_server_metrics_"
    yield gauge(
        f"{prefix}connection_count",
        "Open connections.",
        [
            Sample(labels(listener=name, networkProcessor=0), count)
            for name, count in snapshot.connections_by_listener.items()
        ],
    )
    yield counter(
        f"{prefix}connection_creation_total",
        "Connections that were let in.",
        snapshot.accepted_connections,
    )
    documentation = "Which part of its time the event loop is idle: 0 to 1."
    for name in (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "kafka_network_socketserver_networkprocessoravgidle_percent",
    ):
        yield gauge(name, documentation, snapshot.loop.idle_ratio)


def _logs(partitions: PartitionFacts) -> Iterator[Family]:
    for name, documentation, values in (
        ("size", "Bytes in a partition's log.", partitions.sizes_bytes),
        ("logstartoffset", "The first offset.", partitions.log_start_offsets),
        ("logendoffset", "The next offset.", partitions.end_offsets),
        ("numlogsegments", "Segments of a log.", partitions.segment_counts),
    ):
        samples = column(partitions.labels, values)
        yield gauge(f"kafka_log_log_{name}", documentation, samples)


def _partitions(partitions: PartitionFacts, states: list[PartitionImage]) -> Iterator[Family]:
    def family(name: str, documentation: str, values: Iterator[int]) -> Family:
        samples = column(partitions.labels, values)
        return gauge(f"kafka_cluster_partition_{name}", documentation, samples)

    surpluses = list(_isr_surpluses(partitions, states))
    yield family(
        "underminisr",
        "1 if fewer than min.insync.replicas are in sync.",
        (int(surplus < 0) for surplus in surpluses),
    )
    yield family(
        "atminisr",
        "1 if just min.insync.replicas are in sync.",
        (int(surplus == 0) for surplus in surpluses),
    )
    yield family("replicascount", "Replicas.", (len(state.replicas) for state in states))
    yield family("insyncreplicascount", "Replicas in sync.", (len(state.isr) for state in states))
    yield family(
        "underreplicated",
        "1 if not all replicas are in sync.",
        (int(len(state.isr) < len(state.replicas)) for state in states),
    )


def _isr_surpluses(partitions: PartitionFacts, states: list[PartitionImage]) -> Iterator[int]:
    """Yield the sizes of ISRs minus min.insync.replicas."""
    for state, insync_min in zip(states, partitions.insync_mins, strict=True):
        yield 1 if state is _GONE else len(state.isr) - insync_min
