"""The options of the source, which are the options of Spark's Kafka source.

Names are Spark's, in small or capital letters. Options that begin with `kafka.` are settings of
our consumer. An unknown option is an error, so that no typo goes unnoticed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.config.settings import ClientSettings
from ottla.clients.consumer.state.settings import read_consumer_settings
from ottla.clients.tables.range_reader import Fetching
from ottla.model.identifiers import TopicPartition
from ottla.model.isolation_level import EARLIEST, LATEST
from ottla.model.settings.settings import nearest_to
from ottla.pipelines.source.bounds import (
    Bound,
    read_offsets,
    read_partitions,
    read_time,
    read_times,
)
from ottla.pipelines.source.decode_options import (
    DECODE_NAMES,
    REGISTRY_NAMES,
    refuse_without_decode,
)
from ottla.pipelines.source.errors import ADVICE_ON_LOSS, SourceOptionError

OPTIONS: Final = (
    "kafka.bootstrap.servers",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    *DECODE_NAMES,
    *REGISTRY_NAMES,
)
"""The options `fetchOffset.…` are Spark's and have no effect: kafka.default.api.timeout.ms limits
the time of all retries."""
_KAFKA: Final = "kafka."
_CHOICES: Final = ("subscribe", "subscribePattern", "assign")
_SINK_ONLY: Final = ("topic", "exactlyonce")
_NOT_SETTABLE: Final = {
    "auto.offset.reset": "startingOffsets says where to begin",
    "enable.auto.commit": "offsets are kept in the checkpoint",
    "interceptor.classes": "records go to Spark as they are",
    "key.deserializer": "keys are binary: the option decode makes columns of them",
    "value.deserializer": "values are binary: the option decode makes columns of them",
}
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.ASCII)
_MINUTE_MS: Final = 60_000
_MS_BY_UNIT: Final = {
    "ms": 1,
    "s": 1000,
    "m": _MINUTE_MS,
    "min": _MINUTE_MS,
    "h": 60 * _MINUTE_MS,
    "d": 24 * 60 * _MINUTE_MS,
}
_FETCH_BYTES: Final = 4 << 20
_TRIGGER_DELAY_MS: Final = 15 * _MINUTE_MS
_POLL_TIMEOUT_MS: Final = 2 * _MINUTE_MS
DEFAULT_GROUP_PREFIX: Final = "ottla-query"


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics to read, by name or by a pattern, or partitions; one of the fields is set."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options of a source."""

    client: ClientSettings
    fetching: Fetching
    topics: Topics
    starting: Bound
    ending: Bound
    is_latest_where_time_is_missing: bool
    """Set by startingOffsetsByTimestampStrategy; if false, a missing time is an error."""
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    trigger_delay_ms_max: int
    min_partitions: int | None
    records_per_partition_max: int | None
    fail_on_data_loss: bool
    group_id: str | None
    group_id_prefix: str


def read_options(options: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Read options; a SourceOptionError names the wrong option and its valid values."""
    given = {name.lower(): value for name, value in options.items()}
    _check_names(given)
    client, fetching, group_id = _kafka_settings(given)
    said = _Said(given)
    read = SourceOptions(
        client=client,
        fetching=fetching,
        topics=_topics(said),
        starting=_bound(said, "starting", LATEST if is_streaming else EARLIEST),
        ending=_bound(said, "ending", LATEST),
        is_latest_where_time_is_missing=_is_latest_where_missing(said),
        max_offsets_per_trigger=said.number("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=said.number("minOffsetsPerTrigger"),
        trigger_delay_ms_max=said.duration_ms("maxTriggerDelay", _TRIGGER_DELAY_MS),
        min_partitions=said.number("minPartitions"),
        records_per_partition_max=said.number("maxRecordsPerPartition"),
        fail_on_data_loss=said.flag("failOnDataLoss", default=True),
        group_id=group_id,
        group_id_prefix=said.get("groupIdPrefix") or DEFAULT_GROUP_PREFIX,
    )
    _check_together(read, said, is_streaming=is_streaming)
    refuse_without_decode(given)
    return read


def includes_headers(options: Mapping[str, str]) -> bool:
    """Whether the headers column is included."""
    return _Said({name.lower(): value for name, value in options.items()}).flag(
        "includeHeaders", default=False
    )


class _Said:
    """Options by name, without regard to case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def get(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def number(self, name: str) -> int | None:
        text = self.get(name)
        if text is None:
            return None
        if not text.strip().isascii() or not text.strip().isdigit() or int(text) < 1:
            raise SourceOptionError(f"{name} cannot be {text!r}: it must be a number from 1 on")
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        text = self.get(name)
        if text is None:
            return default
        if text.strip().lower() not in {"true", "false"}:
            raise SourceOptionError(f"{name} cannot be {text!r}: it must be true or false")
        return text.strip().lower() == "true"

    def duration_ms(self, name: str, default_ms: int) -> int:
        text = self.get(name)
        if text is None:
            return default_ms
        found = _DURATION.fullmatch(text.strip().lower())
        if found is None:
            raise SourceOptionError(f"{name} cannot be {text!r}: it must be like 30s, 15m or 1h")
        return int(found[1]) * _MS_BY_UNIT[found[2] or "ms"]


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in OPTIONS}
    for name in given:
        if name in known or name.startswith(_KAFKA):
            continue
        if name in _SINK_ONLY or name.startswith("encode"):
            raise SourceOptionError(f"{name} is an option of the sink, not of the source")
        if name == "path":
            raise SourceOptionError("load() takes no path: subscribe names the topics")
        raise SourceOptionError(f"{name} is not an option of the source{_nearest(name, known)}")


def _nearest(name: str, known: Mapping[str, str]) -> str:
    near = nearest_to(name, known)
    for small, exact in known.items():
        near = near.replace(f" {small}?", f" {exact}?")
    return near or "; docs/spark-source.md lists them"


def _kafka_settings(given: Mapping[str, str]) -> tuple[ClientSettings, Fetching, str | None]:
    settings = {
        name.removeprefix(_KAFKA): value for name, value in given.items() if name.startswith(_KAFKA)
    }
    if "bootstrap.servers" not in settings:
        raise SourceOptionError("kafka.bootstrap.servers is missing: say where the cluster is")
    for name, why in _NOT_SETTABLE.items():
        if name in settings:
            raise SourceOptionError(f"kafka.{name} cannot be set: {why}")
    try:
        client, consumer = read_consumer_settings(settings, {})
    except InvalidClientSettingError as error:
        raise SourceOptionError(f"an option that begins with kafka. is wrong: {error}") from None
    is_said = "max.partition.fetch.bytes" in settings or "fetch.message.max.bytes" in settings
    poll_timeout_ms = _Said(given).number("kafkaConsumer.pollTimeoutMs") or _POLL_TIMEOUT_MS
    fetching = Fetching(
        is_committed_only=consumer.isolation_level == "read_committed",
        check_crcs=consumer.check_crcs,
        partition_bytes_max=consumer.max_partition_fetch_bytes if is_said else _FETCH_BYTES,
        wait_ms_max=consumer.fetch_max_wait_ms,
        rack=consumer.client_rack or "",
        stuck_ms_max=poll_timeout_ms,
        advice_on_loss=ADVICE_ON_LOSS,
    )
    return client, fetching, consumer.group_id


def _topics(said: _Said) -> Topics:
    chosen = [name for name in _CHOICES if said.get(name) is not None]
    if len(chosen) != 1:
        listed = ", ".join(_CHOICES)
        found = f"both {' and '.join(chosen)} are given" if chosen else "none is given"
        raise SourceOptionError(f"give exactly one of {listed}: {found}")
    text = (said.get(chosen[0]) or "").strip()
    if chosen[0] == "assign":
        return Topics(partitions=read_partitions("assign", text))
    if not text:
        raise SourceOptionError(f"{chosen[0]} is empty")
    if chosen[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise SourceOptionError(f"subscribePattern {text!r} is no pattern: {error}") from None
        return Topics(pattern=text)
    names = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    return Topics(names=tuple(names))


def _bound(said: _Said, side: str, default: int) -> Bound:
    """Return one bound: the first option given of one time, times by partition, and offsets."""
    ways: tuple[tuple[str, Callable[[str, str], Bound]], ...] = (
        (f"{side}Timestamp", read_time),
        (f"{side}OffsetsByTimestamp", read_times),
        (f"{side}Offsets", read_offsets),
    )
    for option, read in ways:
        text = said.get(option)
        if text is not None:
            return read(option, text)
    return Bound(f"{side}Offsets", everywhere=default)


def _is_latest_where_missing(said: _Said) -> bool:
    text = said.get("startingOffsetsByTimestampStrategy") or "error"
    if text.lower() not in {"error", "latest"}:
        raise SourceOptionError(
            f"startingOffsetsByTimestampStrategy cannot be {text!r}: it must be error or latest"
        )
    return text.lower() == "latest"


def _check_together(read: SourceOptions, said: _Said, *, is_streaming: bool) -> None:
    if is_streaming:
        for option in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if said.get(option) is not None:
                raise SourceOptionError(f"{option} is for batches: a stream does not end")
    else:
        read.starting.refuse(LATEST, "cannot be latest (-1) in a batch: nothing would be read")
        read.ending.refuse(EARLIEST, "cannot be earliest (-2): nothing would be read")
    least, most = read.min_offsets_per_trigger, read.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise SourceOptionError(
            f"minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger, which is {most}"
        )
