"""Texts of `.proto` files that use most of the language, and texts that protoc refuses."""

from typing import Final

GOOD: Final = {
    "proto2": r"""
syntax = "proto2";
package a.b.c;
import "google/protobuf/descriptor.proto";
option optimize_for = CODE_SIZE;
option (my_file).inner.x = -5;
option (my_file).names = "a\n\x41\101\u00e9";
option (my_file).names = 'b' "c";
option (a.b.c.my_double) = -inf;
message Opt { optional Inner inner = 1; repeated string names = 2; message Inner {
  optional sint64 x = 1; optional E e = 2; extensions 100 to 200; } enum E { Z = 0;
  NEG = -1; BIG = 2147483647; SMALL = -2147483648; } }
extend Opt.Inner { optional string deep = 100; }
extend google.protobuf.FileOptions { optional Opt my_file = 50000;
  optional double my_double = 50001; }
extend google.protobuf.FieldOptions { repeated int32 nums = 50002;
  optional bytes raw = 50003; optional Opt.E en=50004; optional float fl = 50005;
  optional bool bo = 50006;}
extend google.protobuf.MessageOptions { optional Opt mo = 50000; }
extend google.protobuf.EnumOptions { optional string eo = 50000; }
extend google.protobuf.EnumValueOptions { optional fixed64 evo = 50000; }
extend google.protobuf.ServiceOptions { optional uint64 so = 50000; }
extend google.protobuf.MethodOptions { optional sfixed32 meo = 50000; }
extend google.protobuf.OneofOptions { optional string oo = 50000; }
extend google.protobuf.ExtensionRangeOptions { optional string ero = 50000; }
message M {
  option (mo) = { inner { x: 5 e: NEG [a.b.c.deep]: "hey" } names: ["p", 'q' "r"] };
  option message_set_wire_format = false;
  required int32 a = 1 [default = 0x7f, (nums) = 1, (nums) = 2, (raw) = "\xff\0",
  (en) = NEG, (fl) = 1.5e3, (bo) = true, deprecated = true];
  optional double d1 = 2 [default = 1e10]; optional double d2 = 3 [default = -inf];
  optional double d3 = 4 [default = nan];
  optional float f1 = 5 [default = .1]; optional float f2 = 6 [default = 3];
  optional float f3 = 7 [default = -1.5e-10];
  optional double d4=40 [default=123456789.123456789];
  optional float f4=41 [default=16777217]; optional double d5=42 [default=1e300];
  optional float f5=43[default=1e40];
  optional string s = 8 [default = "it's \"q\"\n\t\101"];
  optional bytes b = 9 [default = "\001\xff'\"\\z\n"];
  optional bool t = 10 [default = true]; optional Opt.E e = 11 [default = NEG];
  optional int64 big = 12 [default = -9223372036854775808];
  optional uint64 ub = 13 [default = 18446744073709551615];
  optional int32 oct = 14 [default = 017];
  repeated int32 p = 15 [packed = true];
  optional group Grp = 16 { optional int32 x = 1; repeated group Inner = 2 {
  optional M m = 1; } }
  oneof o { option (oo) = "zz"; string os = 17; group OG = 18 { optional int32 y = 1;
  } .a.b.c.M om = 19; c.M om2 = 20; b.c.Opt.Inner om3 = 21; }
  map<string, Opt.Inner> mm = 22; map<int32, bytes> first_name_x = 23;
  extensions 1000 to 1999 [(ero) = "r"]; extensions 3000, 3002 to 3005;
  extensions 10000 to max;
  reserved 500, 502 to 505, 600 to 610; reserved "foo", "bar";
  extend M { optional int32 nested_ext = 1000; repeated M rec_ext = 1001;
  optional group ExtGroup = 1002 { optional int32 q = 1; } }
  enum Inner2 { option allow_alias = true; option (eo) = "x"; A1 = 1 [(evo) = 7,
  deprecated = true]; A2 = 1; reserved -5 to -1, 10 to max, 7; reserved "QQ"; }
  optional string message = 30; optional string optional = 31; optional string to = 32;
  optional string max = 33 [json_name = "zap"]; optional Inner2 package = 34;
}
extend M { optional string file_ext = 1003; }
service S { option (so) = 3; rpc A(M) returns (M);
  rpc B(stream M) returns (stream .a.b.c.M) { option (meo) = -4;
  option idempotency_level = IDEMPOTENT; } ; }
;
""",
    "proto3": r"""
syntax = "proto3"; // c
/* x */ package p;
import "google/protobuf/any.proto"; import weak "google/protobuf/empty.proto";
  import public "google/protobuf/duration.proto";
import "google/protobuf/descriptor.proto";
extend google.protobuf.FieldOptions { optional google.protobuf.Any any = 50000;
  Thing thing = 50001; }
message Thing { map<string, int32> m = 1; repeated Thing t = 2; oneof x { int32 a = 3;
  string b = 4; } }
message A { optional int32 x = 1; int32 _x = 2; optional string X_x = 3; oneof real {
  bool r = 4; } optional A self = 5; repeated sint32 u = 6 [packed=false];
 google.protobuf.Any any = 7 [(p.any) = { [type.googleapis.com/p.Thing] { m {
  key: "k" value: 1 } t { a: 3 } } }];
 string q = 8 [(thing) = { m: [{key: "a", value: 2}, {key: "b"}] t: { b: "z" },
  t: <a: 1> ; }];
}
""",
    "edition": r"""
edition = "2023";
package e;
option features.field_presence = IMPLICIT;
option features.enum_type = CLOSED;
message A { int32 x = 1; int32 y = 2 [features.field_presence = EXPLICIT, default = 3];
  A d = 3 [features.message_encoding = DELIMITED];
  repeated int32 r = 4 [features.repeated_field_encoding = EXPANDED]; reserved foo, bar;
  string s = 5 [features.utf8_validation = NONE]; extensions 100 to 200;}
enum E { option features.enum_type = OPEN; Z = 0; reserved Q; }
extend A { int32 z = 100; }
""",
    "no package": r"""
message A { required B b = 1; message B {} } message B { optional A.B b = 1;
  optional .B c = 2; }
""",
    "scopes": r"""
syntax="proto3"; package foo.bar; message Outer { message foo { message bar {
  int32 x = 1; } } foo.bar a = 1; Outer.foo b = 2; .foo.bar.Outer c = 3; bar.Outer d = 4;}
""",
}

PROTO3: Final = (
    "message",
    "message A",
    "message A {",
    "message A { int32 }",
    "message A { int32 x }",
    "message A { int32 x = }",
    "message A { int32 x = 0; }",
    "message A { int32 x = -1; }",
    "message A { int32 x = 536870912; }",
    "message A { int32 x = 19000; }",
    "message A { int32 x = 1.5; }",
    "message A { int32 x = 1 }",
    "message A { required int32 x = 1; }",
    "message A { int32 x = 1 [default = 3]; }",
    "message A { B x = 1; }",
    "message A { int32 x = 1; int32 x = 2; }",
    "message A { int32 x = 1; int32 y = 1; }",
    "message A { int32 foo_bar = 1; int32 fooBar = 2; }",
    "message A { reserved 1; int32 x = 1; }",
    'message A { reserved "x"; int32 x = 1; }',
    "message A { reserved 1 to 3, 2; }",
    "message A { reserved 3 to 1; }",
    "message A { extensions 1 to 2; }",
    "message A { oneof o {} }",
    "message A { oneof o { repeated int32 x = 1; } }",
    "message A { oneof o { map<int32,int32> x = 1; } }",
    "message A { map<float,int32> x = 1; }",
    "message A { map<A,int32> x = 1; }",
    "message A { map<int32,map<int32,int32>> x = 1; }",
    "message A { repeated map<int32,int32> x = 1; }",
    "enum E {}",
    "enum E { A = 1; }",
    "enum E { A = 0; B = 0; }",
    "enum E { A = 0; A = 1; }",
    "enum E { A = 0; } enum F { A = 0; }",
    "enum E { A = 0; reserved 0; }",
    "enum E { A = 2147483648; }",
    "message A {} enum A { Z = 0; }",
    "package a; package b;",
    'import "x" ',
    'import "nope.proto";',
    "option nope = 1;",
    "option java_package = 1;",
    "option java_multiple_files = 1;",
    "option optimize_for = FAST;",
    'option java_package = "a"; option java_package = "b";',
    "option (nope) = 1;",
    "service S { rpc A(B) returns (B); }",
    "service S { rpc A(int32) returns (int32); }",
    "service S { foo; }",
    "message A { group G = 1 { } }",
    "extend A {}",
    "message A{} extend A { int32 x = 1; }",
    "message A { int32 x = 1 [json_name = 1]; }",
    "message A { int32 x = 1 [packed = true]; }",
    "message A { option map_entry = true; }",
    "} ",
    "message A { int32 x = 1; } }",
    "message 1A {}",
    'message A { "x" }',
    "message A { int32 x = 1 [deprecated = maybe]; }",
    "message A { int32 x = 1 [] ; }",
    "message A { enum E { X = 0; } E.X x = 1; }",
    "message A { .A.B x = 1; }",
    "message A { message B {} message C { B.D x = 1; } }",
    'syntax = "proto3";',
    "message A { string x = 1 [lazy = 1]; }",
    "message A { int32 x = 01z; }",
    "message A { int32 x = 0x; }",
    'option java_package = "\\q";',
    'option java_package = "a',
    "/* x",
    'message A { repeated int32 x = 1 [json_name = "a", json_name = "b"]; }',
    "message A { optional repeated int32 x = 1; }",
    "message A { int32 x = 99999999999999999999; }",
    "enum E { A = 0; B; }",
    "enum E { A = 0 [x=1]; }",
    "option java_package = {a: 1};",
    "option cc_generic_services.x = true;",
    "message A { int32 int32 = 1 ; } message int32 {} x",
    'message A { option deprecated = "x"; }',
    "message A { oneof o { int32 a = 1; } oneof o { int32 b = 2; } }",
    'import weak public "a";',
    "message A { repeated string s = 1 [packed = true]; }",
    "message A { int32 s = 1 [jstype = JS_STRING]; }",
    "message A { A a = 1 [ctype = CORD, packed=true]; }",
    'import "google/protobuf/any.proto"; import "google/protobuf/any.proto";',
    "message A { optional A.x a = 1; }",
    "message A { stream A x = 1; }",
    "message A { int32 x = 1; };;; , ",
)
"""Wrong after `syntax = "proto3";`."""
PROTO2: Final = (
    "message A { int32 x = 1; }",
    "message A { optional int32 x = 1 [default = 2147483648]; }",
    "message A { optional uint32 x = 1 [default = -1]; }",
    'message A { optional int32 x = 1 [default = "a"]; }',
    "message A { optional string x = 1 [default = 1]; }",
    "message A { optional bool x = 1 [default = 1]; }",
    "message A { repeated int32 x = 1 [default = 1]; }",
    "message A { optional A x = 1 [default = 1]; }",
    "enum E { Z = 1; } message A { optional E e = 1 [default = Q]; }",
    "message A { extensions 5 to 4; }",
    "message A { extensions 5; optional int32 x = 5; }",
    "message A { extensions 5; } extend A { optional int32 x = 6; }",
    "message A { extensions 5; } extend A { required int32 x = 5; }",
    "message A { extensions 5; } extend A { optional int32 x = 5; optional int32 y = 5; }",
    "message A { optional group g = 1 {} }",
    "message A { oneof o { optional int32 x = 1; } }",
    "message A { extensions 0; }",
    "message A { extensions 5 to 7, 6; }",
    "message A { reserved foo; }",
    'syntax = "proto4";',
    "enum E { A = 1; B = 1; }",
    "message A { optional group G = 1 {} optional int32 g = 2; }",
    "message A { extensions max; }",
)
OTHERS: Final = (
    'syntax = "proto4";',
    'edition = "1999";',
    'edition = "2023"; message A { optional int32 x = 1; }',
    'edition = "2023"; message A { required int32 x = 1; }',
    'edition = "2023"; message A { reserved "x"; }',
    'edition = "2023"; message A { int32 x = 1 [default = 1, features.field_presence = IMPLICIT]; }',  # noqa: E501
    'message A { } syntax = "proto2";',
    'edition = "2023"; message A { group G = 1 {} }',
)
BAD: Final = (
    *(f'syntax = "proto3"; {text}' for text in PROTO3),
    *(f'syntax = "proto2"; {text}' for text in PROTO2),
    *OTHERS,
)
