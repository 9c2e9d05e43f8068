"""Malformed batches: Ottla refuses the same as Kafka, with the same error code, and some more.

`DIFFERENT` names every difference; the reasons are in decision 0041.
"""

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.clients.malformed_batches import CODECS, MALFORMED, SOUND, Malformed, batch_of, bombs
from tests.clients.plain_socket import produce_request
from tests.clients.raw_requests import RawConnection, ask
from tests.interop.kafka_node import kafka_node

TOPIC: Final = "judged"
TAKEN: Final = ErrorCode.NONE
FAILED: Final = ErrorCode.UNKNOWN_SERVER_ERROR
COMPRESSED: Final = tuple(codec.config_name for codec in CODECS)
ALL: Final = ("none", *COMPRESSED)

_OFFSET_DELTAS: Final = (
    "the same offset delta twice",
    "a gap in the offset deltas",
    "offset deltas that begin at 1",
    "falling offset deltas",
    "a negative offset delta",
    "an offset delta of 32 bits and more",
)
_TAKEN_IN_ANY_CODEC: Final = (
    "a key length of -2",
    "a value length of -2",
    "a header value length of -2",
    "a header key that is not UTF-8",
    "a header key with a surrogate",
)
_TAKEN_IF_COMPRESSED: Final = (
    "a negative record length",
    "a record length past the end",
    "a record length of 2 GiB",
    "a record length that is too short",
)
_UNDECODABLE: Final = ("not compressed at all", "one byte", "cut in half")
DIFFERENT: Final[dict[str, ErrorCode]] = {
    # Kafka checks the offset deltas of compressed batches, and then fails to rewrite the batch.
    **{f"none: {name}": TAKEN for name in _OFFSET_DELTAS},
    **{f"{codec}: {name}": FAILED for codec in COMPRESSED for name in _OFFSET_DELTAS},
    **{f"{codec}: {name}": TAKEN for codec in ALL for name in _TAKEN_IN_ANY_CODEC},
    # It skips keys, values and headers of compressed records without comparing the lengths.
    **{f"{codec}: {name}": TAKEN for codec in COMPRESSED for name in _TAKEN_IF_COMPRESSED},
    **{f"{codec}: {name}": FAILED for codec in COMPRESSED for name in _UNDECODABLE},
    **{f"{codec}: no bytes": FAILED for codec in ("gzip", "snappy", "lz4")},
    **{f"{codec}: flipped bits": FAILED for codec in ("gzip", "snappy", "zstd")},
    **{f"{codec}: bytes behind the end": TAKEN for codec in ("gzip", "snappy", "lz4")},
    "zstd: bytes behind the end": FAILED,
    "gzip: in fact snappy": FAILED,
    **{f"{codec}: in fact gzip": FAILED for codec in ("snappy", "lz4", "zstd")},
    "none: a record length of six bytes": FAILED,
    **{f"codec {number}": FAILED for number in (5, 6, 7)},
    "a delete horizon": TAKEN,
    "LogAppendTime": TAKEN,
    "a producer without an epoch": TAKEN,
    "a byte after the batch": TAKEN,
}
"""Kafka's error codes where they differ from Ottla's."""

Ask = Callable[[bytes], ErrorCode]


def asking(servers: str) -> Ask:
    """Create the topic; return a function that produces a batch and returns the error code."""
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=20_000)
    (made,) = ask(servers, ApiKey.CREATE_TOPICS, 7, request).topics
    assert made.error_code == 0

    def produce(batch: bytes) -> ErrorCode:
        with RawConnection(servers) as connection:
            answer = connection.ask(ApiKey.PRODUCE, 9, produce_request(TOPIC, batch))
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    while produce(batch_of(SOUND)) is not ErrorCode.NONE:
        pass  # Kafka responds to CreateTopics before the partition has a leader
    return produce


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    with kafka_node(tmp_path_factory.mktemp("kafka")) as node:
        yield asking(node.start().bootstrap_server)


@pytest.fixture(scope="module")
def ottla() -> Iterator[Ask]:
    with Broker() as broker:
        yield asking(broker.bootstrap_servers)


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case.name)
def test_malformed_batches_are_refused_as_by_kafka(kafka: Ask, ottla: Ask, case: Malformed) -> None:
    assert ottla(case.batch) is case.code
    assert kafka(case.batch) is DIFFERENT.get(case.name, case.code)


def test_every_difference_is_a_case() -> None:
    codes = {case.name: case.code for case in MALFORMED}
    assert all(codes[name] is not theirs for name, theirs in DIFFERENT.items())


def test_kafka_takes_bombs(kafka: Ask, ottla: Ask) -> None:
    for case in bombs():
        assert (kafka(case.batch), ottla(case.batch)) == (TAKEN, ErrorCode.INVALID_RECORD)
