from dataclasses import fields

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.settings import INT32_MAX, INT64_MAX
from ottla.model.settings.topic_config import NO_LIMIT, CleanupPolicy, TimestampType, TopicConfig

# The defaults of Kafka 4.2, for a topic without settings of its own.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(ApiError) as caught:
        TopicConfig.parse(settings)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value.detail


def parsed_or_refused(settings: dict[str, str]) -> TopicConfig | ErrorCode:
    try:
        return TopicConfig.parse(settings)
    except ApiError as error:
        return error.code


def test_the_defaults_are_kafkas() -> None:
    assert TopicConfig().as_strings() == KAFKA_DEFAULTS
    assert TopicConfig.parse({}) == TopicConfig.parse(KAFKA_DEFAULTS) == TopicConfig()


def test_every_field_has_a_dotted_name() -> None:
    assert {name.replace(".", "_") for name in KAFKA_DEFAULTS} == {
        field.name for field in fields(TopicConfig)
    }


def test_values_are_typed() -> None:
    config = TopicConfig.parse(
        {
            "cleanup.policy": "compact , delete",
            "message.timestamp.type": "LogAppendTime",
            "min.cleanable.dirty.ratio": "0.01",
            "preallocate": "TRUE",
            "retention.ms": " -1 ",
            "leader.replication.throttled.replicas": "0:1, 12:3",
        }
    )
    assert config.cleanup_policy == {CleanupPolicy.COMPACT, CleanupPolicy.DELETE}
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.min_cleanable_dirty_ratio == 0.01
    assert config.preallocate is True
    assert config.retention_ms == -1
    assert config.leader_replication_throttled_replicas == {"0:1", "12:3"}


def test_what_is_not_set_is_as_in_the_defaults() -> None:
    defaults = TopicConfig(segment_bytes=1, retention_ms=5)
    config = TopicConfig.parse({"retention.ms": "6"}, defaults)
    assert (config.segment_bytes, config.retention_ms) == (1, 6)


@pytest.mark.parametrize(
    ("text", "is_compacted"),
    [("", False), ("delete", False), ("compact", True), ("delete,compact", True)],
)
def test_compaction_is_on_if_the_policy_names_it(text: str, is_compacted: bool) -> None:
    assert TopicConfig.parse({"cleanup.policy": text}).is_compacted is is_compacted


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    assert refusal({"retention.m": "1"}) == (
        "no topic setting is called 'retention.m'; did you mean retention.ms?"
    )
    assert "did you mean" not in refusal({"zzz": "1"})


def test_underscores_do_not_stand_for_dots() -> None:
    assert "did you mean segment.bytes?" in refusal({"segment_bytes": "1048576"})


def test_a_long_name_or_value_is_not_repeated_in_full() -> None:
    assert len(refusal({"x" * 100_000: "1"})) < 200
    assert len(refusal({"segment.ms": "x" * 100_000})) < 300


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("compression.lz4.level", 1, 17),
        ("compression.zstd.level", -131_072, 22),
        ("index.interval.bytes", 0, INT32_MAX),
        ("max.compaction.lag.ms", 1, INT64_MAX),
        ("max.message.bytes", 0, INT32_MAX),
        ("min.insync.replicas", 1, INT32_MAX),
        ("retention.bytes", -INT64_MAX - 1, INT64_MAX),
        ("retention.ms", -1, INT64_MAX),
        ("segment.bytes", 1 << 20, INT32_MAX),
        ("segment.index.bytes", 4, INT32_MAX),
        ("segment.ms", 1, INT64_MAX),
    ],
)
def test_numbers_have_kafkas_limits(name: str, least: int, most: int) -> None:
    for number in (least, most):
        parsed = TopicConfig.parse({name: str(number)})
        assert parsed.as_strings()[name] == str(number)
    for number in (least - 1, most + 1):
        assert f"{name} cannot be '{number}'" in refusal({name: str(number)})
        assert f"from {least} to {most}" in refusal({name: str(number)})


def test_gzip_has_levels_1_to_9_and_minus_1_for_its_default() -> None:
    for level in (-1, 1, 9):
        config = TopicConfig.parse({"compression.gzip.level": str(level)})
        assert config.compression_gzip_level == level
    for level in (-2, 0, 10):
        assert "from 1 to 9, or -1" in refusal({"compression.gzip.level": str(level)})


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("cleanup.policy", "compact,compact", "compact and delete"),
        ("cleanup.policy", "compact,", "compact and delete"),
        ("cleanup.policy", "Compact", "compact and delete"),
        ("compression.type", "none", "producer, uncompressed, gzip, snappy, lz4, zstd"),
        ("leader.replication.throttled.replicas", "*,0:1", "partition:broker"),
        ("leader.replication.throttled.replicas", "0:", "partition:broker"),
        ("message.timestamp.type", "createtime", "CreateTime, LogAppendTime"),
        ("min.cleanable.dirty.ratio", "1.01", "from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "from 0 to 1"),
        ("min.cleanable.dirty.ratio", "0_1", "from 0 to 1"),
        ("preallocate", "yes", "true or false"),
        ("segment.ms", "1_000", "a whole number"),
        ("segment.ms", "1e3", "a whole number"),
        ("segment.ms", "", "a whole number"),
        ("segment.ms", "٣", "a whole number"),
        ("segment.ms", "9" * 5000, "a whole number"),
    ],
)
def test_what_is_not_allowed_is_refused_with_what_is(name: str, text: str, allowed: str) -> None:
    assert allowed in refusal({name: text})


def test_the_least_compaction_lag_cannot_be_above_the_greatest() -> None:
    detail = refusal({"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "10"})
    assert "min.compaction.lag.ms 11" in detail
    with pytest.raises(ApiError):
        TopicConfig.parse({"max.compaction.lag.ms": "10"}, TopicConfig(min_compaction_lag_ms=11))


configs = st.builds(
    TopicConfig,
    cleanup_policy=st.frozensets(st.sampled_from(CleanupPolicy)),
    compression_type=st.sampled_from(["producer", "uncompressed", "zstd"]),
    follower_replication_throttled_replicas=st.just(frozenset({"*"}))
    | st.frozensets(st.from_regex(r"[0-9]+:[0-9]+", fullmatch=True)),
    message_timestamp_type=st.sampled_from(TimestampType),
    min_cleanable_dirty_ratio=st.floats(0, 1).map(abs),
    preallocate=st.booleans(),
    retention_bytes=st.integers(-INT64_MAX - 1, INT64_MAX),
    segment_ms=st.integers(1, NO_LIMIT),
)


@given(configs)
def test_what_as_strings_writes_parse_reads(config: TopicConfig) -> None:
    assert TopicConfig.parse(config.as_strings()) == config


@given(st.sampled_from(list(KAFKA_DEFAULTS)), st.text())
@example("min.cleanable.dirty.ratio", "1e-999")
@example("cleanup.policy", ",")
def test_any_text_is_a_value_or_an_invalid_config(name: str, text: str) -> None:
    outcome = parsed_or_refused({name: text})
    if isinstance(outcome, TopicConfig):
        assert TopicConfig.parse(outcome.as_strings()) == outcome
    else:
        assert outcome is ErrorCode.INVALID_CONFIG
