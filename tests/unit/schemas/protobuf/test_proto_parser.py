"""The parser and the linker against protoc."""

import re
from pathlib import Path
from typing import Any

import pytest

from ottla.schemas.parsed_schema import InvalidSchemaError
from ottla.schemas.protobuf.protobuf_schema import ProtobufSchema, parse_protobuf
from tests.protobuf_judge import INCLUDES, comparable, protoc
from tests.protobuf_texts import BAD, GOOD

FILES = sorted(
    {
        str(path.relative_to(include))
        for include in INCLUDES
        for path in (include / "google").rglob("*.proto")
    }
)
MESSAGE = 'syntax = "proto3";\nmessage A {\n'


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return protoc's descriptors of all files of Protobuf and googleapis."""
    return protoc(tmp_path_factory.mktemp("judge"), *FILES)


@pytest.fixture(scope="module")
def parsed() -> dict[str, ProtobufSchema]:
    return {}


def read(path: str, judged: dict[str, Any], parsed: dict[str, ProtobufSchema]) -> ProtobufSchema:
    if path not in parsed:
        references = {name: read(name, judged, parsed) for name in judged[path].dependency}
        source = next(include / path for include in INCLUDES if (include / path).exists())
        parsed[path] = parse_protobuf(source.read_text(), references)
    return parsed[path]


@pytest.mark.parametrize("path", FILES)
def test_a_file_has_the_descriptor_that_protoc_gives_it(
    path: str, judged: dict[str, Any], parsed: dict[str, ProtobufSchema]
) -> None:
    schema = read(path, judged, parsed)
    wanted = judged[path]
    pool = schema.pool_with_options
    assert comparable(schema.descriptor, pool) == comparable(wanted, pool)


@pytest.mark.parametrize("name", GOOD)
def test_a_text_with_most_of_the_language_has_the_descriptor_that_protoc_gives_it(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "file.proto").write_text(GOOD[name])
    wanted = protoc(tmp_path, "file.proto")["file.proto"]
    schema = parse_protobuf(GOOD[name])
    pool = schema.pool_with_options
    assert comparable(schema.descriptor, pool) == comparable(wanted, pool)


@pytest.mark.parametrize("text", BAD)
def test_a_text_that_protoc_refuses_is_refused_with_its_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "file.proto").write_text(text)
    with pytest.raises(ValueError, match=r"file\.proto"):
        protoc(tmp_path, "file.proto")
    with pytest.raises(InvalidSchemaError, match=r"^line 1: ."):
        parse_protobuf(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (MESSAGE + "  int32 a = 1;\n  B b = 2;\n}", "line 4: B is not defined"),
        (MESSAGE + "  int32 a = 1;\n  int32 b = 1;\n}", "line 4: number 1 is already taken by a"),
        (MESSAGE + "\n  int32 a = ;\n}", "line 4: expected a field's number, found ;"),
        (MESSAGE + "\n  int32 a = 1 [packed = 3];\n}", "line 4: option packed: its value must"),
        (MESSAGE + "\n  option (x) = 1;\n}", "line 4: a custom option needs the import google"),
        ("/* a\nb */\nimport 'x';", "line 3: import 'x' has no reference of this name"),
        ("x" * 99 + " {", "line 1: expected a declaration such as 'message', found xxx"),
    ],
)
def test_an_error_has_the_line_and_the_reason(text: str, error: str) -> None:
    with pytest.raises(InvalidSchemaError, match=re.escape(error)):
        parse_protobuf(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("message A {" * 90_000, "nested more than 32 deep"),
        ("message A { option x = " + "{ a: " * 90_000, "nested more than 32 deep"),
        ("message A { optional " + "group A = 1 { optional " * 1_000, "nested more than 32 deep"),
        ('syntax = "proto3";' + "/* " * 300_000, "a comment without an end"),
        ('syntax = "proto3"; import "' + "\\" * 500_000, "a string without an end"),
        ("message A {" + "reserved 1;" * 60_000 + "}", "more than 50000 declarations"),
        (";" * 500_000, "more than 300000 tokens"),
        ("message A { optional int32 a = " + "9" * 500_000, "a field's number"),
        (" " * 2_000_000 + ";", "more than 1048576 bytes"),
        ("A" * 3_000_000, "the text has more than 1048576 bytes"),
        ("é" * 600_000, "the text has more than 1048576 bytes"),
    ],
)
def test_a_text_beyond_a_limit_ends_in_an_error(text: str, error: str) -> None:
    with pytest.raises(InvalidSchemaError, match=error) as caught:
        parse_protobuf(text)
    assert len(str(caught.value)) < 500


def test_a_name_of_a_mebibyte_is_parsed_and_shown_short_in_errors() -> None:
    name = "a" * 1_000_000
    schema = parse_protobuf(f'syntax = "proto3"; message {name} {{}}')
    assert schema.record_name == name
    with pytest.raises(InvalidSchemaError, match=r"a\.\.\. is not defined") as caught:
        parse_protobuf(f'syntax = "proto3"; message A {{ {name} x = 1; }}')
    assert len(str(caught.value)) < 200


def test_a_file_may_use_a_map_entry_as_confluents_registry_prints_it() -> None:
    schema = parse_protobuf(
        'syntax = "proto3"; message A { repeated .A.MEntry m = 1;'
        " message MEntry { option map_entry = true; string key = 1; int32 value = 2; } }"
    )
    assert "map<string, int32> m = 1;" in schema.normalized()
    message = schema.message_class("A")()
    message.m["x"] = 1
    assert message.m == {"x": 1}
