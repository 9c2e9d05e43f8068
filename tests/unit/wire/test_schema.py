"""Messages: one class for every version."""

import pytest

from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import decode
from ottla.wire.schema import Message, Struct, array, int32, int64, octets, string, struct
from ottla.wire.writing import UnwritableError, encode


class Leader(Struct):
    broker: int = int32(default=-1)
    epoch: int = int32(default=-1)


class Part(Struct):
    index: int = int32()
    note: str | None = string(default=None, since=2, nullable_since=2)
    offset: int = int64(default=-1, until=3)


class Sample(Message, versions=(0, 5), flexible_since=4):
    group: str = string()
    generation: int = int32(default=-1, since=1)
    hint: str = string(since=3, ignorable=True)
    parts: list[Part] | None = array(Part, nullable_since=1)
    payload: bytes = octets()
    leader: Leader | None = struct(Leader, since=4, tag=0)
    lag: int = int64(default=0, since=5, tag=1)


def through(value: Sample, version: int) -> Sample:
    return decode(Sample, version, memoryview(encode(value, version)))


def test_every_field_has_a_default_and_lists_are_not_shared() -> None:
    first, second = Sample(), Sample()
    first.parts = [*(first.parts or ()), Part(index=1)]
    assert second == Sample(
        group="", generation=-1, hint="", parts=[], payload=b"", leader=None, lag=0
    )


def test_a_field_absent_in_an_old_version_comes_back_as_its_default() -> None:
    assert through(Sample(group="g", payload=b"p"), 0) == Sample(group="g", payload=b"p")


def test_a_field_that_a_version_dropped_is_not_on_the_wire() -> None:
    with pytest.raises(UnwritableError, match=r"Sample v3, parts\[\].offset: .* given 7"):
        encode(Sample(parts=[Part(offset=7)]), 3)
    assert through(Sample(parts=[Part(offset=7)]), 2).parts == [Part(offset=7)]


def test_a_value_that_a_version_cannot_carry_is_refused_unless_it_may_be_ignored() -> None:
    with pytest.raises(UnwritableError, match=r"Sample v0, generation: .* given 4"):
        encode(Sample(generation=4), 0)
    assert through(Sample(hint="near"), 2).hint == ""


def test_null_is_carried_where_the_version_allows_it_and_refused_where_not() -> None:
    assert through(Sample(parts=None), 1).parts is None
    with pytest.raises(UnwritableError, match="Sample v0, parts"):
        encode(Sample(parts=None), 0)


def test_a_number_that_does_not_fit_names_its_field() -> None:
    with pytest.raises(UnwritableError, match=r"Sample v1, generation"):
        encode(Sample(generation=1 << 40), 1)


def test_text_that_is_too_long_for_any_version_names_its_field() -> None:
    with pytest.raises(UnwritableError, match="Sample v4, group: 32768 bytes of text"):
        encode(Sample(group="x" * 32768), 4)
    with pytest.raises(UnwritableError, match="Sample v0, group"):
        encode(Sample(group="x" * 32768), 0)


def test_a_default_tagged_field_takes_no_bytes() -> None:
    plain = encode(Sample(), 5)
    assert plain == b"\x01\xff\xff\xff\xff\x01\x01\x01\x00"
    assert encode(Sample(lag=0, leader=None), 5) == plain
    assert len(encode(Sample(lag=1), 5)) == len(plain) + 2 + 8


def test_tagged_fields_are_written_in_the_order_of_their_tags() -> None:
    value = Sample(lag=9, leader=Leader(broker=1, epoch=2))
    value.unknown_tags = {7: b"seven"}
    raw = encode(value, 5)
    assert raw.endswith(
        b"\x03"
        + b"\x00\x09" + b"\x00\x00\x00\x01\x00\x00\x00\x02\x00"
        + b"\x01\x08" + b"\x00\x00\x00\x00\x00\x00\x00\x09"
        + b"\x07\x05seven"
    )  # fmt: skip
    assert through(value, 5) == value


def test_tags_of_a_later_release_are_kept_and_written_back() -> None:
    value = Sample(parts=[Part(index=3)])
    value.unknown_tags = {300: b"later"}
    value.parts[0].unknown_tags = {0: b""}  # type: ignore[index]
    assert through(value, 4) == value


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (b"\x01\xff\xff\xff\xff\x01\x01\x01\x02\x01\x08" + bytes(10), "tag 0 after tag 1"),
        (b"\x01\xff\xff\xff\xff\x01\x01\x01\x01\x00\x09\x00", "tag 0 claims 9 bytes, 1 are left"),
        (b"\x01\xff\xff\xff\xff\x01\x01\x01\x01\x01\x09" + bytes(9), "tag 1 does not end"),
    ],
)
def test_a_broken_tag_section_is_refused(damage: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode(Sample, 5, memoryview(damage))


def test_a_message_shows_its_fields() -> None:
    assert repr(Part(index=1)) == "Part(index=1, note=None, offset=-1)"


def test_messages_of_different_classes_are_never_equal() -> None:
    assert Leader() != Part()
