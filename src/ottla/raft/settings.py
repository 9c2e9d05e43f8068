"""The settings and the identity of a replica of the metadata log."""

from dataclasses import dataclass, field

from ottla.model.address import Address
from ottla.raft.voters import Endpoint, ReplicaKey, Voter


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """The settings `controller.quorum.*`, with Kafka's defaults."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_wait_ms: int = 500
    fetch_bytes_max: int = 1 << 20
    snapshot_bytes_max: int = 1 << 20
    has_auto_join: bool = False

    @property
    def check_quorum_ms(self) -> int:
        """The time without fetches from a majority after which a leader resigns."""
        return self.fetch_timeout_ms * 3 // 2


@dataclass(frozen=True, slots=True)
class Identity:
    """This replica: its key, its addresses, and the cluster that it belongs to."""

    key: ReplicaKey
    cluster_id: str
    endpoints: tuple[Endpoint, ...]
    """The first endpoint is on the listener of the quorum."""
    bootstrap_servers: tuple[Address, ...] = ()
    is_controller: bool = True
    """Whether this replica may become a voter: it syncs records before it acknowledges them."""
    min_version: int = 0
    max_version: int = 1
    topic_name: str = field(default="__cluster_metadata")
    topic_id: bytes = field(default=bytes(15) + b"\x01")

    @property
    def voter(self) -> Voter:
        """This replica as a voter."""
        return Voter(self.key, self.endpoints, self.min_version, self.max_version)
