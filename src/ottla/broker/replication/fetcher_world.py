"""The shared dependencies of a broker's fetchers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from ottla.broker.hosting.log_flusher import LogFlusher
from ottla.broker.replication.replication_quotas import FollowerThrottle
from ottla.concurrency.notifier import Notifier
from ottla.environment.clock import Clock
from ottla.environment.network import Network
from ottla.metadata.image import Endpoint
from ottla.model.identifiers import BrokerId
from ottla.model.settings.broker_config import BrokerConfig


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """How followers fetch."""

    wait_ms: int
    bytes_min: int
    partition_bytes_max: int
    bytes_max: int
    backoff_ms: int
    timeout_ms: int

    @classmethod
    def from_config(cls, config: BrokerConfig) -> Self:
        """Return the settings of a configuration."""
        return cls(
            wait_ms=config.replica_fetch_wait_max_ms,
            bytes_min=config.replica_fetch_min_bytes,
            partition_bytes_max=config.replica_fetch_max_bytes,
            bytes_max=config.replica_fetch_response_max_bytes,
            backoff_ms=config.replica_fetch_backoff_ms,
            timeout_ms=config.replica_socket_timeout_ms,
        )


@dataclass(frozen=True, slots=True)
class FetcherWorld:
    """The dependencies of a fetcher."""

    broker_id: BrokerId
    broker_epoch: Callable[[], int]
    endpoint_of: Callable[[BrokerId], Endpoint | None]
    """Where another broker listens for brokers, if that is known."""
    network: Network
    clock: Clock
    notifier: Notifier
    flushing: LogFlusher
    throttle: FollowerThrottle
    settings: FetcherSettings
