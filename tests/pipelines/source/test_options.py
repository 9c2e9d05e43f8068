"""Options of Spark's Kafka source: read, or refused with a helpful message."""

import json

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.model.isolation_level import EARLIEST, LATEST
from ottla.pipelines.source.errors import SourceOptionError
from ottla.pipelines.source.options import SourceOptions, read_options

NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def read(*, is_streaming: bool = False, **options: str) -> SourceOptions:
    return read_options({**NEEDED, **options}, is_streaming=is_streaming)


def refusal(options: dict[str, str], *, is_streaming: bool = False) -> str:
    with pytest.raises(SourceOptionError) as refused:
        read_options(options, is_streaming=is_streaming)
    return str(refused.value)


def test_a_batch_reads_all_that_is_there_and_a_stream_what_comes() -> None:
    batch, stream = read(), read(is_streaming=True)
    assert (batch.starting.everywhere, batch.ending.everywhere) == (EARLIEST, LATEST)
    assert stream.starting.everywhere == LATEST
    assert batch.fail_on_data_loss
    assert not batch.fetching.is_committed_only


def test_names_are_known_in_small_and_capital_letters() -> None:
    assert read(MAXOFFSETSPERTRIGGER="7").max_offsets_per_trigger == 7


def test_topics_are_named_or_fit_a_pattern_or_are_assigned() -> None:
    servers = {"kafka.bootstrap.servers": "127.0.0.1"}
    assert read(subscribe=" a, b,a ").topics.names == ("a", "b")
    pattern = read_options({**servers, "subscribePattern": "or.*"}, is_streaming=True)
    assert pattern.topics.pattern == "or.*"
    assigned = read_options({**servers, "assign": '{"b": [1], "a": [1, 0]}'}, is_streaming=True)
    assert assigned.topics.partitions == (("a", 0), ("a", 1), ("b", 1))


def test_times_win_over_offsets_as_in_spark() -> None:
    times = {"startingTimestamp": "5", "startingOffsets": "earliest"}
    assert read(**times).starting.time_ms == 5
    each = read(startingOffsetsByTimestamp='{"orders": {"0": 9}}').starting
    assert each.time_ms_by_partition == {TopicPartition("orders", 0): 9}


def test_settings_of_the_client_are_passed_on() -> None:
    options = {
        "kafka.isolation.level": "read_committed",
        "kafka.client.id": "counter",
        "kafka.max.partition.fetch.bytes": "1000",
        "kafka.group.id": "counters",
        "kafkaConsumer.pollTimeoutMs": "3000",
    }
    found = read(**options)
    assert found.client.client_id == "counter"
    assert found.fetching.is_committed_only
    assert found.fetching.partition_bytes_max == 1000
    assert found.fetching.stuck_ms_max == 3000
    assert found.group_id == "counters"


@pytest.mark.parametrize(("text", "delay_ms"), [("15m", 900_000), ("30s", 30_000), ("7", 7)])
def test_a_delay_is_written_as_sparks_durations_are(text: str, delay_ms: int) -> None:
    assert read(maxTriggerDelay=text).trigger_delay_ms_max == delay_ms


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets?"),
        ({"topic": "orders"}, "option of the sink"),
        ({"path": "/orders"}, "subscribe names the topics"),
        ({"assign": '{"orders": [0]}'}, "exactly one of"),
        ({"startingOffsets": "first"}, "earliest, latest or"),
        ({"startingOffsets": '{"orders": {"0": 1}'}, "startingOffsets is not JSON"),
        ({"startingOffsets": '{"orders": [1]}'}, '{"orders": [1]} is not like'),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "is not like"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "is not like"),
        ({"startingOffsets": "{}"}, "names no partition"),
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "cannot be latest"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "cannot be earliest"),
        ({"startingTimestamp": "noon"}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "error or latest"),
        ({"maxOffsetsPerTrigger": "0"}, "a number from 1 on"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"maxTriggerDelay": "soon"}, "30s, 15m or 1h"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "more than"),
        ({"kafka.fetch.max.byte": "1"}, "did you mean fetch.max.bytes?"),
        ({"kafka.security.protocol": "SSL"}, "not supported yet"),
        ({"kafka.auto.offset.reset": "latest"}, "startingOffsets says where to begin"),
        ({"kafka.value.deserializer": "json"}, "the option decode makes columns of them"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(options: dict[str, str], said: str) -> None:
    assert said in refusal({**NEEDED, **options})


def test_what_is_missing_is_said() -> None:
    assert "kafka.bootstrap.servers is missing" in refusal({"subscribe": "orders"})
    assert "none is given" in refusal({"kafka.bootstrap.servers": "127.0.0.1"})


def test_a_pattern_that_is_none_is_refused() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1", "subscribePattern": "(orders"}
    assert "is no pattern" in refusal(options)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(option: str) -> None:
    value = "1" if option == "endingTimestamp" else json.dumps({"orders": {"0": 1}})
    assert "a stream does not end" in refusal({**NEEDED, option: value}, is_streaming=True)
