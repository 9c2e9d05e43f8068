"""The compiled loop of objects, its twin, and fastavro agree; hostile bytes end in one error."""

import datetime
import io
import json
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.schemas.avro.avro_schema import parse_avro
from ottla.schemas.classes import _objects_python as twin
from ottla.schemas.classes.class_types import record_of
from ottla.schemas.classes.declaration import schema_of_class
from ottla.schemas.classes.object_plan import DEPTH_MAX, NoPlanError, plan
from ottla.schemas.classes.objects import ObjectError, Objects
from tests.unit.schemas.classes.shop import ORDER, Order

pytestmark = pytest.mark.usefixtures("needs_compiled_loops")

TEXT = schema_of_class(Order).text
ROOT = plan(parse_avro(TEXT).root, record_of(Order))
LOOPS = [Objects(ROOT), twin.Objects(ROOT)]


class Node(msgspec.Struct):
    left: "Node | None" = None


def outcome(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ObjectError as error:
        return str(error)


def test_both_loops_write_what_fastavro_reads() -> None:
    payloads = [loop.encode(ORDER, b"\0\1") for loop in LOOPS]
    assert payloads[0] == payloads[1]
    found: Any = fastavro.schemaless_reader(
        io.BytesIO(payloads[0][2:]), fastavro.parse_schema(json.loads(TEXT)), None
    )
    assert (found["at"], found["day"], found["hour"]) == (ORDER.at, ORDER.day, ORDER.hour)
    assert (found["price"], found["token"]) == (ORDER.price, ORDER.token)
    assert found["paid_by"] == {"coins": 5}
    assert [loop.decode(payloads[0], 2) for loop in LOOPS] == [ORDER, ORDER]


ZONES = [datetime.UTC, *(datetime.timezone(datetime.timedelta(hours=n)) for n in (-12, 14))]


@given(
    number=st.integers(),
    small=st.integers(-(2**33), 2**33),
    narrow=st.floats(),
    at=st.datetimes(timezones=st.sampled_from(ZONES)),
    day=st.dates(),
    hour=st.times(),
    price=st.decimals(allow_nan=None),
    text=st.text() | st.just("\ud800"),
    raw=st.binary(),
)
def test_both_loops_agree_on_any_object(
    number: int,
    small: int,
    narrow: float,
    at: Any,
    day: Any,
    hour: Any,
    price: Any,
    text: str,
    raw: bytes,
) -> None:
    value = msgspec.structs.replace(
        ORDER,
        id=number,
        small=small,
        narrow=narrow,
        ratio=narrow,
        at=at,
        day=day,
        hour=hour,
        price=price,
        customer=text,
        raw=raw,
        counts={text: small},
    )
    made = [outcome(loop.encode, value) for loop in LOOPS]
    assert made[0] == made[1]
    if isinstance(made[0], bytes):
        read = [loop.decode(made[0]) for loop in LOOPS]
        assert repr(read[0]) == repr(read[1])
        assert (read[0].at, read[0].day, read[0].price) == (at, day, price)


PAYLOAD = LOOPS[1].encode(ORDER)


@given(st.integers(0, len(PAYLOAD) - 1), st.binary(min_size=1, max_size=4))
def test_damaged_bytes_end_in_the_same_value_or_error(place: int, damage: bytes) -> None:
    damaged = PAYLOAD[:place] + damage + PAYLOAD[place + len(damage) :]
    found = [outcome(loop.decode, damaged) for loop in LOOPS]
    assert repr(found[0]) == repr(found[1])


@given(st.binary(max_size=64))
def test_any_bytes_end_in_the_same_value_or_error(data: bytes) -> None:
    found = [outcome(loop.decode, data) for loop in LOOPS]
    assert repr(found[0]) == repr(found[1])


@pytest.mark.parametrize("end", range(len(PAYLOAD)))
def test_cut_off_bytes_are_an_error(end: int) -> None:
    for loop in LOOPS:
        with pytest.raises(ObjectError):
            loop.decode(PAYLOAD[:end])


def test_bytes_after_the_object_are_an_error() -> None:
    for loop in LOOPS:
        with pytest.raises(ObjectError, match="1 bytes follow the value"):
            loop.decode(PAYLOAD + b"x")


def test_nesting_is_bounded() -> None:
    step = plan(parse_avro(schema_of_class(Node).text).root, record_of(Node))
    deep: Node | None = None
    for _ in range(DEPTH_MAX + 1):
        deep = Node(deep)
    for loop in (Objects(step), twin.Objects(step)):
        with pytest.raises(ObjectError, match="nested more than"):
            loop.encode(deep)
        with pytest.raises(ObjectError, match="nested more than"):
            loop.decode(b"\2" * (DEPTH_MAX + 2) + b"\0")


def test_a_list_cannot_claim_more_items_than_bytes() -> None:
    class Many(msgspec.Struct):
        items: list[int]

    step = plan(parse_avro(schema_of_class(Many).text).root, record_of(Many))
    for loop in (Objects(step), twin.Objects(step)):
        for claim in (b"\xfe\xff\xff\xff\x0f", b"\xfd\xff\xff\xff\x0f\0"):
            with pytest.raises(ObjectError, match="do not fit into the remaining bytes"):
                loop.decode(claim + b"\2")


def test_items_without_bytes_take_the_general_way() -> None:
    class Nothing(msgspec.Struct):
        pass

    class Many(msgspec.Struct):
        items: list[Nothing]

    with pytest.raises(NoPlanError):
        plan(parse_avro(schema_of_class(Many).text).root, record_of(Many))


def test_other_versions_are_read_by_a_plan() -> None:
    class Wide(msgspec.Struct):
        id: int
        gone: list[dict[str, str | None]]
        customer: str

    class Slim(msgspec.Struct):
        customer: str
        id: int
        note: str = "none"

    writer = parse_avro(schema_of_class(Wide).text).root
    payload = Objects(plan(writer, record_of(Wide))).encode(
        Wide(7, [{"a": "b", "c": None}, {}], "Max")
    )
    step = plan(writer, record_of(Slim))
    for loop in (Objects(step), twin.Objects(step)):
        assert loop.decode(payload) == Slim("Max", 7)
