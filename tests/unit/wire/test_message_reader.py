"""The compiled reader: it reads valid input, and leaves every unusual case to its fallback."""

import gc
import sys
import weakref
from typing import Any

import pytest

from ottla.wire import reading
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import (
    BUDGET_FLOOR_BYTES,
    BUDGET_MULTIPLE,
    compiled_reader_for,
    decode,
    read,
    reader_for,
)
from ottla.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    octets,
    record_batches,
    string,
    struct,
    uint16,
    uuid,
)
from ottla.wire.writing import encode
from tests.reader_twins import Twins, exactly

OLD, FLEXIBLE = 0, 1


class Stamp(Struct):
    price: int = int16()
    motif: str | None = string(default=None, nullable_since=0)


class Letter(Message, versions=(0, 1), flexible_since=1):
    """One field of every kind."""

    is_express: bool = boolean()
    tiny: int = int8()
    short: int = int16()
    unsigned: int = uint16()
    number: int = int32()
    long: int = int64()
    weight: float = float64()
    letter_id: bytes = uuid()
    text: str = string()
    seal: bytes = octets()
    batches: Any = record_batches(nullable_since=0)
    stamp: Stamp = struct(Stamp)
    spare: Stamp | None = struct(Stamp, nullable_since=0)
    stamps: list[Stamp] = array(Stamp)
    flags: list[bool] = array("bool")
    sizes: list[int] = array("uint16")
    weights: list[float] = array("float64")
    names: list[str] = array("string")
    seals: list[bytes] = array("bytes")
    letter_ids: list[bytes] | None = array("uuid", nullable_since=0)
    later: list[int] = array("int32", since=2)
    latest: Stamp = struct(Stamp, since=2)


class Note(Message, versions=(0, 1), flexible_since=1):
    text: str = string()


class Notes(Message, versions=(0, 1), flexible_since=1):
    texts: list[str] = array("string")


class Sheet(Message, versions=(0, 1), flexible_since=1):
    stamps: list[Stamp] = array(Stamp)


class Numbers(Message, versions=(0, 1), flexible_since=1):
    numbers: list[int] | None = array("int64", nullable_since=1)


class Envelope(Message, versions=(0, 1), flexible_since=1):
    stamp: Stamp | None = struct(Stamp, nullable_since=0)


FULL = Letter(
    is_express=True,
    tiny=-(1 << 7),
    short=-(1 << 15),
    unsigned=(1 << 16) - 1,
    number=-(1 << 31),
    long=-(1 << 63),
    weight=-0.1,
    letter_id=bytes(range(16)),
    text="Zürau",
    seal=b"\xff\0",
    batches=b"batch",
    stamp=Stamp(price=-1, motif=""),
    spare=Stamp(price=1, motif="x" * 300),
    stamps=[Stamp(), Stamp(motif="é")],
    flags=[True, False],
    sizes=[0, 65_535],
    weights=[float("inf"), -0.0],
    names=["", "Felice"],
    seals=[b"", b"\0"],
    letter_ids=[bytes(16)],
)
each_version = pytest.mark.parametrize("version", [OLD, FLEXIBLE])


def compiled(cls: type[Message], version: int) -> Any:
    """Return the compiled reader; without a compiler there is only the fallback."""
    return compiled_reader_for(cls, version) or reader_for(cls, version).function


def is_left_to_the_twin(cls: type[Message], version: int, view: Any, position: int = 0) -> bool:
    reader = compiled_reader_for(cls, version)
    return reader is None or reader(view, position) is None


@each_version
@pytest.mark.parametrize("value", [FULL, Letter()], ids=["full", "empty"])
def test_every_kind_of_field_is_read(version: int, value: Letter) -> None:
    raw = encode(value, version)
    assert Twins(Letter, version).both_read(raw)
    assert compiled(Letter, version)(memoryview(raw), 0) == (value, len(raw))


@each_version
def test_a_message_that_ends_too_early_is_left_to_the_twin_wherever_it_ends(version: int) -> None:
    raw = encode(FULL, version)
    for size in range(len(raw)):
        assert is_left_to_the_twin(Letter, version, memoryview(raw)[:size])
        assert Twins(Letter, version).agree_on(raw[:size])


@pytest.mark.parametrize(
    ("cls", "version", "raw"),
    [
        (Note, FLEXIBLE, b"\0\0"),  # null
        (Note, OLD, b"\xff\xff"),
        (Note, OLD, b"\xff\xfe"),  # a negative length
        (Note, OLD, b"\x7f\xffab"),  # a length past the end
        (Note, FLEXIBLE, b"\xff\xff\xff\xff\x0fab\0"),
        (Note, FLEXIBLE, b"\x81\x80\x80\x80\x10\0"),  # lengths of more than 32 bits
        (Note, FLEXIBLE, b"\x81\x80\x80\x80\x80\0\0"),
        (Note, FLEXIBLE, b"\x03\xc3\x28\0"),  # no UTF-8
        (Note, FLEXIBLE, b"\x04\xed\xa0\x80\0"),  # a lone surrogate
        (Note, FLEXIBLE, b"\x01\x01\x07\x01x"),  # a tagged field
        (Note, FLEXIBLE, b"\x01\x80\0"),  # no tagged field, in two bytes
        (Numbers, OLD, b"\xff\xff\xff\xff"),  # null
        (Numbers, FLEXIBLE, b"\x02" + bytes(7)),
        (Numbers, FLEXIBLE, b"\xff\xff\xff\xff\x0f\0"),
        (Numbers, OLD, b"\x7f\xff\xff\xff" + bytes(8)),
        (Notes, FLEXIBLE, b"\x02\0\0"),  # null in an array
        (Notes, FLEXIBLE, b"\xff\xff\xff\xff\x0f\0"),
        (Notes, OLD, b"\x7f\xff\xff\xff"),
        (Envelope, OLD, b"\x02\0\0\xff\xff"),  # neither null nor a structure
        (Envelope, OLD, b"\0\0\0\xff\xff"),
        (Envelope, OLD, b"\xfe"),
        (Envelope, OLD, b"\x01\0\0\xff\xfe"),  # a negative length where null is allowed
        (Envelope, FLEXIBLE, b""),
    ],
)
def test_odd_bytes_are_left_to_the_twin(cls: type[Message], version: int, raw: bytes) -> None:
    assert is_left_to_the_twin(cls, version, memoryview(raw))
    assert Twins(cls, version).agree_on(raw)


@pytest.mark.parametrize(
    ("cls", "version", "raw"),
    [
        (Note, FLEXIBLE, b"\x83\x80\x80\x80\0ab\0"),  # lengths may be longer than they must be
        (Numbers, FLEXIBLE, b"\0\0"),
        (Envelope, FLEXIBLE, b"\xff\0"),
        (Envelope, OLD, b"\x01\0\0\xff\xff"),
        (Letter, OLD, b"\x07" + encode(Letter(), OLD)[1:]),  # every byte but zero is true
    ],
)
def test_rare_but_sound_bytes_are_read(cls: type[Message], version: int, raw: bytes) -> None:
    assert Twins(cls, version).both_read(raw)


@pytest.mark.parametrize(
    ("cls", "item", "item_bytes"), [(Notes, b"\x01", 80), (Sheet, b"\0\0\0\0", 176)]
)
def test_the_budget_is_the_same_to_the_last_item(
    cls: type[Message], item: bytes, item_bytes: int
) -> None:
    count = 1
    around = 4  # three bytes of count, one of tags
    while budget(around + len(item) * (count + 1)) >= item_bytes * (count + 1):
        count += 1
    assert Twins(cls, FLEXIBLE).both_read(crowd(item, count))
    too_many = crowd(item, count + 1)
    assert is_left_to_the_twin(cls, FLEXIBLE, memoryview(too_many))
    # Bytes before the message do not add to its budget.
    assert is_left_to_the_twin(cls, FLEXIBLE, memoryview(bytes(1000) + too_many), 1000)
    with pytest.raises(ProtocolError, match=f"{count + 1} items claimed"):
        decode(cls, FLEXIBLE, memoryview(too_many))


def budget(frame_bytes: int) -> int:
    return BUDGET_FLOOR_BYTES + BUDGET_MULTIPLE * frame_bytes


def crowd(item: bytes, count: int) -> bytes:
    claim = count + 1
    varint = bytes([claim & 0x7F | 0x80, claim >> 7 & 0x7F | 0x80, claim >> 14])
    return varint + item * count + b"\0"


@each_version
def test_a_message_in_the_middle_of_a_buffer_is_read(version: int) -> None:
    raw = encode(FULL, version)
    frame = memoryview(b"header" + raw + b"more")
    assert read(Letter, version, frame, 6) == (FULL, 6 + len(raw))
    assert compiled(Letter, version)(frame, 6) == (FULL, 6 + len(raw))
    with pytest.raises(ProtocolError, match=f"4 bytes follow Letter v{version}"):
        decode(Letter, version, frame, 6)


@pytest.mark.parametrize("position", [-2, 3, sys.maxsize, -sys.maxsize - 1])
def test_a_position_outside_the_buffer_is_left_to_the_twin(position: int) -> None:
    view = memoryview(b"\x01\0\x01\0")[2:]  # another note precedes it
    assert is_left_to_the_twin(Note, FLEXIBLE, view, position)


def test_only_plain_views_of_bytes_are_read() -> None:
    raw = encode(Note(text="a note"), FLEXIBLE)
    released = memoryview(raw)
    released.release()
    views = [raw, bytearray(raw), memoryview(raw)[::-1], memoryview(raw * 2)[::2], released]
    views += [memoryview(raw).cast(other) for other in ("b", "c")]
    views += [memoryview(raw * 4).cast("i"), memoryview(raw * 4).cast("B", (4, len(raw)))]
    for view in views:
        assert is_left_to_the_twin(Note, FLEXIBLE, view)


@each_version
def test_record_batches_are_a_part_of_the_view_that_was_given(version: int) -> None:
    frame = bytearray(encode(FULL, version))
    message, _ = compiled(Letter, version)(memoryview(frame), 0)
    assert message.batches.obj is frame
    message.batches[:] = b"BATCH"
    assert b"BATCH" in frame
    message, _ = compiled(Letter, version)(memoryview(frame).toreadonly(), 0)
    assert message.batches.readonly


def test_record_batches_keep_the_frame_alive_and_nothing_else_does() -> None:
    frame = bytearray(encode(FULL, FLEXIBLE))
    message = decode(Letter, FLEXIBLE, memoryview(frame))
    with pytest.raises(BufferError):
        frame.clear()
    kept = message.batches
    del message
    assert bytes(kept) == b"batch"
    del kept
    frame.clear()
    assert frame == b""


@pytest.mark.parametrize("raw", [b"\x03ab\0", b"\x03ab", b"\x03\xff\xff\0", b"\x03ab\x01\x07\0"])
def test_the_buffer_is_released_after_success_and_failure(raw: bytes) -> None:
    frame = bytearray(raw)
    compiled_reader = compiled_reader_for(Note, FLEXIBLE) or (lambda *_: None)
    compiled_reader(memoryview(frame), 0)
    frame.append(0)


def test_defaults_are_made_anew_for_each_message() -> None:
    raw = memoryview(encode(Letter(), FLEXIBLE))
    one, other = (compiled(Letter, FLEXIBLE)(raw, 0)[0] for _ in range(2))
    assert one == other == Letter()
    assert one.later is not other.later
    assert one.latest is not other.latest
    assert one.unknown_tags is None


def test_tagged_fields_come_out_as_the_twin_reads_them() -> None:
    note = Note(text="a")
    note.unknown_tags = {7: b"x"}
    raw = memoryview(encode(note, FLEXIBLE))
    assert is_left_to_the_twin(Note, FLEXIBLE, raw)
    assert exactly(decode(Note, FLEXIBLE, raw)) == exactly(note)


def test_a_hundred_thousand_messages_leave_nothing_behind() -> None:
    partition = PartitionProduceData(index=1 << 20, records=b"batch")
    produce = ProduceRequest(
        transactional_id="castle",
        topic_data=[TopicProduceData(name="orders", partition_data=[partition])],
    )
    fetch = FetchRequest(topics=[FetchTopic(topic="orders", partitions=[FetchPartition()] * 3)])
    letters = [encode(FULL, version) for version in (OLD, FLEXIBLE)]
    work = [
        (compiled(ProduceRequest, 9), encode(produce, 9)),
        (compiled(FetchRequest, 12), encode(fetch, 12)),
        *((compiled(Letter, version), raw) for version, raw in enumerate(letters)),
    ]
    views = [(reader, memoryview(raw)) for reader, raw in work]
    views += [(compiled_reader_for(Letter, v), memoryview(letters[v])) for v in (OLD, FLEXIBLE)]
    before = _blocks_after(views, rounds=100)
    assert _blocks_after(views, rounds=25_000) < before + 100


def _blocks_after(views: list[tuple[Any, memoryview]], rounds: int) -> int:
    """Return the number of memory blocks in use after reading valid and truncated messages."""
    *sound, old, flexible = views
    for _ in range(rounds):
        for reader, view in sound:
            reader(view, 0)
    for reader, view in (old, flexible):
        for size in range(len(view) if reader else 0):
            reader(view[:size], 0)
    gc.collect()
    return sys.getallocatedblocks()


def test_references_are_counted_right() -> None:
    default = " ".join(["a text", "that is", "not shared"])

    class Diary(Message, versions=(0, 0)):
        owner: str = string(default=default, since=1)
        pages: list[str] = array("string")

    raw = memoryview(encode(Diary(pages=["Monday"]), 0))
    reader = compiled(Diary, 0)
    reader(raw, 0)
    before = sys.getrefcount(default), sys.getrefcount(Diary), sys.getrefcount(raw)
    kept = [reader(raw, 0)[0] for _ in range(10)]
    assert sys.getrefcount(default) == before[0] + 10
    del kept
    assert (sys.getrefcount(default), sys.getrefcount(Diary), sys.getrefcount(raw)) == before


def test_an_unreferenced_class_is_freed_with_its_readers() -> None:
    class Draft(Message, versions=(0, 0)):
        stamp: Stamp = struct(Stamp)

    reader = compiled_reader_for(Draft, 0)
    Draft.readers[0] = reader
    assert reader is None or reader(memoryview(b"\0\0\xff\xff"), 0) == (Draft(), 4)
    gone = weakref.ref(Draft)
    del Draft, reader
    gc.collect()
    assert gone() is None


@each_version
def test_without_the_extension_the_twin_reads_everything(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_compiled", None)
    monkeypatch.setattr(Letter, "readers", {})
    assert compiled_reader_for(Letter, version) is None
    assert decode(Letter, version, memoryview(encode(FULL, version))) == FULL
    assert Letter.readers == {version: reader_for(Letter, version).function}


def test_a_version_that_does_not_exist_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="Letter has no version 2"):
        decode(Letter, 2, memoryview(b""))


def test_structures_that_cannot_be_filled_are_our_own_mistake() -> None:
    if reading._compiled is None:  # the fallback fills no structures
        return
    make = reading._compiled.StructReader
    for cls, step in [
        (int, ("real", "int8", False, False, 0, None)),
        (Note, ("__class__", "int8", False, False, 0, None)),
        (Note, ("__init__", "int8", False, False, 0, None)),
        (Note, ("text", "struct", False, False, 0, None)),
        (Note, ("text", "struct", False, False, 0, Stamp)),
    ]:
        with pytest.raises(AssertionError):
            make(cls, (step,))


def test_numbers_are_big_endian() -> None:
    raw = b"\0\0\0\2" + bytes(7) + b"\1" + b"\xff" * 7 + b"\xfe"
    assert compiled(Numbers, OLD)(memoryview(raw), 0)[0].numbers == [1, -2]
