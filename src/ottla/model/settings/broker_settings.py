"""Every broker setting that Ottla uses: its type, its meaning, and when it can change.

Names, types and limits are Kafka's. Where Kafka accepts a value that it later refuses, or that
cannot work, the limit here is narrower.
"""

import re
from collections.abc import Mapping
from itertools import chain
from typing import Final

from ottla.model.settings.admin_listener import ADMIN_LISTENER
from ottla.model.settings.config_synonyms import TOPIC_SYNONYMS
from ottla.model.settings.kafka_settings import KAFKA_4_SETTING_NAMES
from ottla.model.settings.listeners import (
    ADVERTISED_LISTENERS,
    LISTENER_NAME,
    LISTENER_NAMES,
    LISTENER_PROTOCOLS,
    LISTENERS,
)
from ottla.model.settings.replication_settings import REPLICATION
from ottla.model.settings.settings import (
    FLAG,
    INT16_MAX,
    TEXT,
    Kind,
    Setting,
    SettingType,
    UpdateMode,
    at_start,
    double,
    integer,
    long,
    optional,
    short,
    split_list,
    table_of,
)
from ottla.model.settings.topic_config import TOPIC_SETTINGS
from ottla.model.settings.transaction_settings import TRANSACTIONS


def _per_broker(name: str, kind: Kind, documentation: str) -> Setting:
    return Setting(name, kind, documentation, UpdateMode.PER_BROKER)


def _default_of_topics(topic_name: str) -> Setting:
    """Declare the broker setting that is the default of a topic setting."""
    topic, (synonym,) = TOPIC_SETTINGS[topic_name], TOPIC_SYNONYMS[topic_name]
    meaning = topic.documentation[0].lower() + topic.documentation[1:]
    return Setting(
        synonym.name, topic.kind, f"The default of {topic_name} in topics without one: {meaning}"
    )


def _folders(text: str) -> tuple[str, ...]:
    folders = split_list(text)
    if not folders or "" in folders or len(set(folders)) != len(folders):
        raise ValueError(text)
    return tuple(folders)


_FOLDERS = Kind(SettingType.LIST, "a list of different folders", _folders)

_IDENTITY = (
    at_start("node.id", integer(0), "The number that tells this broker from the others."),
    at_start("broker.id", integer(0), "The old name of node.id.", alias_of="node.id"),
    at_start(
        "broker.rack",
        optional(TEXT),
        "Where this broker stands, so that replicas can be kept apart.",
    ),
)
_ZOOKEEPER = (
    at_start(
        "zookeeper.connect",
        optional(TEXT),
        "Where the ZooKeeper is that holds the cluster's metadata, as HOST:PORT,HOST:PORT/PATH; if"
        " empty, this broker is the whole cluster and keeps its metadata itself.",
    ),
    at_start(
        "zookeeper.session.timeout.ms",
        integer(1),
        "How long a broker may be silent before ZooKeeper, and so the cluster, takes it for dead.",
    ),
)
_LISTENERS = (
    _per_broker("listeners", LISTENERS, "Where the broker listens; no host is every address."),
    at_start(
        "advertised.listeners",
        ADVERTISED_LISTENERS,
        "Where clients are told to connect; a listener that is not in it is told as it is, with the"
        " name of the machine for every address.",
    ),
    _per_broker(
        "listener.security.protocol.map",
        LISTENER_PROTOCOLS,
        "Which protocol the listeners of a name speak.",
    ),
    at_start(
        "inter.broker.listener.name",
        optional(LISTENER_NAME),
        "By which listener brokers reach each other; if empty, by the one called PLAINTEXT, or else"
        " by the first.",
    ),
    at_start(
        "controller.listener.names",
        LISTENER_NAMES,
        "Which listeners are for controllers only, and are not opened for clients.",
    ),
)
_CONNECTIONS = (
    at_start("socket.request.max.bytes", integer(1), "How many bytes a request may have."),
    at_start(
        "socket.send.buffer.bytes",
        integer(1, also=-1),
        "How many bytes the kernel buffers for sending; -1 leaves it to the kernel.",
    ),
    at_start(
        "socket.receive.buffer.bytes",
        integer(1, also=-1),
        "How many bytes the kernel buffers of what arrives; -1 leaves it to the kernel.",
    ),
    at_start(
        "socket.listen.backlog.size",
        integer(1),
        "Without effect: as many connections may wait to be accepted as the kernel lets wait.",
    ),
    Setting("max.connections", integer(0), "How many connections may be open in all."),
    Setting(
        "max.connections.per.ip",
        integer(1),
        "How many connections may be open from one address.",
    ),
    at_start(
        "connections.max.idle.ms",
        long(1, also=-1),
        "How long a connection may be silent before it is closed; -1 is no limit.",
    ),
    at_start(
        "queued.max.requests",
        integer(1),
        "How many requests of one connection may be in progress before no more are read from it; 32"
        " at most.",
    ),
    at_start(
        "queued.max.request.bytes",
        long(1, also=-1),
        "How many bytes the requests of all connections may take together before those that have a"
        " share in it are not read from; -1 is no limit.",
    ),
    at_start(
        "fetch.max.bytes", integer(1024), "How many bytes of records a fetch may be answered with."
    ),
    at_start(
        "max.incremental.fetch.session.cache.slots",
        integer(0),
        "How many fetch sessions are remembered.",
    ),
    at_start(
        "telemetry.max.bytes",
        integer(1),
        "How many bytes of its metrics a client may push at once.",
    ),
)
_TOPICS = (
    at_start(
        "auto.create.topics.enable",
        FLAG,
        "Whether a topic that a client asks for, and that is not there, is created.",
    ),
    at_start("delete.topic.enable", FLAG, "Whether topics can be deleted."),
    at_start(
        "num.partitions", integer(1), "How many partitions a topic gets if nobody says how many."
    ),
    at_start(
        "default.replication.factor",
        integer(1, INT16_MAX),
        "How many replicas a partition gets if nobody says how many.",
    ),
)
_LOGS = (
    at_start("log.dirs", _FOLDERS, "The folders that hold the logs, usually one for each disk."),
    at_start("log.dir", _FOLDERS, "The folders if log.dirs is not set.", alias_of="log.dirs"),
    at_start("log.retention.check.interval.ms", long(1), "How often old segments are looked for."),
    at_start(
        "log.flush.offset.checkpoint.interval.ms",
        integer(1),
        "How often it is noted up to where logs are durable.",
    ),
    at_start(
        "log.flush.start.offset.checkpoint.interval.ms",
        integer(1),
        "Without effect: where logs begin is noted with log.flush.offset.checkpoint.interval.ms.",
    ),
    at_start(
        "replica.high.watermark.checkpoint.interval.ms",
        long(1),
        "How often the high watermarks are noted on disk.",
    ),
    at_start("log.cleaner.enable", FLAG, "Whether logs are compacted."),
    Setting("log.cleaner.threads", integer(0), "How many logs may be compacted at a time."),
    Setting(
        "log.cleaner.backoff.ms",
        long(1),
        "How long compaction rests when there is nothing to compact.",
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        long(1 << 20),
        "How many bytes compaction may use to remember keys.",
    ),
    Setting(
        "log.cleaner.io.max.bytes.per.second",
        double(1),
        "How many bytes compaction may read and write in a second.",
    ),
    Setting(
        "producer.id.expiration.ms",
        integer(1),
        "How long a partition remembers a producer that writes no more.",
    ),
    at_start(
        "producer.id.expiration.check.interval.ms",
        integer(1),
        "Without effect: producers that write no more are looked for with old segments.",
    ),
    Setting(
        "transaction.partition.verification.enable",
        FLAG,
        "Whether a partition asks the coordinator before it takes a transaction's first batch.",
    ),
)
_TIMES = (
    Setting(
        "log.flush.interval.ms",
        optional(long(0)),
        "The default of flush.ms in topics without one; if empty, as"
        " log.flush.scheduler.interval.ms says.",
    ),
    at_start(
        "log.flush.scheduler.interval.ms",
        long(1),
        "How often it is looked which logs are to be synced.",
    ),
    Setting(
        "log.retention.ms",
        optional(long(1, also=-1)),
        "The default of retention.ms in topics without one, -1 being no limit; if empty, as"
        " log.retention.minutes says.",
    ),
    at_start(
        "log.retention.minutes",
        optional(integer(1, also=-1)),
        "What log.retention.ms says, in minutes; if empty, as log.retention.hours says.",
    ),
    at_start("log.retention.hours", integer(1, also=-1), "What log.retention.ms says, in hours."),
    Setting(
        "log.roll.ms",
        optional(long(1)),
        "The default of segment.ms in topics without one; if empty, as log.roll.hours says.",
    ),
    at_start("log.roll.hours", integer(1), "What log.roll.ms says, in hours."),
    Setting(
        "log.roll.jitter.ms",
        optional(long(0)),
        "The default of segment.jitter.ms in topics without one; if empty, as log.roll.jitter.hours"
        " says.",
    ),
    at_start("log.roll.jitter.hours", integer(0), "What log.roll.jitter.ms says, in hours."),
)
_DEFAULTS_OF_TOPICS = tuple(
    _default_of_topics(name) for name, synonyms in TOPIC_SYNONYMS.items() if len(synonyms) == 1
)
_GROUPS = (
    at_start(
        "group.min.session.timeout.ms",
        integer(1),
        "The shortest session that a member can ask for.",
    ),
    at_start(
        "group.max.session.timeout.ms", integer(1), "The longest session that a member can ask for."
    ),
    at_start(
        "group.initial.rebalance.delay.ms",
        integer(0),
        "How long the first member of an empty group waits for others.",
    ),
    at_start("group.max.size", integer(1), "How many members a group may have."),
    at_start(
        "offsets.topic.num.partitions",
        integer(1),
        "How many partitions the topic of committed offsets gets; not to be changed afterwards.",
    ),
    at_start(
        "offsets.topic.replication.factor",
        short(1),
        "How many replicas the topic of committed offsets gets; a broker without others makes one.",
    ),
    at_start(
        "offsets.topic.segment.bytes",
        integer(1 << 20),
        "How large a segment of the topic of committed offsets may become.",
    ),
    at_start(
        "offsets.topic.compression.codec",
        integer(0, 4),
        "How commits are compressed: 0 not at all, 1 by gzip, 2 snappy, 3 LZ4, 4 Zstandard.",
    ),
    at_start(
        "offsets.retention.minutes",
        integer(1),
        "How long the offsets of a group without members are kept.",
    ),
    at_start(
        "offsets.retention.check.interval.ms", long(1), "How often old offsets are looked for."
    ),
    at_start(
        "offset.metadata.max.bytes", integer(0), "How many bytes a member may add to a commit."
    ),
    at_start(
        "offsets.commit.timeout.ms",
        integer(1),
        "How long the replicas in sync may take to have what a group has decided.",
    ),
)
_OWN = (
    at_start(
        "ottla.admin.listener",
        ADMIN_LISTENER,
        "Where metrics, health and log levels are told by HTTP, empty being nowhere; if it is not"
        " set, a broker that finds the port taken goes on without.",
    ),
    Setting(
        "log.scrub.interval.ms",
        long(1, also=-1),
        "How long after a round the closed segments are read again to find damage; -1 is never.",
    ),
    Setting(
        "log.scrub.io.max.bytes.per.second",
        long(1),
        "How many bytes of logs may be read in a second to find damage.",
    ),
    at_start(
        "ottla.group.max.bytes",
        long(1 << 16),
        "How many bytes of memory one group may take: the names, metadata and assignments of its"
        " members.",
    ),
    at_start(
        "ottla.groups.max.bytes",
        long(1 << 20),
        "How many bytes of memory all groups of this broker may take together, with the offsets of"
        " transactions that have not ended.",
    ),
)

BROKER_SETTING_GROUPS: Final[Mapping[str, tuple[Setting, ...]]] = {
    "Identity": _IDENTITY,
    "ZooKeeper": _ZOOKEEPER,
    "Listeners": _LISTENERS,
    "Connections and requests": _CONNECTIONS,
    "Topics": _TOPICS,
    "Logs": _LOGS,
    "Defaults of topics": _DEFAULTS_OF_TOPICS + _TIMES,
    "Replication": REPLICATION,
    "Groups and offsets": _GROUPS,
    "Transactions": TRANSACTIONS,
    "Ottla's own": _OWN,
}
BROKER_SETTINGS: Final[Mapping[str, Setting]] = table_of(
    *chain.from_iterable(BROKER_SETTING_GROUPS.values())
)
"""Every broker setting that Ottla uses, by its name."""

NEEDS_RESTART: Final = frozenset({"listeners", "listener.security.protocol.map"})
"""Settings that Kafka can change dynamically, and Ottla only at start."""


def can_change_while_running(name: str) -> bool:
    """Whether this is a setting that takes effect at once when it is altered."""
    setting = BROKER_SETTINGS.get(name)
    return (
        setting is not None
        and setting.update_mode is not UpdateMode.READ_ONLY
        and name not in NEEDS_RESTART
    )


_OF_LISTENER: Final = re.compile(r"listener\.name\.[^.]+\.")


def is_unknown(name: str) -> bool:
    """Whether neither Ottla nor Kafka 4 declares this setting, so that it may be a plug-in's.

    A declared setting may have the prefix of a listener. Kafka lets an unknown setting be altered
    and never shows its value, as it may be a secret.
    """
    declared = _OF_LISTENER.sub("", name, count=1)
    return declared not in BROKER_SETTINGS and declared not in KAFKA_4_SETTING_NAMES
