"""A consumer's settings, with Kafka's names and defaults."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.clients.assignors.assignor import Assignor
from ottla.clients.assignors.known import assignors
from ottla.clients.config.setting_table import (
    NAME,
    ClientSetting,
    SettingTable,
    fields_of,
    milliseconds,
    one_word_of,
    raise_problems,
    some_object,
)
from ottla.clients.config.settings import (
    CLIENT_SETTINGS,
    WITHOUT_MEANING,
    ClientSettings,
    client_problems,
    client_settings_of,
)
from ottla.clients.records.interceptors import INTERCEPTORS
from ottla.clients.records.serializers import NAMES, find_deserializer
from ottla.clients.schemas.schema_settings import (
    CONSUMER_SCHEMA_SETTINGS,
    ClientSchemas,
    client_schemas_of,
)
from ottla.model.settings.settings import (
    FLAG,
    INT32_MAX,
    TEXT,
    Kind,
    SettingType,
    integer,
    split_list,
)


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """One field for each of Kafka's settings, with the same name."""

    group_id: str | None = None
    group_instance_id: str | None = None
    partition_assignment_strategy: tuple[str | Assignor, ...] = ("range", "cooperative-sticky")
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    auto_offset_reset: str = "latest"
    """latest, earliest, none, or by_duration:PnDTnHnMn.nS."""
    isolation_level: str = "read_uncommitted"
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 << 20
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1 << 20
    check_crcs: bool = True
    exclude_internal_topics: bool = True
    allow_auto_create_topics: bool = True
    client_rack: str = ""
    key_deserializer: Any = None
    """A `Deserializer` or a function of bytes; None leaves bytes as they are."""
    value_deserializer: Any = None
    interceptors: tuple[Any, ...] = ()
    schemas: ClientSchemas | None = None
    """The schemas of keys and values, and their registry."""


_DURATION: Final = re.compile(
    r"by_duration:P(?=.*\d)(\d{1,9}D)?(T(\d{1,9}H)?(\d{1,9}M)?(\d{1,9}(\.\d{1,9})?S)?)?", re.ASCII
)
_RESET_WORDS: Final = {
    "earliest": "earliest",
    "latest": "latest",
    "none": "none",
    "smallest": "earliest",  # the names in librdkafka and old Kafka
    "beginning": "earliest",
    "largest": "latest",
    "end": "latest",
    "error": "none",
}


def _reset(text: str) -> str:
    if text.lower() in _RESET_WORDS:
        return _RESET_WORDS[text.lower()]
    if not _DURATION.fullmatch(text):
        raise ValueError(text)
    return text


def _strategies(given: Any) -> tuple[str | Assignor, ...]:
    listed = split_list(given) if isinstance(given, str) else given
    strategies = tuple(listed) if isinstance(listed, list | tuple) else (listed,)
    assignors(strategies)  # raises for an unknown name
    return strategies


_DESERIALIZER: Final = some_object(
    f"a deserializer, a function, or one of {NAMES}", find_deserializer
)
_INT32_MS: Final = milliseconds(0, INT32_MAX)
CONSUMER_SETTINGS: Final = (
    ClientSetting("group.id", NAME, "The group that shares the subscribed partitions."),
    ClientSetting(
        "group.instance.id",
        NAME,
        "A name that stays this member's own: it may restart within session.timeout.ms without a "
        "rebalance.",
    ),
    ClientSetting(
        "partition.assignment.strategy",
        some_object(
            "a list of range, roundrobin, sticky, cooperative-sticky or own assignors", _strategies
        ),
        "How the group shares out partitions: the first that all members know.",
        is_object=True,
    ),
    ClientSetting(
        "session.timeout.ms",
        milliseconds(1, INT32_MAX),
        "How long a member may be silent before its group goes on without it.",
    ),
    ClientSetting(
        "heartbeat.interval.ms",
        milliseconds(1, INT32_MAX),
        "How often a member tells its group that it is there.",
    ),
    ClientSetting(
        "max.poll.interval.ms",
        milliseconds(1, INT32_MAX),
        "How long the application may take between two polls before it counts as stuck.",
    ),
    ClientSetting("max.poll.records", integer(1), "How many records a poll returns at most."),
    ClientSetting(
        "enable.auto.commit",
        FLAG,
        "Whether the offsets of returned records are committed automatically.",
    ),
    ClientSetting("auto.commit.interval.ms", _INT32_MS, "How often that is done."),
    ClientSetting(
        "auto.offset.reset",
        Kind(
            SettingType.STRING,
            "earliest, latest, none, or by_duration: and a duration as PT1H30M",
            _reset,
        ),
        "Where to begin without a committed offset, or if its record is deleted.",
    ),
    ClientSetting(
        "isolation.level",
        one_word_of({"read_uncommitted": "read_uncommitted", "read_committed": "read_committed"}),
        "Whether records of transactions are given out before these are committed.",
    ),
    ClientSetting("fetch.min.bytes", integer(0), "How many bytes a broker waits for."),
    ClientSetting(
        "fetch.max.bytes",
        integer(0),
        "How many bytes a broker returns at once, unless the first batch is larger.",
    ),
    ClientSetting(
        "fetch.max.wait.ms",
        _INT32_MS,
        "How long a broker waits for fetch.min.bytes.",
        aliases=("fetch.wait.max.ms",),
    ),
    ClientSetting(
        "max.partition.fetch.bytes",
        integer(0),
        "How many of them may be of one partition, unless the first batch is larger.",
        aliases=("fetch.message.max.bytes",),
    ),
    ClientSetting("check.crcs", FLAG, "Whether batches are looked at for damage."),
    ClientSetting(
        "exclude.internal.topics", FLAG, "Whether a pattern leaves out Kafka's own topics."
    ),
    ClientSetting(
        "allow.auto.create.topics",
        FLAG,
        "Whether subscribing to a topic that is not there makes it, if brokers allow that.",
    ),
    ClientSetting(
        "client.rack", TEXT, "Where this consumer stands, to be served by the nearest replica."
    ),
    ClientSetting("key.deserializer", _DESERIALIZER, "Converts bytes to a key.", is_object=True),
    ClientSetting(
        "value.deserializer", _DESERIALIZER, "Converts bytes to a value.", is_object=True
    ),
    ClientSetting(
        "group.protocol",
        one_word_of({"classic": "classic"}, "classic: the groups of Kafka 4 are not there yet"),
        "How members and their coordinator talk.",
    ),
    INTERCEPTORS,
)
_LOCAL_QUEUE: Final = "is not supported: one fetch per broker is kept ahead, of fetch.max.bytes"
_WITHOUT_MEANING: Final = {
    "group.remote.assignor": "is for group.protocol=consumer, which is not there yet",
    "share.acknowledgement.mode": "is for share groups, which are not there yet",
    "share.acquire.mode": "is for share groups, which are not there yet",
    "queued.min.messages": _LOCAL_QUEUE,
    "queued.max.messages.kbytes": _LOCAL_QUEUE,
    "enable.auto.offset.store": "is not supported: pass offsets to commit(offsets)",
    "enable.partition.eof": "is not supported: use lag() and end_offsets()",
    "offset.store.method": "is not supported: offsets are committed to the group's coordinator",
}


def read_consumer_settings(
    given: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> tuple[ClientSettings, ConsumerSettings]:
    """Read a consumer's settings; InvalidClientSettingError lists everything that is wrong.

    Without a group there is no automatic commit.
    """
    table = SettingTable(
        "consumer",
        (*CLIENT_SETTINGS, *CONSUMER_SETTINGS, *CONSUMER_SCHEMA_SETTINGS),
        WITHOUT_MEANING | _WITHOUT_MEANING,
    )
    values, said = table.read(given, keywords)
    raise_problems(client_problems(values))
    settings = fields_of(ConsumerSettings, values)
    if settings.group_id is None and "enable.auto.commit" not in said:
        settings = replace(settings, enable_auto_commit=False)
    raise_problems(_conflicts(settings))
    schemas = client_schemas_of(values, said, "deserializer")
    return client_settings_of(values), replace(settings, schemas=schemas)


def _conflicts(settings: ConsumerSettings) -> list[str]:
    problems = []
    if settings.heartbeat_interval_ms >= settings.session_timeout_ms:
        problems.append(
            f"heartbeat.interval.ms is {settings.heartbeat_interval_ms}, and must be less than "
            f"session.timeout.ms, {settings.session_timeout_ms}: best a third of it"
        )
    if settings.group_id is None and settings.enable_auto_commit:
        problems.append("enable.auto.commit needs a group.id: there is nowhere to commit to")
    if settings.group_id is None and settings.group_instance_id is not None:
        problems.append("group.instance.id needs a group.id")
    return problems
