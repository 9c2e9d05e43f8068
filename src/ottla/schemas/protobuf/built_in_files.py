"""The files that a schema may import without a reference: Protobuf's own and Confluent's.

The files under google/protobuf come with the package protobuf. The others are declared here.
"""

from functools import cache
from importlib import import_module
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto

_PROTOBUF_MODULES: Final = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in (
        "any",
        "api",
        "descriptor",
        "duration",
        "empty",
        "field_mask",
        "source_context",
        "struct",
        "timestamp",
        "type",
        "wrappers",
    )
}
_META: Final = """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option go_package="../confluent";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""


def _type_file(package: str, *messages: str, imports: tuple[str, ...] = ()) -> str:
    lines = ['syntax = "proto3";', f"package {package};"]
    lines += [f'import "{path}";' for path in imports]
    return "\n".join([*lines, *messages])


_GOOGLE: Final = "google.type"
_TEXTS: Final = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _type_file(
        "confluent.type",
        "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    ),
    "confluent/type/variant.proto": _type_file(
        "confluent.type", "message Variant { bytes metadata = 1; bytes value = 2; }"
    ),
    "confluent/types/decimal.proto": (
        'syntax = "proto3"; import public "confluent/type/decimal.proto";'
    ),
    "google/type/calendar_period.proto": _type_file(
        _GOOGLE,
        "enum CalendarPeriod { CALENDAR_PERIOD_UNSPECIFIED = 0; DAY = 1; WEEK = 2; FORTNIGHT = 3;"
        " MONTH = 4; QUARTER = 5; HALF = 6; YEAR = 7; }",
    ),
    "google/type/color.proto": _type_file(
        _GOOGLE,
        "message Color { float red = 1; float green = 2; float blue = 3;"
        " google.protobuf.FloatValue alpha = 4; }",
        imports=("google/protobuf/wrappers.proto",),
    ),
    "google/type/date.proto": _type_file(
        _GOOGLE, "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }"
    ),
    "google/type/datetime.proto": _type_file(
        _GOOGLE,
        "message DateTime { int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4;"
        " int32 minutes = 5; int32 seconds = 6; int32 nanos = 7; oneof time_offset {"
        " google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; } }",
        "message TimeZone { string id = 1; string version = 2; }",
        imports=("google/protobuf/duration.proto",),
    ),
    "google/type/dayofweek.proto": _type_file(
        _GOOGLE,
        "enum DayOfWeek { DAY_OF_WEEK_UNSPECIFIED = 0; MONDAY = 1; TUESDAY = 2; WEDNESDAY = 3;"
        " THURSDAY = 4; FRIDAY = 5; SATURDAY = 6; SUNDAY = 7; }",
    ),
    "google/type/decimal.proto": _type_file(_GOOGLE, "message Decimal { string value = 1; }"),
    "google/type/expr.proto": _type_file(
        _GOOGLE,
        "message Expr { string expression = 1; string title = 2; string description = 3;"
        " string location = 4; }",
    ),
    "google/type/fraction.proto": _type_file(
        _GOOGLE, "message Fraction { int64 numerator = 1; int64 denominator = 2; }"
    ),
    "google/type/interval.proto": _type_file(
        _GOOGLE,
        "message Interval { google.protobuf.Timestamp start_time = 1;"
        " google.protobuf.Timestamp end_time = 2; }",
        imports=("google/protobuf/timestamp.proto",),
    ),
    "google/type/latlng.proto": _type_file(
        _GOOGLE, "message LatLng { double latitude = 1; double longitude = 2; }"
    ),
    "google/type/localized_text.proto": _type_file(
        _GOOGLE, "message LocalizedText { string text = 1; string language_code = 2; }"
    ),
    "google/type/money.proto": _type_file(
        _GOOGLE, "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }"
    ),
    "google/type/month.proto": _type_file(
        _GOOGLE,
        "enum Month { MONTH_UNSPECIFIED = 0; JANUARY = 1; FEBRUARY = 2; MARCH = 3; APRIL = 4;"
        " MAY = 5; JUNE = 6; JULY = 7; AUGUST = 8; SEPTEMBER = 9; OCTOBER = 10; NOVEMBER = 11;"
        " DECEMBER = 12; }",
    ),
    "google/type/phone_number.proto": _type_file(
        _GOOGLE,
        "message PhoneNumber { message ShortCode { string region_code = 1; string number = 2; }"
        " oneof kind { string e164_number = 1; ShortCode short_code = 2; } string extension = 3; }",
    ),
    "google/type/postal_address.proto": _type_file(
        _GOOGLE,
        "message PostalAddress { int32 revision = 1; string region_code = 2;"
        " string language_code = 3; string postal_code = 4; string sorting_code = 5;"
        " string administrative_area = 6; string locality = 7; string sublocality = 8;"
        " repeated string address_lines = 9; repeated string recipients = 10;"
        " string organization = 11; }",
    ),
    "google/type/quaternion.proto": _type_file(
        _GOOGLE, "message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }"
    ),
    "google/type/timeofday.proto": _type_file(
        _GOOGLE,
        "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3;"
        " int32 nanos = 4; }",
    ),
}
PATHS: Final = frozenset({*_PROTOBUF_MODULES, *_TEXTS})


def built_in_text(path: str) -> str | None:
    """Return the text of a file that is declared here, or None."""
    return _TEXTS.get(path)


@cache
def protobuf_file(path: str) -> Any:
    """Return the descriptor of a file of the package protobuf, or None."""
    module = _PROTOBUF_MODULES.get(path)
    if module is None:
        return None
    return FileDescriptorProto.FromString(import_module(module).DESCRIPTOR.serialized_pb)
