"""A producer's settings, with Kafka's names and, except for batch.size, Kafka's defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.clients.config.setting_table import (
    NAME,
    ClientSetting,
    SettingTable,
    fields_of,
    fine_milliseconds,
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
from ottla.clients.records.partitioner import (
    DEFAULT_PARTITIONER,
    PARTITIONER_NAMES,
    Partitioner,
    find_partitioner,
)
from ottla.clients.records.serializers import NAMES, find_serializer
from ottla.clients.schemas.schema_settings import (
    PRODUCER_SCHEMA_SETTINGS,
    ClientSchemas,
    client_schemas_of,
)
from ottla.model.settings.settings import FLAG, INT32_MAX, integer, long
from ottla.wire.records.compression.codecs import Compression

ALL_REPLICAS: Final = -1
IN_FLIGHT_MAX_WITH_IDEMPOTENCE: Final = 5
"""How many batches a broker remembers per producer, to detect duplicates."""
TRANSACTIONAL_LINGER_MS: Final = 100
"""Consumers see a transaction's records only after its end, and a commit never lingers."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """One field for each of Kafka's settings, with the same name."""

    acks: int = ALL_REPLICAS
    batch_size: int = (1 << 20) - (1 << 10)
    """The size before compression: as much as a request can hold beside the names in it. With
    Kafka's 16384 every 150 small records would need a request."""
    linger_ms: float = 5
    buffer_memory: int = 32 << 20
    max_block_ms: int = 60_000
    max_in_flight_requests_per_connection: int = 5
    max_request_size: int = 1 << 20
    delivery_timeout_ms: int = 120_000
    retries: int = INT32_MAX
    enable_idempotence: bool = True
    compression_type: Compression = Compression.NONE
    compression_level: int | None = None
    allow_auto_create_topics: bool = True
    metadata_max_idle_ms: int = 300_000
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    transaction_two_phase_commit_enable: bool = False
    partitioner: str | Partitioner = DEFAULT_PARTITIONER
    partitioner_ignore_keys: bool = False
    key_serializer: Any = None
    """A `Serializer` or a function of one value; None leaves bytes as they are."""
    value_serializer: Any = None
    interceptors: tuple[Any, ...] = ()
    schemas: ClientSchemas | None = None
    """The schemas of keys and values, and their registry."""


_ACKS: Final = {"all": ALL_REPLICAS, "-1": ALL_REPLICAS, "0": 0, "1": 1}
_CODECS: Final = {codec.config_name: codec for codec in Compression}
_SERIALIZER: Final = some_object(f"a serializer, a function, or one of {NAMES}", find_serializer)
_LEVEL_FIELD_BY_CODEC: Final = {
    Compression.GZIP: "compression_gzip_level",
    Compression.LZ4: "compression_lz4_level",
    Compression.ZSTD: "compression_zstd_level",
}
PRODUCER_SETTINGS: Final = (
    ClientSetting(
        "acks",
        one_word_of(_ACKS),
        "The replicas that must have a record before it counts as sent: all in sync, the leader"
        " (1), none (0).",
        aliases=("request.required.acks",),
    ),
    ClientSetting(
        "batch.size", integer(0), "How many bytes of records of a partition are sent together."
    ),
    ClientSetting(
        "linger.ms",
        fine_milliseconds(),
        "How long a record waits for others to be sent with; with a transactional.id 100, if it is "
        "not said.",
        aliases=("queue.buffering.max.ms",),
    ),
    ClientSetting(
        "buffer.memory", long(0), "How many bytes of records may wait to be sent, in all."
    ),
    ClientSetting(
        "max.block.ms",
        milliseconds(),
        "How long send may wait for room or for metadata, and a transaction for its coordinator.",
    ),
    ClientSetting(
        "max.in.flight.requests.per.connection",
        integer(1),
        "How many requests a broker may have to answer at once; with idempotence at most 5.",
        aliases=("max.in.flight",),
    ),
    ClientSetting(
        "max.request.size",
        integer(0),
        "How many bytes a request may have, and so a record.",
        aliases=("message.max.bytes",),
    ),
    ClientSetting(
        "delivery.timeout.ms",
        milliseconds(0, INT32_MAX),
        "How long it may take, with all tries, until a record is sent or given up.",
        aliases=("message.timeout.ms",),
    ),
    ClientSetting(
        "retries",
        integer(0),
        "How often a batch is sent again; delivery.timeout.ms is the better limit.",
        aliases=("message.send.max.retries",),
    ),
    ClientSetting(
        "enable.idempotence", FLAG, "Whether every record is written once, and in order."
    ),
    ClientSetting(
        "compression.type",
        one_word_of(_CODECS),
        "How batches are compressed.",
        aliases=("compression.codec",),
    ),
    ClientSetting(
        "compression.level",
        integer(-131_072, 22),
        "How hard compression.type works; if it is not said, as hard as the codec likes.",
    ),
    ClientSetting(
        "compression.gzip.level",
        integer(1, 9, also=-1),
        "The compression level if compression.type is gzip.",
    ),
    ClientSetting(
        "compression.lz4.level",
        integer(1, 17),
        "The compression level if compression.type is lz4.",
    ),
    ClientSetting(
        "compression.zstd.level",
        integer(-131_072, 22),
        "The compression level if compression.type is zstd.",
    ),
    ClientSetting(
        "allow.auto.create.topics",
        FLAG,
        "Whether sending to a topic that is not there makes it, if brokers allow that.",
    ),
    ClientSetting(
        "metadata.max.idle.ms",
        milliseconds(),
        "After how long without a record for it a topic is not looked at any more.",
    ),
    ClientSetting(
        "transactional.id",
        NAME,
        "The id of a transactional producer: a second producer with the same id ends the first.",
    ),
    ClientSetting(
        "transaction.timeout.ms",
        milliseconds(1, INT32_MAX),
        "How long a transaction may be open before its coordinator aborts it.",
    ),
    ClientSetting(
        "transaction.two.phase.commit.enable",
        FLAG,
        "Whether transactions may be prepared, and ended by another process at any later time.",
    ),
    ClientSetting(
        "partitioner",
        some_object(f"a function, or one of {PARTITIONER_NAMES}", find_partitioner),
        "Which partition a record goes to that does not say so itself.",
        aliases=("partitioner.class",),
        is_object=True,
    ),
    ClientSetting(
        "partitioner.ignore.keys",
        FLAG,
        "Whether records with a key are shared out as those without.",
    ),
    ClientSetting("key.serializer", _SERIALIZER, "Converts a key to bytes.", is_object=True),
    ClientSetting("value.serializer", _SERIALIZER, "Converts a value to bytes.", is_object=True),
    INTERCEPTORS,
)
_WITHOUT_MEANING: Final = {
    "partitioner.adaptive.partitioning.enable": "is not supported: partitions are used evenly",
    "partitioner.availability.timeout.ms": "is not supported: partitions are used evenly",
    "queue.buffering.max.messages": "is not supported: buffer.memory is the limit, in bytes",
    "queue.buffering.max.kbytes": "is not supported: buffer.memory is the limit, in bytes",
    "batch.num.messages": "is not supported: batch.size is the limit, in bytes",
    "sticky.partitioning.linger.ms": "is not supported: a partition is kept for batch.size bytes",
    "delivery.report.only.error": "is not supported: on_delivery is called for every record",
    "enable.gapless.guarantee": "is not supported: idempotence keeps the order",
}


def read_producer_settings(
    given: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> tuple[ClientSettings, ProducerSettings]:
    """Read a producer's settings; InvalidClientSettingError lists everything that is wrong.

    As in Kafka, acks or retries that contradict idempotence turn it off, unless it was enabled
    explicitly; and delivery.timeout.ms grows to cover linger and request timeout, unless it is set.
    Transactional producers linger for longer, unless linger.ms is set.
    """
    table = SettingTable(
        "producer",
        (*CLIENT_SETTINGS, *PRODUCER_SETTINGS, *PRODUCER_SCHEMA_SETTINGS),
        WITHOUT_MEANING | _WITHOUT_MEANING,
    )
    values, said = table.read(given, keywords)
    raise_problems(client_problems(values))
    client = client_settings_of(values)
    settings = _completed(fields_of(ProducerSettings, values), client, values, said)
    raise_problems(_conflicts(settings, client, said))
    return client, replace(settings, schemas=client_schemas_of(values, said, "serializer"))


def _completed(
    settings: ProducerSettings,
    client: ClientSettings,
    values: Mapping[str, Any],
    said: frozenset[str],
) -> ProducerSettings:
    level_field = _LEVEL_FIELD_BY_CODEC.get(settings.compression_type, "")
    level = values.get("compression_level", values.get(level_field))
    can_be_idempotent = settings.acks == ALL_REPLICAS and settings.retries > 0
    is_idempotent = settings.enable_idempotence and (
        can_be_idempotent or "enable.idempotence" in said
    )
    if settings.transactional_id is not None and "linger.ms" not in said:
        settings = replace(settings, linger_ms=TRANSACTIONAL_LINGER_MS)
    delivery_timeout_ms = settings.delivery_timeout_ms
    if "delivery.timeout.ms" not in said:
        delivery_timeout_ms = max(delivery_timeout_ms, _delivery_timeout_min(settings, client))
    return replace(
        settings,
        compression_level=level,
        enable_idempotence=is_idempotent,
        delivery_timeout_ms=delivery_timeout_ms,
    )


def _delivery_timeout_min(settings: ProducerSettings, client: ClientSettings) -> int:
    return min(int(settings.linger_ms) + client.request_timeout_ms, INT32_MAX)


def _conflicts(
    settings: ProducerSettings, client: ClientSettings, said: frozenset[str]
) -> list[str]:
    problems = []
    if settings.enable_idempotence:
        problems += _idempotence_conflicts(settings)
    elif settings.transactional_id is not None:
        problems.append(
            "transactional.id needs enable.idempotence, and so acks=all and retries above 0"
        )
    if settings.delivery_timeout_ms < _delivery_timeout_min(settings, client):
        problems.append(
            f"delivery.timeout.ms is {settings.delivery_timeout_ms}, less than linger.ms and "
            f"request.timeout.ms together, {_delivery_timeout_min(settings, client)}"
        )
    if settings.transaction_two_phase_commit_enable and "transaction.timeout.ms" in said:
        problems.append(
            "transaction.timeout.ms has no effect with transaction.two.phase.commit.enable: "
            "prepared transactions stay open"
        )
    if settings.partitioner_ignore_keys and settings.partitioner != DEFAULT_PARTITIONER:
        problems.append("partitioner.ignore.keys is only for the default partitioner")
    return problems


def _idempotence_conflicts(settings: ProducerSettings) -> list[str]:
    problems = []
    if settings.acks != ALL_REPLICAS:
        problems.append(f"enable.idempotence needs acks=all, not {settings.acks}")
    if settings.retries == 0:
        problems.append("enable.idempotence needs retries above 0")
    if settings.max_in_flight_requests_per_connection > IN_FLIGHT_MAX_WITH_IDEMPOTENCE:
        problems.append(
            "enable.idempotence needs max.in.flight.requests.per.connection of at most "
            f"{IN_FLIGHT_MAX_WITH_IDEMPOTENCE}, not "
            f"{settings.max_in_flight_requests_per_connection}"
        )
    return problems
