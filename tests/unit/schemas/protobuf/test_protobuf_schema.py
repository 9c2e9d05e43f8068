"""Text forms, imports, message indexes and classes of Protobuf schemas."""

import base64
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool, struct_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from ottla.schemas.parsed_schema import InvalidSchemaError
from ottla.schemas.protobuf.built_in_files import PATHS
from ottla.schemas.protobuf.protobuf_schema import built_in, parse_protobuf
from ottla.schemas.schema import SchemaType
from tests.protobuf_judge import INCLUDES, comparable, ordered, protoc
from tests.protobuf_texts import GOOD

ORDER = """
syntax = "proto3"; // a comment
package shop.v1;
import public "google/protobuf/duration.proto";
import "google/protobuf/timestamp.proto";
import "confluent/meta.proto";
option java_package = "com.shop";
option (confluent.file_meta).doc = "it's";
enum Color { RED = 0; BLUE = 1 [deprecated = true]; }
message Order {
  message Line { Kind kind = 2; int32 id = 1; enum Kind { NONE = 0; } }
  reserved 20, 30 to max; reserved "old";
  oneof pay { string card = 5; bool cash = 4; }
  repeated Line lines = 2 [(confluent.field_meta).tags = "PII", deprecated = true];
  int64 id = 1 [json_name = "ID"];
  map<string, Line> by_name = 3;
  optional google.protobuf.Timestamp at = 6;
}
service Shop { rpc Buy (Order) returns (stream shop.v1.Order) { option deprecated = true; } }
"""
CANONICAL = """\
syntax = "proto3";
package shop.v1;

import "google/protobuf/timestamp.proto";
import "confluent/meta.proto";
import public "google/protobuf/duration.proto";

option java_package = "com.shop";
option (confluent.file_meta).doc = "it\\'s";

message Order {
  reserved 20, 30 to max;
  reserved "old";

  repeated Line lines = 2 [
    (confluent.field_meta).tags = "PII",
    deprecated = true
  ];
  int64 id = 1 [json_name = "ID"];
  map<string, Line> by_name = 3;
  optional google.protobuf.Timestamp at = 6;

  oneof pay {
    string card = 5;
    bool cash = 4;
  }

  message Line {
    Kind kind = 2;
    int32 id = 1;
  \n    enum Kind {
      NONE = 0;
    }
  }
}
enum Color {
  RED = 0;
  BLUE = 1 [deprecated = true];
}

service Shop {
  rpc Buy (Order) returns (stream shop.v1.Order) {
    option deprecated = true;
  };
}
"""
NORMALIZED = """\
syntax = "proto3";
package shop.v1;

import "confluent/meta.proto";
import "google/protobuf/timestamp.proto";
import public "google/protobuf/duration.proto";

option (confluent.file_meta) = {
  doc: "it\\'s"
};
option java_package = "com.shop";

message Order {
  reserved 20;
  reserved 30 to max;
  reserved "old";

  int64 id = 1 [json_name = "ID"];
  repeated .shop.v1.Order.Line lines = 2 [
    (confluent.field_meta) = {
      tags: "PII"
    },
    deprecated = true
  ];
  map<string, .shop.v1.Order.Line> by_name = 3;
  optional .google.protobuf.Timestamp at = 6;

  oneof pay {
    bool cash = 4;
    string card = 5;
  }

  message Line {
    int32 id = 1;
    .shop.v1.Order.Line.Kind kind = 2;
  \n    enum Kind {
      NONE = 0;
    }
  }
}
enum Color {
  RED = 0;
  BLUE = 1 [deprecated = true];
}

service Shop {
  rpc Buy (.shop.v1.Order) returns (stream .shop.v1.Order) {
    option deprecated = true;
  };
}
"""


def test_the_canonical_text_has_confluents_form() -> None:
    assert parse_protobuf(ORDER).canonical() == CANONICAL


def test_the_normalized_text_has_full_names_and_is_sorted() -> None:
    assert parse_protobuf(ORDER).normalized() == NORMALIZED


@pytest.mark.parametrize("name", GOOD)
def test_both_texts_are_fixed_points_that_protoc_reads(name: str, tmp_path: Path) -> None:
    schema = parse_protobuf(GOOD[name])
    again = parse_protobuf(schema.canonical())
    assert again.canonical() == schema.canonical()
    assert again.normalized() == schema.normalized()
    pool = schema.pool_with_options
    assert ordered(again.descriptor, pool) == ordered(schema.descriptor, pool)
    assert parse_protobuf(schema.normalized()).normalized() == schema.normalized()
    (tmp_path / "canonical.proto").write_text(schema.canonical())
    (tmp_path / "normalized.proto").write_text(schema.normalized())
    for path in ("canonical.proto", "normalized.proto"):
        protoc(tmp_path, path)


@pytest.mark.parametrize("name", GOOD)
def test_a_serialized_descriptor_gives_the_same_normalized_text(name: str) -> None:
    schema = parse_protobuf(GOOD[name])
    again = parse_protobuf(schema.formatted("serialized"))
    assert again.normalized() == schema.normalized()
    pool = schema.pool_with_options
    assert ordered(again.descriptor, pool) == ordered(schema.descriptor, pool)


def test_a_descriptor_of_a_python_class_is_a_schema() -> None:
    content = base64.b64encode(struct_pb2.DESCRIPTOR.serialized_pb).decode()
    schema = parse_protobuf(content)
    assert schema.record_name == "google.protobuf.Struct"
    assert schema.canonical().startswith('syntax = "proto3";\npackage google.protobuf;\n\noption')
    serialized = FileDescriptorProto.FromString(base64.b64decode(schema.formatted("serialized")))
    own = FileDescriptorProto.FromString(struct_pb2.DESCRIPTOR.serialized_pb)
    assert ordered(serialized) == ordered(own)


def test_format_ignore_extensions_leaves_out_custom_options_but_confluents() -> None:
    text = """
    syntax = "proto2";
    import "google/protobuf/descriptor.proto"; import "confluent/meta.proto";
    extend google.protobuf.MessageOptions { optional string mine = 50000; }
    message A { extensions 5; option (mine) = "x"; option (confluent.message_meta).doc = "y"; }
    """
    found = parse_protobuf(text).formatted("ignore_extensions")
    assert "mine" not in found
    assert "extensions" not in found
    assert 'option (confluent.message_meta).doc = "y";' in found
    with pytest.raises(ValueError, match="no format 'resolved'"):
        parse_protobuf(text).formatted("resolved")


def test_the_syntax_proto2_is_canonical_but_not_normal() -> None:
    schema = parse_protobuf('syntax = "proto2"; message A {}')
    assert schema.canonical() == 'syntax = "proto2";\n\nmessage A {}\n'
    assert schema.normalized() == "\nmessage A {}\n"


def test_message_indexes_lead_to_names_and_back() -> None:
    text = "syntax = 'proto3'; package p; message A {} message B { message C { message D {} } }"
    schema = parse_protobuf(text)
    assert schema.type is SchemaType.PROTOBUF
    assert schema.record_name == "p.A"
    for name, indexes in {"p.A": (0,), "p.B": (1,), "p.B.C": (1, 0), "p.B.C.D": (1, 0, 0)}.items():
        assert schema.indexes(name) == indexes
        assert schema.message(indexes) == name
    with pytest.raises(KeyError):
        schema.message((2,))
    with pytest.raises(KeyError):
        schema.indexes("p.C")


LAYOUTS = {
    "messages first": "message B { int32 x = 1; } message C {} map<string, B> m = 1; int32 i = 2;",
    "maps first": "map<string, B> m = 1; map<int32, C> n = 2; message B { int32 x = 1; }"
    " message C {}",
    "mixed": "message B { message D {} map<string, D> m = 1; message E { map<string, E> m = 1; } }"
    " map<string, int32> m = 1; message C {} optional int32 n = 2; enum F { G = 0; }"
    " oneof o { string s = 3; C c = 4; } message H { enum I { J = 0; } message K {} }",
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS)


def file_of(layout: str) -> str:
    body = LAYOUTS[layout]
    return f"syntax = 'proto3'; package p; message Z {{}} message A {{ {body} }} message Y {{}}"


def indexes_in(descriptor: FileDescriptorProto) -> dict[str, tuple[int, ...]]:
    """Return the places of the messages in a descriptor, as a generated class counts them."""
    found: dict[str, tuple[int, ...]] = {}

    def walk(prefix: str, messages: Any, outer: tuple[int, ...]) -> None:
        for index, message in enumerate(messages):
            if not message.options.map_entry:
                found[prefix + message.name] = (*outer, index)
                walk(f"{prefix}{message.name}.", message.nested_type, (*outer, index))

    walk(f"{descriptor.package}.", descriptor.message_type, ())
    return found


@each_layout
def test_text_and_its_canonical_forms_have_the_indexes_of_declared_messages(layout: str) -> None:
    schema = parse_protobuf(file_of(layout))
    names = indexes_in(schema.descriptor)
    assert {name: schema.indexes(name) for name in names} == names
    for text in (schema.canonical(), schema.normalized(), schema.formatted("serialized")):
        again = parse_protobuf(text)
        assert {name: again.indexes(name) for name in names} == names


@each_layout
def test_a_descriptor_keeps_its_indexes_in_its_canonical_form(layout: str, tmp_path: Path) -> None:
    (tmp_path / "a.proto").write_text(file_of(layout))
    judged = protoc(tmp_path, "a.proto")["a.proto"]
    names = indexes_in(judged)
    schema = parse_protobuf(base64.b64encode(judged.SerializeToString()).decode())
    again = parse_protobuf(schema.canonical())
    assert again.canonical() == schema.canonical()
    for one in (schema, again, parse_protobuf(again.formatted("serialized"))):
        assert {name: one.indexes(name) for name in names} == names
    # The normalized text has maps, and no places of their entries.
    text = parse_protobuf(file_of(layout))
    assert again.normalized() == schema.normalized() == text.normalized()


def test_the_entry_of_a_map_is_no_message() -> None:
    schema = parse_protobuf(file_of("maps first"))
    assert schema.message((1, 1)) == "p.A.C"
    with pytest.raises(KeyError):
        schema.message((1, 2))


ENTRY = "message MEntry { option map_entry = true; string key = 1; int32 value = 2; }"


def test_an_entry_may_have_the_name_that_confluents_serializer_for_java_gives_it() -> None:
    schema = parse_protobuf(
        "syntax = 'proto3'; message A { repeated countsEntry counts = 1; message B {}"
        f" {ENTRY.replace('MEntry', 'countsEntry')} }}"
    )
    message = schema.message_class("A")(counts={"a": 1})
    assert message.SerializeToString() == b"\n\x05\n\x01a\x10\x01"
    assert schema.indexes("A.B") == (0, 0)
    assert "map<string, int32> counts = 1;" in schema.normalized()
    again = parse_protobuf(schema.canonical())
    assert (again.canonical(), again.normalized()) == (schema.canonical(), schema.normalized())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"{ENTRY} message A {{ repeated MEntry m = 1; }}", "must be inside the message"),
        (f"message A {{ MEntry m = 1; {ENTRY} }}", "of one repeated field of its name"),
        (f"message A {{ repeated MEntry n = 1; {ENTRY} }}", "of one repeated field of its name"),
        (f"message A {{ oneof o {{ MEntry m = 1; }} {ENTRY} }}", "of one repeated field"),
        (f"message A {{ {ENTRY} }}", "of one repeated field of its name"),
    ],
)
def test_a_written_entry_must_be_of_its_map(text: str, error: str) -> None:
    with pytest.raises(InvalidSchemaError, match=error):
        parse_protobuf(f"syntax = 'proto3'; {text}")


def test_two_versions_of_a_message_are_in_use_at_once() -> None:
    first = parse_protobuf("syntax = 'proto3'; message Sale { int32 id = 1; }")
    second = parse_protobuf("syntax = 'proto3'; message Sale { string id = 1; }")
    assert first.message_class("Sale")(id=5).SerializeToString() == b"\x08\x05"
    assert second.message_class("Sale")(id="5").SerializeToString() == b"\x0a\x015"
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("Sale")


def test_imports_are_found_by_path_and_public_imports_go_on() -> None:
    base = parse_protobuf("syntax = 'proto3'; package base; message Id { string id = 1; }")
    middle = parse_protobuf("syntax = 'proto3'; import public 'base.proto';", {"base.proto": base})
    text = "syntax = 'proto3'; import 'middle.proto'; message A { base.Id id = 1; }"
    schema = parse_protobuf(text, {"middle.proto": middle})
    assert schema.message_class("A")(id={"id": "x"}).id.id == "x"
    assert list(schema.files)[:2] == ["base.proto", "middle.proto"]
    hidden = parse_protobuf("syntax = 'proto3'; import 'base.proto';", {"base.proto": base})
    with pytest.raises(InvalidSchemaError, match=r"base\.Id is not defined"):
        parse_protobuf(text, {"middle.proto": hidden})


def test_two_versions_of_one_import_are_refused() -> None:
    one = parse_protobuf("syntax = 'proto3'; message Id { string id = 1; }")
    two = parse_protobuf("syntax = 'proto3'; message Id { int32 id = 1; }")
    left = parse_protobuf("syntax = 'proto3'; import 'id.proto';", {"id.proto": one})
    text = "syntax = 'proto3'; import 'left.proto'; import 'id.proto';"
    with pytest.raises(InvalidSchemaError, match="two different files are imported"):
        parse_protobuf(text, {"left.proto": left, "id.proto": two})


@pytest.mark.parametrize("path", sorted(PATHS))
def test_a_built_in_file_declares_what_its_original_declares(path: str, tmp_path: Path) -> None:
    schema = built_in(path)
    if any((include / path).exists() for include in INCLUDES):
        wanted = comparable(protoc(tmp_path, path)[path])
        found = comparable(schema.descriptor)
        for copy in (wanted, found):
            copy.ClearField("options")
        if path != "google/protobuf/descriptor.proto":
            assert found == wanted
    assert parse_protobuf(schema.canonical(), schema.imports).own_symbols == schema.own_symbols


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"\xff\xff\xff", "neither .proto text nor a serialized FileDescriptorProto"),
        (FileDescriptorProto(message_type=[{"name": ""}]), "a message has no name"),
        (FileDescriptorProto(message_type=[{"name": "a b"}]), "a b"),
        (FileDescriptorProto(message_type=[{"name": "A;"}]), "A;"),
        (FileDescriptorProto(dependency=["x"]), "import 'x' has no reference"),
        (
            FileDescriptorProto(message_type=[{"name": "A", "field": [{"name": "a"}]}]),
            "line 1: ",
        ),
    ],
)
def test_a_descriptor_that_is_not_valid_is_refused(
    content: bytes | FileDescriptorProto, error: str
) -> None:
    if isinstance(content, FileDescriptorProto):
        content = content.SerializeToString()
    with pytest.raises(InvalidSchemaError, match=error):
        parse_protobuf(base64.b64encode(content).decode())


def test_an_empty_text_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match="the text is empty"):
        parse_protobuf(" \n")
    assert timestamp_pb2.Timestamp  # the global pool stays as it was


@pytest.mark.parametrize("has_oneof", [False, True])
def test_a_descriptor_may_leave_out_the_oneof_of_an_optional_field(*, has_oneof: bool) -> None:
    text = 'syntax = "proto3"; message A { optional B b = 1; enum B { C = 0; } }'
    whole = parse_protobuf(parse_protobuf(text).formatted("serialized"))
    descriptor = FileDescriptorProto.FromString(base64.b64decode(whole.formatted("serialized")))
    (message,) = descriptor.message_type
    message.field[0].ClearField("oneof_index")
    if not has_oneof:
        del message.oneof_decl[:]
    again = parse_protobuf(base64.b64encode(descriptor.SerializeToString()).decode())
    assert again.canonical() == whole.canonical()
    assert again.formatted("serialized") == whole.formatted("serialized")
