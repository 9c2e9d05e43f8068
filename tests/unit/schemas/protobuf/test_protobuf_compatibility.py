"""Which changes of a Protobuf schema break its readers."""

import pytest

from ottla.schemas.protobuf.protobuf_schema import ProtobufSchema, parse_protobuf

HEAD = 'syntax = "proto3"; package p; enum E { Z = 0; } message B {} message C {}'


def changes(before: str, after: str) -> list[tuple[str, str]]:
    """Return the rules and paths for a change of message A's body."""
    writer = parse_protobuf(f"{HEAD} message A {{ {before} }}")
    reader = parse_protobuf(f"{HEAD} message A {{ {after} }}")
    return [(found.rule, found.path) for found in reader.reading(writer)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "int32 x = 1;"),
        ("int32 x = 1;", ""),
        ("int32 x = 1;", "uint64 y = 1;"),
        ("int32 x = 1;", "E x = 1;"),
        ("bool x = 1;", "int64 x = 1;"),
        ("string x = 1;", "bytes x = 1;"),
        ("string x = 1;", "repeated bytes x = 1;"),
        ("fixed32 x = 1;", "sfixed32 x = 1;"),
        ("sint32 x = 1;", "sint64 x = 1;"),
        ("B x = 1;", "repeated B x = 1;"),
        ("int32 x = 1;", "oneof o { int32 x = 1; }"),
        ("int32 x = 1;", "oneof o { int32 x = 1; int32 y = 2; }"),
        ("oneof o { int32 x = 1; }", "oneof o { int32 x = 1; int32 y = 2; }"),
        ("oneof o { int32 x = 1; }", "int32 x = 1;"),
        ("int32 x = 1;", "optional int32 x = 1;"),
        ("map<string, int32> x = 1;", "map<bytes, int32> x = 1;".replace("bytes", "string")),
        ("", "message N {} enum F { F0 = 0; }"),
        ("enum F { F0 = 0; }", ""),
        ("A x = 1;", "A x = 1; A y = 2;"),
    ],
)
def test_a_reader_accepts(before: str, after: str) -> None:
    assert changes(before, after) == []


@pytest.mark.parametrize(
    ("before", "after", "rule", "path"),
    [
        ("int32 x = 1;", "string x = 1;", "FIELD_SCALAR_KIND_CHANGED", "#/A/1"),
        ("int32 x = 1;", "sint32 x = 1;", "FIELD_SCALAR_KIND_CHANGED", "#/A/1"),
        ("float x = 1;", "double x = 1;", "FIELD_SCALAR_KIND_CHANGED", "#/A/1"),
        ("fixed32 x = 1;", "fixed64 x = 1;", "FIELD_SCALAR_KIND_CHANGED", "#/A/1"),
        ("E x = 1;", "string x = 1;", "FIELD_SCALAR_KIND_CHANGED", "#/A/1"),
        ("int32 x = 1;", "B x = 1;", "FIELD_KIND_CHANGED", "#/A/1"),
        ("map<string, B> x = 1;", "repeated B x = 1;", "FIELD_KIND_CHANGED", "#/A/1"),
        ("B x = 1;", "C x = 1;", "FIELD_NAMED_TYPE_CHANGED", "#/A/1"),
        ("map<string, B> x = 1;", "map<string, C> x = 1;", "FIELD_NAMED_TYPE_CHANGED", "#/A/1"),
        ("int32 x = 1;", "repeated int32 x = 1;", "FIELD_NUMERIC_LABEL_CHANGED", "#/A/1"),
        ("repeated E x = 1;", "E x = 1;", "FIELD_NUMERIC_LABEL_CHANGED", "#/A/1"),
        ("message N {}", "", "MESSAGE_REMOVED", "#/A/N"),
        ("message N { int32 x = 1; }", "message N { float x = 1; }", "FIELD_SCALAR_KIND_CHANGED",
         "#/A/N/1"),
        ("oneof o { int32 x = 1; int32 y = 2; }", "oneof o { int32 x = 1; }",
         "ONEOF_FIELD_REMOVED", "#/A/o/2"),
        ("int32 x = 1; int32 y = 2;", "oneof o { int32 x = 1; int32 y = 2; }",
         "MULTIPLE_FIELDS_MOVED_TO_ONEOF", "#/A/o"),
        ("int32 x = 1; oneof o { int32 y = 2; }", "oneof o { int32 x = 1; int32 y = 2; }",
         "FIELD_MOVED_TO_EXISTING_ONEOF", "#/A/o"),
        ("oneof o { int32 x = 1; }", "oneof q { string x = 1; }", "FIELD_SCALAR_KIND_CHANGED",
         "#/A/1"),
    ],
)  # fmt: skip
def test_a_reader_refuses(before: str, after: str, rule: str, path: str) -> None:
    assert changes(before, after) == [(rule, path)]


def test_required_fields_neither_come_nor_go() -> None:
    with_field = parse_protobuf('syntax = "proto2"; message A { required int32 x = 1; }')
    without = parse_protobuf('syntax = "proto2"; message A {}')
    (removed,) = without.reading(with_field)
    (added,) = with_field.reading(without)
    assert (removed.rule, removed.path) == ("REQUIRED_FIELD_REMOVED", "#/A/1")
    assert (added.rule, added.path) == ("REQUIRED_FIELD_ADDED", "#/A/1")
    assert added.message == "Required field x was added: make it optional"


def test_a_package_or_message_does_not_go() -> None:
    before = parse_protobuf("syntax = 'proto3'; package p; message A {} message B {}")
    after = parse_protobuf("syntax = 'proto3'; package q; message B {}")
    assert [found.rule for found in after.reading(before)] == ["PACKAGE_CHANGED", "MESSAGE_REMOVED"]


def with_import(body: str) -> ProtobufSchema:
    base = parse_protobuf(f"syntax = 'proto3'; package base; message T {{ {body} }}")
    text = "syntax = 'proto3'; import 'base.proto'; message A { base.T t = 1; base.T u = 2; }"
    return parse_protobuf(text, {"base.proto": base})


def test_a_changed_import_is_reported_where_it_is_used() -> None:
    before, after = with_import("T t = 1; int32 x = 2;"), with_import("T t = 1; string x = 2;")
    assert [(found.rule, found.path) for found in after.reading(before)] == [
        ("FIELD_SCALAR_KIND_CHANGED", "#/T/2"),
        ("FIELD_NAMED_TYPE_CHANGED", "#/A/1"),
    ]
    assert before.reading(before) == []
