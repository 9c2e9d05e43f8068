"""The settings of a node: its identity, its place in the quorum of controllers, its listeners.

A node with `process.roles` belongs to a quorum, as in Kafka. A node without is a broker that keeps
its metadata itself, or in ZooKeeper.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ottla.model.address import Address
from ottla.model.identifiers import BrokerId
from ottla.model.settings.listeners import (
    ADVERTISED_LISTENERS,
    LISTENER_NAME,
    LISTENER_NAMES,
    LISTENER_PROTOCOLS,
    LISTENERS,
    QUORUM_SERVERS,
    QUORUM_VOTERS,
    Listener,
    ListenerProtocol,
    QuorumVoter,
    SecurityProtocol,
)
from ottla.model.settings.settings import (
    FLAG,
    HOUR_MS,
    TEXT,
    Alias,
    Kind,
    SettingType,
    UpdateMode,
    at_start,
    integer,
    long,
    optional,
    setting,
    split_list,
)

_DAY_MS: Final = 24 * HOUR_MS


class ProcessRole(StrEnum):
    """The roles of a node in a cluster with a quorum of controllers."""

    BROKER = "broker"
    CONTROLLER = "controller"


def _roles(text: str) -> frozenset[ProcessRole]:
    roles = split_list(text)
    if len(set(roles)) != len(roles):
        raise ValueError(text)
    return frozenset(map(ProcessRole, roles))


_ROLES = Kind(SettingType.LIST, "broker, controller, both, or empty", _roles)

DEFAULT_PROTOCOLS: Final = tuple(
    ListenerProtocol(protocol, protocol) for protocol in SecurityProtocol
)
"""The default of listener.security.protocol.map: each protocol is the name of a listener."""


# Only BrokerConfig is instantiated: it generates the methods for all fields.
@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class NodeSettings:
    """The first fields of BrokerConfig."""

    node_id: BrokerId = at_start(
        BrokerId(1),
        integer(0),
        "The id of this node, unique in its cluster; a node with process.roles must be given one.",
        section="Identity",
        alias=Alias("broker.id", "The old name of node.id."),
    )
    broker_rack: str | None = at_start(
        None,
        optional(TEXT),
        "The rack of this broker; the replicas of a partition are spread over racks.",
    )

    process_roles: frozenset[ProcessRole] = at_start(
        frozenset(),
        _ROLES,
        "The roles of this node in a cluster with a quorum of controllers; if empty, it is a broker"
        " that keeps the metadata itself, or in ZooKeeper.",
        section="Quorum of controllers",
    )
    controller_quorum_bootstrap_servers: tuple[Address, ...] = at_start(
        (),
        QUORUM_SERVERS,
        "Controllers that this node asks for the leader of the quorum.",
    )
    controller_quorum_voters: tuple[QuorumVoter, ...] = at_start(
        (),
        QUORUM_VOTERS,
        "The voters of a quorum that cannot change (kraft.version 0); not for new clusters.",
    )
    controller_quorum_auto_join_enable: bool = at_start(
        False, FLAG, "Whether this controller becomes a voter by itself once it has caught up."
    )
    controller_quorum_election_timeout_ms: int = at_start(
        1_000,
        integer(1),
        "How long an election may take before the next begins; a random time up to this is added.",
    )
    controller_quorum_fetch_timeout_ms: int = at_start(
        2_000,
        integer(1),
        "How long a voter waits for a fetch from its leader before it stands for election; a leader"
        " that a majority has not fetched from for 1.5 times this resigns.",
    )
    controller_quorum_election_backoff_max_ms: int = at_start(
        1_000,
        integer(0),
        "The maximum wait of a voter before it stands for election after its leader has resigned.",
    )
    controller_quorum_request_timeout_ms: int = at_start(
        2_000, integer(1), "How long a request to another controller may take."
    )
    controller_quorum_retry_backoff_ms: int = at_start(
        20, integer(0), "How long to wait before a failed request to a controller is repeated."
    )
    controller_quorum_fetch_max_bytes: int = at_start(
        1 << 20, integer(1), "How many bytes of the metadata log are fetched at once."
    )
    controller_quorum_fetch_snapshot_max_bytes: int = at_start(
        1 << 20, integer(1), "How many bytes of a snapshot are fetched at once."
    )
    initial_broker_registration_timeout_ms: int = at_start(
        60_000,
        integer(1),
        "How long a broker tries to register with the controllers before it stops.",
    )
    broker_heartbeat_interval_ms: int = at_start(
        2_000, integer(1), "The interval of a broker's heartbeats to the active controller."
    )
    broker_session_timeout_ms: int = at_start(
        9_000,
        integer(1),
        "How long a broker may be silent before the active controller fences it.",
    )
    metadata_log_dir: str | None = at_start(
        None,
        optional(TEXT),
        "The directory of the metadata log; if empty, the first of log.dirs.",
    )
    metadata_log_segment_bytes: int = at_start(
        1 << 30,
        integer(8 << 20),
        "How large a segment of the metadata log may become before the next begins.",
    )
    metadata_log_segment_ms: int = at_start(
        7 * _DAY_MS,
        long(1),
        "How old a segment of the metadata log may become before the next begins.",
    )
    metadata_log_max_record_bytes_between_snapshots: int = at_start(
        20 << 20, long(1), "After how many bytes of committed records a snapshot is written."
    )
    metadata_log_max_snapshot_interval_ms: int = at_start(
        HOUR_MS,
        long(0),
        "After how much time a snapshot of new records is written; 0 is never.",
    )
    metadata_max_retention_bytes: int = at_start(
        100 << 20,
        long(0, also=-1),
        "The size of the metadata log and its snapshots above which the oldest are deleted, though"
        " never the newest snapshot; -1 is no limit.",
    )
    metadata_max_retention_ms: int = at_start(
        7 * _DAY_MS,
        long(0, also=-1),
        "The age at which old snapshots and the metadata log before them are deleted; -1 is no"
        " limit.",
    )
    metadata_max_idle_interval_ms: int = at_start(
        500,
        integer(0),
        "How often an idle active controller writes a record without effect, which shows that it"
        " can commit; 0 is never.",
    )

    zookeeper_connect: str | None = at_start(
        None,
        optional(TEXT),
        "The ZooKeeper with the cluster's metadata, as HOST:PORT,HOST:PORT/PATH; if empty, and"
        " without process.roles, this broker is the whole cluster and keeps the metadata itself.",
        section="ZooKeeper",
    )
    zookeeper_session_timeout_ms: int = at_start(
        18_000,
        integer(1),
        "How long a broker may be silent before ZooKeeper ends its session, and the cluster"
        " fences it.",
    )
    zookeeper_metadata_migration_enable: bool = at_start(
        False,
        FLAG,
        "Whether this controller, which has zookeeper.connect, moves a running cluster from"
        " ZooKeeper to its quorum; brokers ignore it.",
    )

    listeners: tuple[Listener, ...] = setting(
        (Listener("PLAINTEXT", "127.0.0.1", 9092),),
        LISTENERS,
        "Where the node listens; no host is every address.",
        UpdateMode.PER_BROKER,
        section="Listeners",
    )
    advertised_listeners: tuple[Listener, ...] = at_start(
        (),
        ADVERTISED_LISTENERS,
        "The addresses that clients and other nodes connect to; a listener without an address is"
        " advertised as in listeners, with the machine's name in place of every address.",
    )
    listener_security_protocol_map: tuple[ListenerProtocol, ...] = setting(
        DEFAULT_PROTOCOLS,
        LISTENER_PROTOCOLS,
        "Which protocol the listeners of a name speak; if not set, the listeners in"
        " controller.listener.names speak PLAINTEXT.",
        UpdateMode.PER_BROKER,
    )
    inter_broker_listener_name: str | None = at_start(
        None,
        optional(LISTENER_NAME),
        "The listener for connections between brokers; if empty, the listener PLAINTEXT, or"
        " else the first.",
    )
    controller_listener_names: tuple[str, ...] = at_start(
        (),
        LISTENER_NAMES,
        "Which listeners are for controllers only; nodes connect to controllers by the first.",
    )
