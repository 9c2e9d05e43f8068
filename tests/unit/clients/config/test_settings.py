"""Client settings, under Kafka's names."""

from typing import Any

import pytest

from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.config.settings import parse_addresses, parse_settings, read_client_settings
from ottla.clients.consumer.state.settings import ConsumerSettings, read_consumer_settings
from ottla.clients.producer.state.settings import ProducerSettings, read_producer_settings
from ottla.clients.records.serializers import JSON, STRING
from ottla.model.address import Address
from ottla.wire.records.compression.codecs import Compression

SERVERS = {"bootstrap.servers": "a:1"}


def producer(**keywords: Any) -> ProducerSettings:
    return read_producer_settings(SERVERS, keywords)[1]


def consumer(**keywords: Any) -> ConsumerSettings:
    return read_consumer_settings(SERVERS, keywords)[1]


def why_no_producer(settings: dict[str, Any], **keywords: Any) -> str:
    with pytest.raises(InvalidClientSettingError) as refused:
        read_producer_settings(SERVERS | settings, keywords)
    return str(refused.value)


def why_no_consumer(settings: dict[str, Any], **keywords: Any) -> str:
    with pytest.raises(InvalidClientSettingError) as refused:
        read_consumer_settings(SERVERS | settings, keywords)
    return str(refused.value)


def test_addresses_are_separated_by_commas_and_have_a_default_port() -> None:
    assert parse_addresses("a:1, b,[::1]:2,[::1]") == (
        Address("a", 1),
        Address("b", 9092),
        Address("::1", 2),
        Address("::1", 9092),
    )


@pytest.mark.parametrize("text", ["", ",", "a:", ":1", "a:b", "a:0", "a:65536", "a:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidClientSettingError):
        parse_addresses(text)


def test_settings_have_kafkas_names() -> None:
    settings = parse_settings(
        {"bootstrap.servers": "a:1", "client.id": "me", "request.timeout.ms": "7"}, "b:2"
    )
    assert settings.bootstrap_servers == (Address("a", 1),)
    assert (settings.client_id, settings.request_timeout_ms) == ("me", 7)


def test_a_command_has_a_default_broker() -> None:
    assert parse_settings({}, "b:2").bootstrap_servers == (Address("b", 2),)
    assert parse_settings({"brokers": "c:3"}, "b:2").bootstrap_servers == (Address("c", 3),)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("request.timeout", "1", "request.timeout.ms"),
        ("request.timeout.ms", "soon", "milliseconds"),
        ("request.timeout.ms", "-1", "from 0"),
        ("request.timeout.ms", "1.5", "whole"),
        ("request.timeout.ms", "inf", "whole"),
        ("request.timeout.ms", "nan", "whole"),
        ("sasl.mechanism", "PLAIN", "not supported"),
        ("security.protocol", "SASL_SSL", "not supported"),
        ("zzz", "1", "docs/client-settings.md"),
        ("linger.ms", "1", "not a client setting"),
        ("metric.reporters", "x", "plain numbers"),
    ],
)
def test_a_wrong_setting_says_what_would_be_right(name: str, value: str, word: str) -> None:
    with pytest.raises(InvalidClientSettingError, match=word):
        parse_settings({name: value}, "a:1")


def test_an_address_is_shown_as_it_is_written() -> None:
    assert [str(row) for row in parse_addresses("a:1,[::1]:2")] == ["a:1", "[::1]:2"]


def test_a_dict_and_keywords_go_together() -> None:
    client, settings = read_producer_settings(
        {"bootstrap.servers": ["a:1", "b:2"], "acks": "all", "security.protocol": "plaintext"},
        {"linger_ms": 0.5, "client_id": "me", "compression_type": "ZSTD", "retries": None},
    )
    assert client.bootstrap_servers == (Address("a", 1), Address("b", 2))
    assert (client.client_id, settings.acks, settings.linger_ms) == ("me", -1, 0.5)
    assert settings.compression_type is Compression.ZSTD
    assert settings.retries == ProducerSettings().retries


def test_a_setting_that_is_said_twice_is_refused() -> None:
    assert why_no_producer({"linger.ms": 1}, linger_ms=2) == (
        "linger.ms is said twice: as linger.ms and as linger_ms"
    )
    said = why_no_producer({"compression.codec": "gzip", "compression.type": "gzip"})
    assert "as compression.codec and as compression.type" in said


def test_everything_that_is_wrong_is_told_at_once() -> None:
    said = why_no_producer({"ack": 1, "linger.ms": "long", "batch.size": -1})
    assert "did you mean acks?" in said
    assert "linger.ms cannot be 'long'" in said
    assert "batch.size cannot be '-1'" in said


def test_without_servers_there_is_no_client() -> None:
    with pytest.raises(InvalidClientSettingError, match=r"bootstrap\.servers is missing"):
        read_client_settings(None, {})


@pytest.mark.parametrize(
    ("said", "is_on"), [("true", True), ("False", False), (True, True), (False, False)]
)
def test_flags_are_text_or_pythons_own(said: str | bool, *, is_on: bool) -> None:
    assert consumer(group_id="g", enable_auto_commit=said).enable_auto_commit is is_on
    assert "check.crcs cannot be '1'" in why_no_consumer({}, check_crcs=1)


def test_other_names_that_people_write_are_understood() -> None:
    settings = producer(
        request_required_acks=1,
        queue_buffering_max_ms="3",
        message_timeout_ms=99_000,
        max_in_flight=2,
    )
    assert (settings.acks, settings.linger_ms) == (1, 3)
    assert settings.delivery_timeout_ms == 99_000
    assert settings.max_in_flight_requests_per_connection == 2
    read = consumer(group_id="g", fetch_wait_max_ms=7, auto_offset_reset="smallest")
    assert (read.fetch_max_wait_ms, read.auto_offset_reset) == (7, "earliest")


@pytest.mark.parametrize(("said", "acks"), [("all", -1), ("-1", -1), (-1, -1), (0, 0), ("1", 1)])
def test_acks_are_a_word_or_a_number(said: str | int, acks: int) -> None:
    assert producer(acks=said).acks == acks


def test_idempotence_is_disabled_only_if_it_was_not_requested() -> None:
    assert not producer(acks=1).enable_idempotence
    assert not producer(retries=0).enable_idempotence
    assert "acks=all, not 1" in why_no_producer({}, acks=1, enable_idempotence=True)
    assert "retries above 0" in why_no_producer({}, retries=0, enable_idempotence="true")
    assert "at most 5, not 6" in why_no_producer({}, max_in_flight_requests_per_connection=6)
    assert "needs enable.idempotence" in why_no_producer({}, transactional_id="t", acks=1)


def test_a_delivery_has_time_for_lingering_and_one_request() -> None:
    assert "less than linger.ms" in why_no_producer({"delivery.timeout.ms": 100})
    assert producer(linger_ms=100_000).delivery_timeout_ms == 130_000


def test_records_of_transactions_linger_for_longer_unless_it_is_said_how_long() -> None:
    assert producer().linger_ms == 5
    assert producer(transactional_id="copier").linger_ms == 100
    assert producer(transactional_id="copier", linger_ms=5).linger_ms == 5


def test_two_phase_commit_has_no_time_limit() -> None:
    said = why_no_producer(
        {"transaction.two.phase.commit.enable": True, "transaction.timeout.ms": 1000}
    )
    assert "transaction.timeout.ms has no effect" in said


def test_the_level_is_that_of_the_codec_in_use() -> None:
    levels = {"compression_gzip_level": 9, "compression_zstd_level": 3}
    assert producer(compression_type="zstd", **levels).compression_level == 3
    assert producer(compression_type="gzip", **levels).compression_level == 9
    assert producer(compression_type="lz4", **levels).compression_level is None
    assert producer(compression_type="zstd", compression_level=-5).compression_level == -5


def test_serializers_are_named_or_given() -> None:
    java = "org.apache.kafka.common.serialization.StringSerializer"
    settings = producer(key_serializer=java, value_serializer=str.encode)
    assert settings.key_serializer is STRING
    assert settings.value_serializer is str.encode
    assert consumer(value_deserializer="json").value_deserializer is JSON
    assert "a function, or one of" in why_no_producer({}, value_serializer="jason")
    assert "a function, or one of" in why_no_producer({}, value_serializer=7)


def test_partitioners_are_named_or_given() -> None:
    def own(topic: str, key: bytes | None, count: int) -> int:
        return 0

    assert producer(partitioner="default").partitioner == "murmur2_random"
    assert producer(partitioner=own).partitioner is own
    assert "one of murmur2_random" in why_no_producer({}, partitioner="murmur3")
    said = why_no_producer({}, partitioner="fnv1a", partitioner_ignore_keys=True)
    assert "only for the default" in said


def test_a_consumer_without_a_group_commits_nothing() -> None:
    assert not consumer().enable_auto_commit
    assert consumer(group_id="g").enable_auto_commit
    assert "needs a group.id" in why_no_consumer({}, enable_auto_commit=True)
    assert "needs a group.id" in why_no_consumer({}, group_instance_id="me")


def test_a_heartbeat_comes_before_the_session_is_over() -> None:
    assert "less than session.timeout.ms" in why_no_consumer(
        {"session.timeout.ms": 3000, "group.id": "g"}
    )


@pytest.mark.parametrize(
    ("said", "understood"),
    [
        ("sticky", ("sticky",)),
        ("range,roundrobin", ("range", "roundrobin")),
        (["range"], ("range",)),
    ],
)
def test_assignors_are_a_list_or_text(said: Any, understood: tuple[str, ...]) -> None:
    assert consumer(partition_assignment_strategy=said).partition_assignment_strategy == understood


def test_an_unknown_assignor_is_told_at_once() -> None:
    said = why_no_consumer({}, partition_assignment_strategy="rang")
    assert "did you mean range?" in said


@pytest.mark.parametrize("word", ["none", "latest", "by_duration:PT1H30M", "by_duration:P3D"])
def test_where_to_begin_may_be_a_duration(word: str) -> None:
    assert consumer(auto_offset_reset=word).auto_offset_reset == word
    assert "by_duration" in why_no_consumer({}, auto_offset_reset="by_duration:P")


def test_a_wait_that_is_longer_than_the_longest_is_refused_or_makes_room() -> None:
    client, _ = read_producer_settings(SERVERS, {"retry_backoff_ms": 5000})
    assert client.retry_backoff_max_ms == 5000
    said = why_no_producer({"retry.backoff.ms": 50, "retry.backoff.max.ms": 10})
    assert "less than retry.backoff.ms" in said
