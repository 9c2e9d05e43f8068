import pytest

from ottla.registry.schemas_records import (
    ConfigForm,
    SchemaValue,
    UnreadableRecordError,
    config_record,
    context_record,
    delete_subject_record,
    max_ids_record,
    metadata_form,
    metadata_of,
    mode_record,
    read_record,
    rule_set_form,
    rule_set_of,
    schema_of,
    schema_record,
    schema_tombstone,
)
from ottla.schemas.schema import (
    Metadata,
    Rule,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaType,
)


def test_records_have_the_bytes_that_confluent_writes() -> None:
    assert schema_record("s", 1, 7, Schema('"int"')) == (
        b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
        b'{"subject":"s","version":1,"id":7,"schema":"\\"int\\"","deleted":false}',
    )
    assert schema_tombstone("s", 2) == (
        b'{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}',
        None,
    )
    assert config_record("s", ConfigForm(compatibility_level="FULL")) == (
        b'{"keytype":"CONFIG","subject":"s","magic":0}',
        b'{"subject":"s","compatibilityLevel":"FULL"}',
    )
    assert config_record(None, None) == (
        b'{"keytype":"CONFIG","subject":null,"magic":0}',
        None,
    )
    assert mode_record("s", "IMPORT") == (
        b'{"keytype":"MODE","subject":"s","magic":0}',
        b'{"subject":"s","mode":"IMPORT"}',
    )
    assert delete_subject_record("s", 3) == (
        b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
        b'{"subject":"s","version":3}',
    )
    assert context_record(".c") == (
        b'{"keytype":"CONTEXT","tenant":"default","context":".c"}',
        b'{"tenant":"default","context":".c"}',
    )
    assert max_ids_record({".": 4})[0] == b'{"keytype":"NOOP","magic":0}'


def test_a_schema_with_everything_survives_a_record() -> None:
    rule = Rule("r", "TRANSFORM", "READ", "CEL", "doc", ("PII",), {"a": "b"}, "x", "NONE", "DLQ")
    schema = Schema(
        'syntax = "proto3";',
        SchemaType.PROTOBUF,
        (SchemaReference("a.proto", "a", 2),),
        Metadata({"path": ("PII",)}, {"owner": "me"}, ("owner",)),
        RuleSet(None, (rule,), None, "later"),
    )
    key, value = schema_record(":.c:s", 1, 7, schema, deleted=True)
    read = read_record(key, value)
    assert isinstance(read.value, SchemaValue)
    assert read.value.deleted
    assert schema_of(read.value) == schema
    assert metadata_of(metadata_form(schema.metadata)) == schema.metadata
    assert rule_set_of(rule_set_form(schema.rule_set)) == schema.rule_set


def test_members_are_read_in_any_order_and_unknown_ones_are_ignored() -> None:
    key = b'{"magic":1,"version":3,"hello":[1],"subject":"s","keytype":"SCHEMA"}'
    value = (
        b'{"schema":"\\"int\\"","id":1,"md5":"x","ts":1,"version":3,"subject":"s","deleted":true}'
    )
    read = read_record(key, value)
    assert (read.key.subject, read.key.version) == ("s", 3)
    assert isinstance(read.value, SchemaValue)
    assert read.value.deleted


def test_an_empty_value_is_a_tombstone() -> None:
    assert read_record(b'{"subject":"s","magic":0,"keytype":"CONFIG"}', b"").value is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"", None),
        (b"\xff", None),
        (b"[]", None),
        (b'{"keytype":"STRANGE"}', b"{}"),
        (b'{"keytype":"MODE","subject":"s","magic":0}', b"[]"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"subject":"s"}'),
        (b'{"keytype":"CONFIG","subject":"s","magic":0,"x":' + b"[" * 100_000, b"{}"),
    ],
)
def test_an_unreadable_record_is_one_error(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(UnreadableRecordError):
        read_record(key, value)
