"""The network counts of a client, under the names of Kafka's clients.

Counting is an addition to an attribute; names are made when the metrics are read.
docs/client-metrics.md lists all names.
"""

from ottla.wire.api_key import ApiKey


class Latency:
    """The response times, in milliseconds, since the client was created."""

    __slots__ = ("count", "max_ms", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.max_ms = 0.0

    def add(self, took_ms: float) -> None:
        """Add one response."""
        self.count += 1
        self.total_ms += took_ms
        self.max_ms = max(self.max_ms, took_ms)

    @property
    def avg_ms(self) -> float:
        """The average, 0 without responses."""
        return self.total_ms / self.count if self.count else 0.0


class NetworkCounts:
    """The counts of all connections of one client since it was created."""

    __slots__ = (
        "_latency_by_api",
        "answers",
        "bytes_in",
        "bytes_out",
        "closed",
        "latency",
        "opened",
        "requests",
        "throttled_ms",
    )

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0
        self.requests = 0
        self.answers = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.throttled_ms = 0
        self.latency = Latency()
        self._latency_by_api: dict[int, Latency] = {}

    def answered(self, api_key: int, took_ms: float) -> None:
        """Add the time of a response."""
        self.latency.add(took_ms)
        self.latency_of(api_key).add(took_ms)

    def latency_of(self, api_key: int) -> Latency:
        """Return the response times of one API."""
        found = self._latency_by_api.get(api_key)
        if found is None:
            found = self._latency_by_api[api_key] = Latency()
        return found

    def by_name(self) -> dict[str, float]:
        """Return the counts under Kafka's names."""
        return {
            "connection-count": self.opened - self.closed,
            "connection-creation-total": self.opened,
            "connection-close-total": self.closed,
            "request-total": self.requests,
            "response-total": self.answers,
            "outgoing-byte-total": self.bytes_out,
            "incoming-byte-total": self.bytes_in,
            "request-latency-avg": self.latency.avg_ms,
            "request-latency-max": self.latency.max_ms,
            "throttle-time-total": self.throttled_ms,
        }

    def of_group_by_name(self) -> dict[str, float]:
        """Return the counts of a consumer's requests, under Kafka's names."""
        fetch = self.latency_of(ApiKey.FETCH)
        commit = self.latency_of(ApiKey.OFFSET_COMMIT)
        heartbeat = self.latency_of(ApiKey.HEARTBEAT)
        join, sync = self.latency_of(ApiKey.JOIN_GROUP), self.latency_of(ApiKey.SYNC_GROUP)
        return {
            "fetch-total": fetch.count,
            "fetch-latency-avg": fetch.avg_ms,
            "fetch-latency-max": fetch.max_ms,
            "commit-total": commit.count,
            "commit-latency-avg": commit.avg_ms,
            "commit-latency-max": commit.max_ms,
            "heartbeat-total": heartbeat.count,
            "heartbeat-response-time-max": heartbeat.max_ms,
            "join-total": join.count,
            "join-time-avg": join.avg_ms,
            "join-time-max": join.max_ms,
            "sync-total": sync.count,
            "sync-time-avg": sync.avg_ms,
            "sync-time-max": sync.max_ms,
        }
