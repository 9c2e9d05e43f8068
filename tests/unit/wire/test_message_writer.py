"""The compiled writer: it writes valid values, and leaves every unusual case to its fallback."""

import gc
import sys
import weakref
from typing import Any

import pytest

from ottla.model.error_code import ErrorCode
from ottla.wire import writing
from ottla.wire.coordinator_records.transaction_state import PartitionsSchema, TransactionLogValue
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
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
from ottla.wire.writing import (
    COPIED_BYTES_MAX,
    STRING_BYTES_MAX,
    UnwritableError,
    compiled_writer_for,
    encode,
    encode_if_small,
)
from tests.writer_twins import ODD, Number, Octets, SliceOfAFile, Text, Twins

OLD, FLEXIBLE = 0, 1


class Stamp(Struct):
    price: int = int16()
    motif: str | None = string(default=None, nullable_since=0)


class SpecialStamp(Stamp):
    """A structure similar to a stamp, of another class."""


class Letter(Message, versions=(0, 1), flexible_since=1):
    """One field of every kind, and some that these versions lack."""

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
    later: int = int32(default=-1, since=2)
    later_text: str = string(default="soon", since=2)
    later_note: str | None = string(default=None, since=2)
    later_numbers: list[int] = array("int32", since=2)
    later_seals: list[bytes] | None = array("bytes", since=2, nullable_since=0)
    whenever: str = string(since=2, ignorable=True)


class Label(Message, versions=(0, 0), flexible_since=0):
    """Tagged fields of every kind. The tags are not in order, and one tag is long."""

    is_fragile: bool = boolean(tag=300)
    number: int = int64(default=-1, tag=0)
    weight: float = float64(default=0.5, tag=2)
    letter_id: bytes = uuid(tag=1)
    text: str | None = string(default="none", nullable_since=0, tag=3)
    seal: bytes = octets(tag=4)
    batches: Any = record_batches(nullable_since=0, tag=5)
    stamp: Stamp | None = struct(Stamp, tag=6)
    stamps: list[Stamp] | None = array(Stamp, nullable_since=0, tag=7)
    sizes: list[int] = array("uint16", tag=8)


class Note(Message, versions=(0, 1), flexible_since=1):
    text: str = string()


class Sheet(Message, versions=(0, 1), flexible_since=1):
    stamps: list[Stamp] = array(Stamp)


class Parcel(Message, versions=(0, 1), flexible_since=1):
    """A structure that is compared with an empty one."""

    stamp: Stamp | None = struct(Stamp, nullable_since=1, tag=0, since=1)


class Ticket(Message, versions=(0, 0)):
    """A number that cannot be null, in spite of its declaration."""

    number: int = int32(nullable_since=0)


class Blank(Message, versions=(0, 0)):
    """Nothing is on the wire."""


def letter(**values: Any) -> Letter:
    """Return a letter with all fields set; `values` override the defaults."""
    full = {
        "is_express": True,
        "tiny": -(1 << 7),
        "short": -(1 << 15),
        "unsigned": (1 << 16) - 1,
        "number": -(1 << 31),
        "long": -(1 << 63),
        "weight": -0.1,
        "letter_id": bytes(range(16)),
        "text": "Zürau",
        "seal": b"\xff\0",
        "batches": b"batch",
        "stamp": Stamp(price=-1, motif=""),
        "spare": Stamp(price=1, motif="x" * 300),
        "stamps": [Stamp(), Stamp(motif="é")],
        "flags": [True, False],
        "sizes": [0, 65_535],
        "weights": [float("inf"), -0.0, float("nan")],
        "names": ["", "Felice"],
        "seals": [b"", b"\0"],
        "letter_ids": [bytes(16)],
        "whenever": "some day",
    }
    return Letter(**{**full, **values})


LABELS = [
    {"is_fragile": True},
    {"number": 7},
    {"weight": -0.0},
    {"letter_id": bytes(range(16))},
    {"text": "t" * 200},
    {"text": None},
    {"seal": bytes(20_000)},
    {"batches": b""},
    {"stamp": Stamp()},
    {"stamps": None},
    {"stamps": [Stamp(motif="x"), Stamp(price=2)]},
    {"sizes": [1, 2]},
]
each_version = pytest.mark.parametrize("version", [OLD, FLEXIBLE])


def compiled(cls: type[Message], version: int) -> Any:
    """Return the compiled writer; without a compiler there is only the fallback."""
    return compiled_writer_for(cls, version) or Twins(cls, version).generated


def is_left_to_the_twin(value: Message, version: int) -> bool:
    writer = compiled_writer_for(type(value), version)
    return writer is None or writer(value) is None


def without(value: Message, slot: str) -> Message:
    delattr(value, slot)
    return value


@each_version
@pytest.mark.parametrize("value", [letter(), Letter()], ids=["full", "empty"])
def test_every_kind_of_field_is_written(version: int, value: Letter) -> None:
    assert Twins(Letter, version).both_write(value)


@pytest.mark.parametrize("values", LABELS, ids=str)
def test_a_tagged_field_of_every_kind_is_written(values: dict[str, Any]) -> None:
    assert Twins(Label, 0).both_write(Label(**values))
    assert compiled(Label, 0)(Label(**values))[0] == 1


def test_tagged_fields_are_written_in_the_order_of_their_tags_or_not_at_all() -> None:
    everything = {name: value for values in LABELS for name, value in values.items()}
    written = compiled(Label, 0)(Label(**everything))
    assert Twins(Label, 0).both_write(Label(**everything))
    assert written[:3] == bytes([len(everything), 0, 8])
    assert written[-4:] == b"\xac\x02\x01\x01"
    assert compiled(Label, 0)(Label()) == b"\0"


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 129, 16_382, 16_383, 16_384])
def test_the_size_of_a_tagged_field_is_as_long_as_it_has_to_be(size: int) -> None:
    assert Twins(Label, 0).both_write(Label(number=1, seal=b"x" * size, sizes=[3]))


def test_a_message_of_any_size_grows_out_of_its_first_kilobyte() -> None:
    for size in range(980, 1060):
        assert Twins(Note, OLD).both_write(Note(text="x" * size))
        assert Twins(Label, 0).both_write(Label(text="x" * size, seal=bytes(130), sizes=[1]))
        assert Twins(Letter, FLEXIBLE).both_write(letter(text="x" * size, names=["y" * size] * 50))


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (letter(short=1 << 15), OLD),  # numbers that do not fit
        (letter(tiny=-129), OLD),
        (letter(unsigned=-1), OLD),
        (letter(long=1 << 63), OLD),
        (letter(number=1 << 80), OLD),
        (letter(number=1.0), OLD),  # wrong types for numbers, texts and lists
        (letter(number="1"), OLD),
        (letter(number=None), OLD),
        (letter(weight="heavy"), OLD),
        (letter(text=None), FLEXIBLE),
        (letter(text=b"text"), OLD),
        (letter(seal="seal"), FLEXIBLE),
        (letter(seal=None), FLEXIBLE),
        (letter(stamps=None), OLD),
        (letter(stamps={}), OLD),
        (letter(stamps=[None]), FLEXIBLE),
        (letter(stamps=[Note()]), OLD),
        (letter(stamp=None), OLD),
        (letter(names=[None]), FLEXIBLE),
        (letter(sizes=[1, -1]), OLD),
        (letter(text="\ud800"), FLEXIBLE),  # text that cannot be encoded, or is too long
        (letter(text="x" * (STRING_BYTES_MAX + 1)), FLEXIBLE),
        (letter(text="é" * STRING_BYTES_MAX), FLEXIBLE),
        (letter(text="é" * (STRING_BYTES_MAX // 2 + 1)), OLD),
        (letter(later=0), OLD),  # fields that this version lacks
        (letter(later_text=""), FLEXIBLE),
        (letter(later_note=""), OLD),
        (letter(later_numbers=[0]), OLD),
        (letter(later_seals=None), OLD),
        (letter(later=Number(3)), OLD),
        (letter(batches=SliceOfAFile()), FLEXIBLE),
        (without(letter(), "text"), OLD),  # fields that were never set
        (without(letter(), "later"), OLD),
        (without(letter(), "unknown_tags"), FLEXIBLE),
        (without(Label(), "number"), 0),
        (Label(stamp=Note()), 0),
        (Label(number=1 << 63), 0),
        (Label(number=None), 0),
        (Ticket(number=None), 0),  # type: ignore[arg-type]
    ],
)
def test_odd_values_are_left_to_the_twin(value: Message, version: int) -> None:
    assert is_left_to_the_twin(value, version)
    assert Twins(type(value), version).agree_on(value)


@pytest.mark.parametrize(
    "value",
    [
        letter(is_express=1),  # the fallback takes any true value for True
        letter(weight=1),
        letter(letter_id=b"short"),  # and fills up with zeros
        letter(letter_id=bytearray(16)),
        letter(text=Text("text")),
        letter(seal=Octets(b"octets")),
        letter(sizes=(1, 2)),
        letter(stamp=SpecialStamp()),
        letter(stamps=[SpecialStamp()]),
        letter(batches=bytes(COPIED_BYTES_MAX + 1)),
        letter(later_numbers=None),
        letter(later=-1.0),
        Parcel(stamp=Stamp(price=1)),
        Parcel(),
    ],
)
def test_what_is_sound_but_rare_is_left_to_the_twin(value: Message) -> None:
    assert is_left_to_the_twin(value, FLEXIBLE)
    assert Twins(type(value), FLEXIBLE).agree_on(value)
    assert encode(value, FLEXIBLE)


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (letter(short=ErrorCode.NOT_LEADER_OR_FOLLOWER), OLD),
        (letter(short=Number(7), tiny=True), OLD),
        (letter(text="x" * STRING_BYTES_MAX), FLEXIBLE),
        (letter(text="é" * (STRING_BYTES_MAX // 2)), OLD),
        (letter(seal=bytearray(b"seal"), batches=memoryview(bytearray(COPIED_BYTES_MAX))), OLD),
        (letter(seal=memoryview(b"a seal")[1:3], batches=memoryview(b"")), FLEXIBLE),
        (letter(seal=bytes(1 << 20)), FLEXIBLE),
        (letter(batches=None, spare=None, letter_ids=None), OLD),
        (letter(batches=None, spare=None, letter_ids=None), FLEXIBLE),
        (letter(later=int("-1"), later_text="".join(["so", "on"])), OLD),
        (without(letter(), "unknown_tags"), OLD),  # the old versions have no tags
        (without(letter(), "whenever"), OLD),
        (Parcel(stamp=None), FLEXIBLE),
    ],
)
def test_rare_but_sound_values_are_written(value: Message, version: int) -> None:
    assert Twins(type(value), version).both_write(value)


@each_version
def test_both_writers_agree_on_anything_in_any_field(version: int) -> None:
    for name in (field.name for field in Letter.fields):
        for odd in ODD:
            assert Twins(Letter, version).agree_on(letter(**{name: odd})), (name, odd)


def test_both_writers_agree_on_anything_in_any_tagged_field() -> None:
    for name in (field.name for field in Label.fields):
        for odd in ODD:
            assert Twins(Label, 0).agree_on(Label(**{name: odd})), (name, odd)


def test_unknown_tags_are_left_to_the_twin() -> None:
    value = Label(number=3)
    value.unknown_tags = {2: b"x"}
    assert is_left_to_the_twin(value, 0)
    assert encode(value, 0) == b"\x02\0\x08" + bytes(7) + b"\x03\x02\x01x"


def test_only_plain_views_of_bytes_are_written() -> None:
    released = memoryview(b"released")
    released.release()
    views = [memoryview(b"view")[::-1], memoryview(b"view")[::2], released]
    views += [memoryview(b"view").cast(other) for other in ("b", "c", "i")]
    views += [memoryview(b"view").cast("B", (2, 2))]
    for view in views:
        assert is_left_to_the_twin(letter(seal=view), FLEXIBLE)
        assert Twins(Letter, FLEXIBLE).agree_on(letter(seal=view))


@pytest.mark.parametrize("size", [5, COPIED_BYTES_MAX + 1])
def test_views_are_released_after_success_and_failure(size: int) -> None:
    batches = bytearray(size)
    (compiled_writer_for(Letter, FLEXIBLE) or bool)(letter(batches=memoryview(batches)))
    batches.append(0)


def test_an_odd_value_ends_in_the_twins_error() -> None:
    with pytest.raises(UnwritableError, match=r"Sheet v1, stamps\[\].price"):
        encode(Sheet(stamps=[Stamp(), Stamp(price=1 << 15)]), FLEXIBLE)


def test_a_message_without_fields_is_no_bytes() -> None:
    assert encode(Blank(), 0) == b""
    assert Twins(Blank, 0).both_write(Blank())


def test_small_batches_are_in_one_piece_with_the_rest_and_others_are_not() -> None:
    if writing._compiled is None:  # the fallback cannot tell the size in advance
        return
    assert encode_if_small(letter(), FLEXIBLE) == encode(letter(), FLEXIBLE)
    for batches in (SliceOfAFile(), bytes(COPIED_BYTES_MAX + 1)):
        assert encode_if_small(letter(batches=batches), FLEXIBLE) is None


def test_a_hundred_thousand_messages_leave_nothing_behind() -> None:
    partition = PartitionProduceData(index=1 << 20, records=memoryview(b"batch"))
    produce = ProduceRequest(
        transactional_id="castle",
        topic_data=[TopicProduceData(name="orders", partition_data=[partition])],
    )
    answer = ProduceResponse(
        responses=[
            TopicProduceResponse(name="orders", partition_responses=[PartitionProduceResponse()])
        ]
    )
    topic = PartitionsSchema(topic="orders", partition_ids=[3])
    transaction = TransactionLogValue(previous_producer_id=7, transaction_partitions=[topic])
    sound = [(produce, 9), (answer, 12), (transaction, 1), (letter(seal=bytes(3000)), FLEXIBLE)]
    odd = [(letter(**{field.name: SliceOfAFile()}), FLEXIBLE) for field in Letter.fields]
    odd += [(letter(seal=bytes(3000), names=["\ud800"]), version) for version in (OLD, FLEXIBLE)]
    before = _blocks_after(sound, odd, rounds=100)
    assert _blocks_after(sound, odd, rounds=25_000) < before + 100


def _blocks_after(sound: list[tuple[Any, int]], odd: list[tuple[Any, int]], rounds: int) -> int:
    """Return the number of memory blocks in use after writing valid and unusual messages."""
    writers = [(compiled(type(value), version), value) for value, version in sound]
    for _ in range(rounds):
        for writer, value in writers:
            writer(value)
    for value, version in odd:
        writer = compiled_writer_for(type(value), version)
        for _ in range(rounds // 25 if writer else 0):
            writer(value)
    del writers
    gc.collect()
    return sys.getallocatedblocks()


def test_references_are_counted_right() -> None:
    default = " ".join(["a text", "that is", "not shared"])
    text, seal, view = "".join(["a ", "text"]), bytes(70), memoryview(bytearray(70))

    class Diary(Message, versions=(0, 0), flexible_since=0):
        owner: str = string(default=default, since=1)
        place: str = string(default=default, tag=0)
        pages: list[Any] = array("bytes")

    diary = Diary(owner="".join([default, ""]), place=text, pages=[seal, view])
    writer = compiled(Diary, 0)
    expected = writer(diary)
    counted = (default, text, seal, view, diary, diary.pages, Diary)
    before = [sys.getrefcount(one) for one in counted]
    shared = [sys.getrefcount(one) for one in (None, True, False)]
    assert [writer(diary) for _ in range(1000)] == [expected] * 1000
    assert [sys.getrefcount(one) for one in counted] == before
    for one, count in zip((None, True, False), shared, strict=True):
        assert abs(sys.getrefcount(one) - count) < 100


def test_an_unreferenced_class_is_freed_with_its_writers() -> None:
    class Draft(Message, versions=(0, 0)):
        stamp: Stamp = struct(Stamp)

    writer = compiled_writer_for(Draft, 0)
    Draft.writers[0] = writer
    assert writer is None or writer(Draft()) == b"\0\0\xff\xff"
    gone = weakref.ref(Draft)
    del Draft, writer
    gc.collect()
    assert gone() is None


@each_version
def test_without_the_extension_the_twin_writes_everything(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = encode(letter(), version)
    monkeypatch.setattr(writing, "_compiled", None)
    monkeypatch.setattr(Letter, "writers", {})
    assert compiled_writer_for(Letter, version) is None
    assert encode_if_small(letter(), version) is None
    assert encode(letter(), version) == expected
    assert list(Letter.writers) == [version]
    with pytest.raises(UnwritableError, match=f"Letter v{version}, sizes"):
        encode(letter(sizes=[-1]), version)


def test_a_version_that_does_not_exist_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="Letter has no version 2"):
        encode(Letter(), 2)


def test_structures_that_cannot_be_written_are_our_own_mistake() -> None:
    if writing._compiled is None:  # the fallback writes no such structures
        return
    make = writing._compiled.StructWriter
    for cls, step in [
        (int, ("real", "int8", False, False, -1, 0, None)),
        (Note, ("__class__", "int8", False, False, -1, 0, None)),
        (Note, ("__init__", "int8", False, False, -1, 0, None)),
        (Note, ("text", "struct", False, False, -1, None, None)),
        (Note, ("text", "struct", False, False, -1, None, Stamp)),
        (Note, ("text", "string", False, False, -1, Text(""), None)),
    ]:
        with pytest.raises(AssertionError):
            make(cls, (step,), ())
    with pytest.raises(KeyError):
        make(Note, (("text", "int128", False, False, -1, 0, None),), ())
    with pytest.raises(AssertionError, match="32768 does not fit"):
        writing._compiled.MessageWriter(
            make(Note, (), ()), is_flexible=True, text_bytes_max=1 << 15, batches_bytes_max=0
        )
    tagged = [("text", "string", False, False, tag, "", None) for tag in (1, 1)]
    with pytest.raises(AssertionError, match="do not rise"):
        make(Note, (), tuple(tagged))
