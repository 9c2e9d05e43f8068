import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.assignors.assignor import MemberSubscription, PreviousAssignment
from ottla.clients.assignors.group_bytes import (
    decode_generation,
    decode_sticky,
    decode_subscription,
    encode_generation,
    encode_sticky,
    encode_subscription,
)
from ottla.model.identifiers import TopicPartition
from ottla.wire.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.writing import encode
from tests.unit.clients.assignors.groups import named
from tests.unit.clients.assignors.oracle import StickyPartitionAssignor, TheirPartition

SUBSCRIPTION = MemberSubscription(
    topics=("letters", "parcels"),
    user_data=b"anything",
    owned_partitions=tuple(named("letters-0, letters-2, parcels-1")),
    generation_id=7,
    rack_id="a",
    instance_id="by the window",
)


def test_a_subscription_says_the_same_when_it_is_read() -> None:
    assert decode_subscription(encode_subscription(SUBSCRIPTION), "by the window") == SUBSCRIPTION


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_every_version_are_read(version: int) -> None:
    message = ConsumerProtocolSubscription(topics=["letters"], generation_id=4, rack_id="a")
    metadata = version.to_bytes(2, "big") + encode(message, version)
    read = decode_subscription(metadata, None)
    assert read.topics == ("letters",)
    assert read.generation_id == (4 if version >= 2 else -1)
    assert read.rack_id == ("a" if version >= 3 else None)


def test_a_subscription_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    metadata = (9).to_bytes(2, "big") + encode_subscription(SUBSCRIPTION)[2:] + b"later"
    assert decode_subscription(metadata, "by the window") == SUBSCRIPTION


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1"])
def test_what_is_no_subscription_is_refused(metadata: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_subscription(metadata, None)


def test_what_the_sticky_assignor_of_kafka_python_writes_is_read() -> None:
    theirs = StickyPartitionAssignor()
    theirs.member_assignment = [TheirPartition("letters", 0), TheirPartition("letters", 2)]
    theirs.generation = 5
    user_data = theirs.metadata(["letters"]).user_data.encode()
    previous = PreviousAssignment(tuple(named("letters-0, letters-2")), 5)
    assert user_data == b"\0\1" + encode_sticky(previous)
    assert decode_sticky(user_data) == decode_sticky(encode_sticky(previous)) == previous


def test_user_data_of_old_members_has_no_generation() -> None:
    user_data = encode_sticky(PreviousAssignment((TopicPartition("letters", 1),), 5))[:-4]
    assert decode_sticky(user_data) == PreviousAssignment((TopicPartition("letters", 1),), -1)


@given(st.binary(max_size=40) | st.none())
def test_user_data_that_cannot_be_read_says_nothing(user_data: bytes | None) -> None:
    assert isinstance(decode_sticky(user_data), PreviousAssignment)
    assert isinstance(decode_generation(user_data), int)


def test_a_generation_is_four_bytes() -> None:
    assert encode_generation(258) == b"\0\0\1\2"
    assert decode_generation(b"\0\0\1\2") == 258
    assert decode_generation(b"\1") == decode_generation(None) == -1
