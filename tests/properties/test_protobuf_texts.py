"""Random descriptors are printed and parsed, and come back equal; random texts end in one error."""

import base64
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.schemas.parsed_schema import InvalidSchemaError
from ottla.schemas.protobuf.protobuf_schema import parse_protobuf
from tests.examples import examples
from tests.protobuf_judge import comparable, ordered
from tests.protobuf_texts import GOOD

Field = FieldDescriptorProto
SCALARS = [number for number in range(1, 19) if number not in {10, 11, 14}]
NAMES = st.from_regex(r"\A[a-z][a-z0-9_]{0,6}\Z")


@st.composite
def messages(draw: Any, depth: int = 0) -> dict[str, Any]:
    names = draw(st.lists(NAMES, max_size=5, unique_by=lambda name: name.replace("_", "")))
    numbers = draw(
        st.lists(st.integers(1, 1000), min_size=len(names), max_size=len(names), unique=True)
    )
    types = draw(st.lists(NAMES.map(str.title), max_size=2 if depth < 3 else 0, unique=True))
    nested = [draw(messages(depth + 1)) | {"name": name} for name in types]
    enums = [
        {"name": f"Enum{index}", "value": [{"name": f"V{depth}{index}_{n}", "number": n} for n in
         range(draw(st.integers(1, 3)))]}
        for index in range(draw(st.integers(0, 1)))
    ]  # fmt: skip
    fields = [
        draw(fields_of(name, number, [*types, *(enum["name"] for enum in enums)], len(types)))
        for name, number in zip(names, numbers, strict=True)
    ]
    reserved = draw(st.lists(st.integers(1001, 2000), max_size=3, unique=True))
    return {
        "name": "Root",
        "field": fields,
        "nested_type": nested,
        "enum_type": enums,
        "reserved_range": [{"start": number, "end": number + 1} for number in reserved],
        "reserved_name": draw(st.lists(st.from_regex(r"\AR[a-z]{3}\Z"), max_size=2, unique=True)),
        "options": draw(st.sampled_from([{}, {"deprecated": True}])),
    }


@st.composite
def fields_of(draw: Any, name: str, number: int, types: list[str], messages_count: int) -> Any:
    field: dict[str, Any] = {"name": name, "number": number}
    label = draw(st.sampled_from([1, 1, 3]))
    field["label"] = label
    if types and draw(st.booleans()):
        index = draw(st.integers(0, len(types) - 1))
        field["type_name"] = types[index]
        field["type"] = 11 if index < messages_count else 14
    else:
        field["type"] = draw(st.sampled_from(SCALARS))
    if label == 1 and draw(st.booleans()):
        field["proto3_optional"] = True
    if draw(st.booleans()):
        field["options"] = {"deprecated": draw(st.booleans())}
    return field


@given(messages(), st.sampled_from(["", "a", "a.b.c"]))
@settings(max_examples=examples(60), deadline=None)
def test_a_random_file_comes_back_from_its_texts(root: dict[str, Any], package: str) -> None:
    source = FileDescriptorProto(syntax="proto3", package=package, message_type=[root])
    # Synthetic oneofs are for the linker to add, so the first parse starts from the printed text.
    schema = parse_protobuf(_printed(source))
    again = parse_protobuf(schema.canonical())
    assert comparable(again.descriptor) == comparable(schema.descriptor)
    assert again.canonical() == schema.canonical()
    normal = parse_protobuf(schema.normalized())
    assert normal.normalized() == schema.normalized()
    serialized = parse_protobuf(schema.formatted("serialized"))
    assert ordered(serialized.descriptor) == ordered(schema.descriptor)
    assert again.reading(schema) == []
    assert [field.number for field in schema.descriptor.message_type[0].field] == [
        field["number"] for field in root["field"]
    ]


def _printed(source: Any) -> str:
    from ottla.schemas.protobuf.proto_printer import print_file  # noqa: PLC0415
    from ottla.schemas.protobuf.proto_reader import ProtoFile  # noqa: PLC0415

    return print_file(ProtoFile(source))


@given(st.sampled_from(sorted(GOOD)), st.data())
@settings(max_examples=examples(80), deadline=None)
def test_a_damaged_text_parses_or_ends_in_one_error(name: str, data: Any) -> None:
    text = GOOD[name]
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 5))
        text = (
            text[:start]
            + data.draw(st.sampled_from(["", "{", "}", ";", '"', "A", "-"]))
            + text[end:]
        )
    _parses_or_refuses(text)


@given(
    st.one_of(st.text(max_size=60), st.binary(max_size=60).map(base64.b64encode).map(bytes.decode))
)
@settings(max_examples=examples(150), deadline=None)
def test_any_text_parses_or_ends_in_one_error(text: str) -> None:
    _parses_or_refuses(text)


def _parses_or_refuses(text: str) -> None:
    try:
        schema = parse_protobuf(text)
    except InvalidSchemaError as error:
        assert str(error)
        return
    again = parse_protobuf(schema.canonical() or ";")
    assert again.canonical() == schema.canonical()
    assert parse_protobuf(schema.normalized() or ";").normalized() == schema.normalized()


@pytest.mark.parametrize("count", [1, 3])
def test_bytes_of_a_damaged_descriptor_end_in_one_error(count: int) -> None:
    content = bytearray(parse_protobuf(GOOD["proto3"]).descriptor.SerializeToString())
    for place in range(0, len(content) - count, 7):
        damaged = content[:place] + b"\xff" * count + content[place + count :]
        _parses_or_refuses(base64.b64encode(damaged).decode())
