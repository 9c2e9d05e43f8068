"""The logs that the tests have Kafka write: a sample of everything a log can contain.

plain-0         every codec, headers, null keys and values; several segments, two epochs
plain-1         nothing
transactions-0  an idempotent producer; transactions committed, aborted and left open
compacted-0     cleaned, with a tombstone
stamped-0       LogAppendTime
"""

import time

from confluent_kafka import Producer

from ottla.model.settings.topic_config import CleanupPolicy, TimestampType, TopicConfig
from tests.interop.kafka_clients import NewRecord, commit_offset, create_topic, producer, send
from tests.interop.kafka_node import KafkaNode

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = (
    ("plain", 0),
    ("plain", 1),
    ("transactions", 0),
    ("compacted", 0),
    ("stamped", 0),
)
START_MS = 1_735_689_600_000
SMALL_SEGMENTS = TopicConfig(segment_bytes=700, index_interval_bytes=100)
CONFIG = {
    "plain": SMALL_SEGMENTS,
    "transactions": SMALL_SEGMENTS,
    "compacted": TopicConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT})),
    "stamped": TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME),
}
CLEANED_SECONDS_MAX = 60


def tell_story(node: KafkaNode, start_ms: int = START_MS) -> None:
    """Start the node and write everything; it is left running."""
    node.start()
    server = node.bootstrap_server
    small = {"internal_segment_bytes": "700", "index_interval_bytes": "100"}
    create_topic(server, "plain", 2, **small)
    create_topic(server, "transactions", 1, **small)
    create_topic(server, "stamped", 1, message_timestamp_type="LogAppendTime")
    create_topic(
        server,
        "compacted",
        1,
        cleanup_policy="compact",
        segment_ms="1000",
        min_cleanable_dirty_ratio="0.01",
        file_delete_delay_ms="0",
    )
    _write_plain(server, CODECS, start_ms)
    _write_compacted(server, start_ms)
    _write_stamped(server, start_ms)
    _await_cleaning(node)
    node.stop()
    node.start()
    _write_plain(server, CODECS[:2], start_ms + 60_000)
    _write_transactions(server, start_ms)
    commit_offset(server, "readers", "plain", 0, 7)


def _write_plain(server: str, codecs: tuple[str, ...], start_ms: int) -> None:
    for number, codec in enumerate(codecs):
        client = producer(server, compression_type=codec)
        time_ms = start_ms + number * 1000
        send(client, "plain", 0, _mixed(codec, time_ms))
        # Timestamps that fall: an index of times must not.
        send(client, "plain", 0, _row(f"{codec} later", time_ms - 5000, 3))


def _mixed(codec: str, time_ms: int) -> list[NewRecord]:
    return [
        NewRecord(time_ms, f"key of {codec}", f"{codec} " * 20),
        NewRecord(time_ms + 2, None, f"no key, {codec}"),
        NewRecord(time_ms + 1, f"gone in {codec}", None),
        NewRecord(time_ms + 7, None, None, (("empty", ""), ("none", None))),
        NewRecord(time_ms + 3, "", "", (("codec", codec), ("codec", "twice"), ("ü", "ž€"))),
    ]


def _row(text: str, time_ms: int, count: int) -> list[NewRecord]:
    return [NewRecord(time_ms + n, f"{text} {n}", f"{text}, " * 4 + str(n)) for n in range(count)]


def _write_transactions(server: str, start_ms: int) -> None:
    idempotent = producer(server, enable_idempotence=True, compression_type="lz4")
    send(idempotent, "transactions", 0, _row("idempotent", start_ms, 3))
    send(idempotent, "transactions", 0, _row("idempotent again", start_ms + 10, 2))
    first = _transactional(server, "first")
    second = _transactional(server, "second")
    first.begin_transaction()
    second.begin_transaction()
    send(first, "transactions", 0, _row("committed", start_ms + 20, 2))
    send(second, "transactions", 0, _row("aborted", start_ms + 30, 2))
    send(first, "transactions", 0, _row("committed too", start_ms + 40, 2))
    second.abort_transaction(30)
    first.commit_transaction(30)
    second.begin_transaction()
    send(second, "transactions", 0, _row("aborted again", start_ms + 50, 2))
    send(idempotent, "transactions", 0, _row("idempotent between", start_ms + 55, 1))
    second.abort_transaction(30)
    first.begin_transaction()
    send(first, "transactions", 0, _row("left open", start_ms + 60, 2))


def _transactional(server: str, name: str) -> Producer:
    # Five minutes, so that no transaction times out during a test.
    client = producer(server, transactional_id=name, transaction_timeout_ms=300_000)
    client.init_transactions(60)
    return client


def _write_compacted(server: str, start_ms: int) -> None:
    client = producer(server, compression_type="zstd")
    for round_number in range(4):
        time_ms = start_ms + round_number * 5000
        rows = [NewRecord(time_ms + n, f"key {n}", f"round {round_number}") for n in range(5)]
        rows[round_number] = rows[round_number]._replace(value=None)
        send(client, "compacted", 0, rows[: 5 - round_number])


def _write_stamped(server: str, start_ms: int) -> None:
    for codec in ("none", "snappy"):
        send(producer(server, compression_type=codec), "stamped", 0, _mixed(codec, start_ms))


def _await_cleaning(node: KafkaNode) -> None:
    """Wait until Kafka has noted how far the compacted log is clean: all but its last segment."""
    deadline = time.monotonic() + CLEANED_SECONDS_MAX
    while time.monotonic() < deadline:
        if "compacted 0 12\n" in (node.logs / "cleaner-offset-checkpoint").read_text():
            return
        time.sleep(0.1)
    raise AssertionError("the compacted topic was not cleaned")
