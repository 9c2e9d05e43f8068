"""Single-message transforms by name, as DataFrame expressions: no record passes through Python.

A frame has the columns key, value, topic, error, and the columns of its source. Most transforms
change fields of the value, which is then a struct. A tombstone, a null value, stays a tombstone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.model.settings.settings import nearest_to
from ottla.pipelines.connect.declaring.errors import ConnectorError
from ottla.pipelines.connect.declaring.settings import (
    REQUIRED,
    Setting,
    Values,
    pairs,
    text,
    words,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

Apply = Callable[["DataFrame", Values], "DataFrame"]


@dataclass(frozen=True, slots=True)
class Transform:
    """A named transform: its class in Kafka or Debezium, its settings, its function."""

    kafka_name: str
    settings: tuple[Setting, ...]
    apply: Apply


def fields_of(frame: "DataFrame") -> "StructType":
    """Return the fields of the value; ConnectorError if it has none."""
    from pyspark.sql.types import StructType  # noqa: PLC0415

    kind = frame.schema["value"].dataType
    if not isinstance(kind, StructType):
        raise ConnectorError(
            f"a transform needs fields, but the value is {kind.simpleString()}:"
            " declare its fields in value.schema, and use a converter with fields, such as json"
        )
    return kind


def _check_fields(frame: "DataFrame", names: tuple[str, ...], key: str) -> None:
    known = fields_of(frame).fieldNames()
    for name in names:
        if name not in known:
            raise ConnectorError(f"{key}: the value has no field {name!r}{nearest_to(name, known)}")


def _with_fields(frame: "DataFrame", fields: "list[Column]") -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415

    made = f.when(f.col("value").isNotNull(), f.struct(*fields))
    return frame.withColumn("value", made)


def _field(name: str) -> "Column":
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.col("value").getField(name)


def _rename(frame: "DataFrame", values: Values) -> "DataFrame":
    renames: dict[str, str] = values["renames"]
    _check_fields(frame, tuple(renames), "renames")
    names = fields_of(frame).fieldNames()
    return _with_fields(frame, [_field(name).alias(renames.get(name, name)) for name in names])


def _drop(frame: "DataFrame", values: Values) -> "DataFrame":
    _check_fields(frame, values["fields"], "fields")
    kept = [name for name in fields_of(frame).fieldNames() if name not in values["fields"]]
    return _with_fields(frame, [_field(name).alias(name) for name in kept])


def _keep(frame: "DataFrame", values: Values) -> "DataFrame":
    _check_fields(frame, values["fields"], "fields")
    return _with_fields(frame, [_field(name).alias(name) for name in values["fields"]])


def _mask(frame: "DataFrame", values: Values) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415

    _check_fields(frame, values["fields"], "fields")

    def masked(name: str, kind: "DataType") -> "Column":
        if name not in values["fields"]:
            return _field(name).alias(name)
        if values["method"] == "sha256":
            return f.sha2(_field(name).cast("string"), 256).alias(name)
        shown = values["replacement"]
        if shown is None:
            shown = _NOTHING_BY_TYPE.get(kind.simpleString())
        cover = f.lit(shown).cast(kind)
        return f.when(_field(name).isNotNull(), cover).alias(name)

    fields = fields_of(frame).fields
    return _with_fields(frame, [masked(field.name, field.dataType) for field in fields])


_NOTHING_BY_TYPE: Final = {
    "string": "",
    "boolean": "false",
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "float", "double"), "0"),
}
"""The value of a masked field, as in Kafka; null for all other types."""


def _route(frame: "DataFrame", values: Values) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415

    whole = f"^(?:{values['regex']})$"
    topic = f.regexp_replace("topic", whole, values["replacement"])
    return frame.withColumn("topic", topic)


def _flatten(frame: "DataFrame", values: Values) -> "DataFrame":
    leaves = list(_leaves(fields_of(frame), (), values["delimiter"]))
    return _with_fields(frame, [column.alias(name) for name, column in leaves])


def _leaves(
    kind: "StructType", above: tuple[str, ...], delimiter: str
) -> "Iterator[tuple[str, Column]]":
    from pyspark.sql import functions as f  # noqa: PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    for field in kind.fields:
        path = (*above, field.name)
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, path, delimiter)
            continue
        column = f.col("value")
        for name in path:
            column = column.getField(name)
        yield delimiter.join(path), column


def _cast(frame: "DataFrame", values: Values) -> "DataFrame":
    spec: dict[str, str] = values["spec"]
    _check_fields(frame, tuple(spec), "spec")
    fields = [
        (_field(name).cast(spec[name]) if name in spec else _field(name)).alias(name)
        for name in fields_of(frame).fieldNames()
    ]
    return _with_fields(frame, fields)


def _insert(frame: "DataFrame", values: Values) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415

    added = [
        f.col(column).alias(values[f"{column}.field"])
        for column in ("topic", "partition", "offset", "timestamp")
        if values[f"{column}.field"]
    ]
    if values["static.field"]:
        added.append(f.lit(values["static.value"]).alias(values["static.field"]))
    kept = [_field(name).alias(name) for name in fields_of(frame).fieldNames()]
    return _with_fields(frame, [*kept, *added])


def _value_to_key(frame: "DataFrame", values: Values) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415

    _check_fields(frame, values["fields"], "fields")
    fields = [_field(name).alias(name) for name in values["fields"]]
    made = f.when(f.col("value").isNotNull(), f.struct(*fields))
    return frame.withColumn("key", made)


def _filter(frame: "DataFrame", values: Values) -> "DataFrame":
    # An unreadable record has no fields to check, and is handled later.
    return frame.where(f"({values['condition']}) OR error IS NOT NULL")


def _unwrap(frame: "DataFrame", values: Values) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415

    mode = values["delete.tombstone.handling.mode"]
    after, op = _after_and_op(frame, is_rewriting=mode == "rewrite")
    # Both are taken from the value before it is replaced.
    opened = frame.withColumns({"_after": after, "_op": op}).where("_op IS NULL OR _op <> 't'")
    if mode != "tombstone":
        opened = opened.where("_after IS NOT NULL")
    return opened.withColumn("value", f.col("_after")).drop("_after", "_op")


def _after_and_op(frame: "DataFrame", *, is_rewriting: bool) -> "tuple[Column, Column]":
    """Return the row and the operation; rewriting keeps deleted rows, and adds `__deleted`."""
    from pyspark.sql import functions as f  # noqa: PLC0415
    from pyspark.sql.types import StringType  # noqa: PLC0415

    if isinstance(frame.schema["value"].dataType, StringType) and not is_rewriting:
        return f.get_json_object("value", "$.after"), f.get_json_object("value", "$.op")
    _check_fields(frame, ("before", "after", "op") if is_rewriting else ("after", "op"), "unwrap")
    after, op = _field("after"), _field("op")
    if is_rewriting:
        is_deleted = op == f.lit("d")
        row = f.when(is_deleted, _field("before")).otherwise(after)
        after = row.withField("__deleted", is_deleted)
    return after, op


def _names(summary: str) -> Setting:
    return Setting("fields", words, REQUIRED, summary)


def _optional(name: str, summary: str) -> Setting:
    return Setting(name, text, None, summary)


TRANSFORMS: Final = {
    "rename": Transform(
        "ReplaceField", (Setting("renames", pairs, REQUIRED, "old names to new names"),), _rename
    ),
    "drop": Transform("drop", (_names("the fields that are left out"),), _drop),
    "keep": Transform("keep", (_names("the only fields that stay"),), _keep),
    "mask": Transform(
        "MaskField",
        (
            _names("the fields with values to hide"),
            _optional("replacement", "the shown value; by default the type's empty value"),
            Setting("method", text, "replace", "a replacement, or a hash", ("replace", "sha256")),
        ),
        _mask,
    ),
    "route": Transform(
        "RegexRouter",
        (
            Setting("regex", text, REQUIRED, "matches the whole name of a topic"),
            Setting("replacement", text, REQUIRED, "the new name; $1 is the first group"),
        ),
        _route,
    ),
    "flatten": Transform(
        "Flatten", (Setting("delimiter", text, ".", "the separator of names"),), _flatten
    ),
    "cast": Transform("Cast", (Setting("spec", pairs, REQUIRED, "fields to types"),), _cast),
    "insert": Transform(
        "InsertField",
        (
            _optional("topic.field", "a field for the topic"),
            _optional("partition.field", "a field for the partition"),
            _optional("offset.field", "a field for the offset"),
            _optional("timestamp.field", "a field for the timestamp"),
            _optional("static.field", "a field for static.value"),
            _optional("static.value", "the value of static.field"),
        ),
        _insert,
    ),
    "value-to-key": Transform("ValueToKey", (_names("the fields of the key"),), _value_to_key),
    "filter": Transform(
        "filter",
        (
            Setting(
                "condition", text, REQUIRED, "an SQL condition; records for which it is true stay"
            ),
        ),
        _filter,
    ),
    "unwrap": Transform(
        "ExtractNewRecordState",
        (
            Setting(
                "delete.tombstone.handling.mode",
                text,
                "tombstone",
                "the treatment of deletes",
                ("tombstone", "drop", "rewrite"),
            ),
        ),
        _unwrap,
    ),
}


def transform_name(said: str) -> str | None:
    """Return our name of a transform from ours, Kafka's or Debezium's."""
    if said in TRANSFORMS:
        return said
    plain = said.rpartition(".")[2].partition("$")[0]
    return next((name for name, known in TRANSFORMS.items() if known.kafka_name == plain), None)
