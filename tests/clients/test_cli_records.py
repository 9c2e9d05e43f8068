"""`ottla produce` and `ottla consume`, as processes against a real broker."""

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from ottla.testing import Broker
from tests.clients.cli_calls import OTTLA, SECONDS_MAX, call, lines_of_json, refused, rows, text
from tests.clients.cli_server import STDIN_BYTES_MAX


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def test_lines_go_in_and_come_out(brokers: str) -> None:
    call("produce", "lines", brokers=brokers, stdin="Dearest Ottla\nZürau\nno end".encode())
    assert text("consume", "lines", brokers=brokers) == "Dearest Ottla\nZürau\nno end\n"


def test_keys_headers_and_tombstones_go_in_and_come_out(brokers: str) -> None:
    form = ("-f", "%k:%h:%v\\n", "-H", "from:Prague", "-Z")
    call("produce", "parts", *form, brokers=brokers, stdin=b"a:x=1,y=2:one\nb::\n")
    first, second = lines_of_json(text("consume", "parts", "-f", "json", brokers=brokers))
    assert (first["key"], first["value"], first["offset"]) == ("a", "one", 0)
    assert [(header["key"], header["value"]) for header in first["headers"]] == [
        ("x", "1"),
        ("y", "2"),
        ("from", "Prague"),
    ]
    assert (second["key"], second["value"]) == ("b", None)


def test_what_consume_writes_as_json_produce_reads_as_json(brokers: str) -> None:
    call("produce", "first", "-f", "%k\\t%v\\n", brokers=brokers, stdin=b"k\tv\n\xff\t\xfe\n")
    written = text("consume", "first", "-f", "json", brokers=brokers)
    call("produce", "second", "-f", "json", brokers=brokers, stdin=written.encode())
    shown = call("consume", "second", "-f", "%p %o %k %v %T\\n", brokers=brokers).stdout
    assert shown == call("consume", "first", "-f", "%p %o %k %v %T\\n", brokers=brokers).stdout
    assert b"\xff \xfe" in shown


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read_by_another_client(brokers: str, codec: str) -> None:
    topic = f"compressed-{codec}"
    call("produce", topic, "-z", codec, brokers=brokers, stdin=b"letter\n" * 100)
    consumer = Consumer(
        {"bootstrap.servers": brokers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    received = [message.value() for message in consumer.consume(100, SECONDS_MAX)]
    consumer.close()
    assert received == [b"letter"] * 100


def test_places_in_a_topic_say_what_is_read(brokers: str) -> None:
    call("produce", "places", "-f", "%T %v\\n", brokers=brokers, stdin=b"1000 a\n2000 b\n3000 c\n")

    def read(*arguments: str) -> str:
        return text("consume", "places", "-f", "%v", *arguments, brokers=brokers)

    assert read("--from", "1") == "bc"
    assert read("--from", "-1") == "c"
    assert read("--from", "+1", "--to", "2") == "b"
    assert read("--from", "@1500") == "bc"
    assert read("--to", "@1970-01-01T00:00:03") == "ab"
    assert read("-n", "2") == "ab"
    assert read("--from", "end") == ""


def test_a_partition_can_be_chosen_on_both_sides(brokers: str) -> None:
    call("topic", "create", "split", "-p", "3", brokers=brokers)
    call("produce", "split", "-p", "2", brokers=brokers, stdin=b"two\n")
    call("produce", "split", "-p", "0", brokers=brokers, stdin=b"zero\n")
    assert text("consume", "split", "-p", "2", brokers=brokers) == "two\n"
    assert "there is no 7" in refused("consume", "split", "-p", "7", brokers=brokers)
    assert "there is no 7" in refused("produce", "split", "-p", "7", brokers=brokers, stdin=b"x\n")


def test_a_key_chooses_the_partition_that_other_clients_choose(brokers: str) -> None:
    call("topic", "create", "keyed", "-p", "12", brokers=brokers)
    call("produce", "keyed", "-f", "%k %v\\n", brokers=brokers, stdin=b"21 v\nfoobar v\n")
    shown = text("consume", "keyed", "-f", "%k %p\\n", brokers=brokers).splitlines()
    # Kafka's own hashes of these keys are -973932308 and -790332482.
    assert sorted(shown) == sorted(
        f"{key} {(hashed & 0x7FFFFFFF) % 12}"
        for key, hashed in (("21", -973932308), ("foobar", -790332482))
    )


def test_a_follower_sees_what_comes_later_and_stops_at_ctrl_c(brokers: str) -> None:
    call("topic", "create", "followed", "-p", "1", brokers=brokers)
    follower = subprocess.Popen(
        [*OTTLA, "consume", "followed", "--follow", "-b", brokers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert follower.stdout is not None
    call("produce", "followed", brokers=brokers, stdin=b"later\n")
    assert follower.stdout.readline() == b"later\n"
    follower.send_signal(signal.SIGINT)
    _, said = follower.communicate(timeout=SECONDS_MAX)
    assert (follower.returncode, said) == (130, b"")


def test_a_line_is_sent_before_the_input_ends(brokers: str) -> None:
    producer = subprocess.Popen(
        [*OTTLA, "produce", "typed", "-v", "-b", brokers],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert producer.stdin is not None
    assert producer.stderr is not None
    producer.stdin.write(b"first\n")
    producer.stdin.flush()
    assert b"1 records to typed-0 from offset 0" in producer.stderr.readline()
    assert text("consume", "typed", brokers=brokers) == "first\n"
    producer.communicate(timeout=SECONDS_MAX)
    assert producer.returncode == 0


def test_a_reader_that_has_had_enough_is_no_error_message(brokers: str) -> None:
    for _ in range(2):  # Both together exceed the capacity of the pipe to the reader.
        call("produce", "many", brokers=brokers, stdin=b"y\n" * (STDIN_BYTES_MAX // 2))
    reader, writer = os.pipe()
    consumer = subprocess.Popen(
        [*OTTLA, "consume", "many", "-b", brokers], stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    os.read(reader, 10)
    os.close(reader)
    _, said = consumer.communicate(timeout=SECONDS_MAX)
    assert said == b""


def test_input_that_does_not_fit_its_format_names_the_record(brokers: str) -> None:
    sentence = refused("produce", "odd", "-f", "%k:%v\\n", brokers=brokers, stdin=b"a:b\nc\n")
    assert sentence == "record 2: %k is not followed by ':'"
    assert text("consume", "odd", "-f", "%k", brokers=brokers) == "a"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b'{"key": "a", "vlaue": "b"}', "a record has no field 'vlaue'"),
        (b"{}", "neither a key nor a value"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both given"),
        (b'{"value": "a", "headers": "b"}', "headers are an object, or a list"),
        (b'{"value": "a", "headers": [{"key": "b", "vlaue": "c"}]}', "a header has no field"),
    ],
)
def test_a_json_record_with_a_wrong_field_is_not_sent(brokers: str, line: bytes, word: str) -> None:
    call("topic", "create", "misspelt", "--if-not-exists", brokers=brokers)
    sentence = refused("produce", "misspelt", "-f", "json", brokers=brokers, stdin=line)
    assert sentence.startswith("record 1: ")
    assert word in sentence
    assert text("consume", "misspelt", brokers=brokers) == ""


def test_json_headers_are_an_object_or_a_list(brokers: str) -> None:
    headers = b'{"a": "1", "a_base64": "MQ==", "b": null, "c": {"d": 2}}'
    line = b'{"value": "v", "headers": %b}\n' % headers
    listed = b'{"value": "v", "headers": [{"key": "a", "value_base64": "MQ=="}]}\n'
    call("produce", "headed", "-f", "json", brokers=brokers, stdin=line + listed)
    first, second = lines_of_json(text("consume", "headed", "-f", "json", brokers=brokers))
    assert [(header["key"], header["value"]) for header in first["headers"]] == [
        ("a", "1"),
        ("a_base64", "MQ=="),
        ("b", None),
        ("c", '{"d": 2}'),
    ]
    assert second["headers"] == [{"key": "a", "value": "1"}]


def test_records_name_their_topics_themselves_where_none_is_given(brokers: str) -> None:
    call("produce", "-f", "%t %v\\n", brokers=brokers, stdin=b"left a\nright b\n")
    assert text("consume", "left", "right", "-f", "%t=%v ", brokers=brokers) == "left=a right=b "
    assert "%t" in refused("produce", brokers=brokers, expect=2)


def test_a_record_that_is_too_large_is_refused(brokers: str) -> None:
    call("topic", "create", "small", "-c", "max.message.bytes=1000", brokers=brokers)
    sentence = refused("produce", "small", brokers=brokers, stdin=b"x" * 2000)
    assert "max.message.bytes" in sentence


def test_the_load_generator_tells_rates_and_percentiles(brokers: str) -> None:
    load = ("bench", "produce", "load", "-n", "2000", "-s", "50", "--batch-bytes", "4096")
    produced = rows(*load, brokers=brokers)
    assert produced["records"] == 2000
    assert all(key.isidentifier() for key in produced), produced
    assert produced["records_per_s"] > 0
    assert 0 < produced["p50_ms"] <= produced["p99_9_ms"] <= produced["max_ms"]
    assert rows("bench", "consume", "load", brokers=brokers)["records"] == 2000


def test_records_of_open_and_aborted_transactions_are_left_out_unless_asked_for(
    brokers: str,
) -> None:
    call("topic", "create", "exact", "-p", "1", brokers=brokers)
    producer = Producer({"bootstrap.servers": brokers, "transactional.id": "exact"})
    producer.init_transactions(SECONDS_MAX)
    for value, end in (("kept", producer.commit_transaction), ("lost", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce("exact", value)
        producer.flush(SECONDS_MAX)
        end(SECONDS_MAX)
    done = call("consume", "exact", brokers=brokers)
    assert (done.stdout, done.stderr) == (b"kept\n", b"")
    producer.begin_transaction()
    producer.produce("exact", "open")
    producer.flush(SECONDS_MAX)
    for option in ((), ("--read-committed",)):
        done = call("consume", "exact", *option, brokers=brokers)
        assert done.stdout == b"kept\n"
        assert done.stderr == (
            b"ottla: exact-0 has an open transaction: records from offset 4 on are left out, "
            b"and --read-uncommitted shows them\n"
        )
    done = call("consume", "exact", "--read-uncommitted", brokers=brokers)
    assert (done.stdout, done.stderr) == (b"kept\nlost\nopen\n", b"")
    producer.abort_transaction(SECONDS_MAX)


def test_records_are_copied_into_a_topic_with_fewer_partitions(brokers: str) -> None:
    call("topic", "create", "wide", "-p", "3", brokers=brokers)
    call("topic", "create", "narrow", "-p", "1", brokers=brokers)
    call("produce", "wide", "-f", "%p:%k:%v\\n", brokers=brokers, stdin=b"2:a:x\n0:b:y\n")
    written = text("consume", "wide", "-f", "json", brokers=brokers).encode()
    assert "there is no 2" in refused(
        "produce", "narrow", "-f", "json", brokers=brokers, stdin=written
    )
    call("produce", "narrow", "-f", "json", "--ignore-partition", brokers=brokers, stdin=written)
    shown = text("consume", "narrow", "-f", "%p %k %v\\n", brokers=brokers)
    assert sorted(shown.splitlines()) == ["0 a x", "0 b y"]
    assert "give only one" in refused(
        "produce", "narrow", "-p", "0", "--ignore-partition", brokers=brokers, expect=2
    )
