import json
import tracemalloc

import pytest

from ottla.registry.registry_state import RegistryState
from ottla.registry.schemas_log import SchemasRecord
from ottla.registry.schemas_records import (
    Record,
    delete_subject_record,
    max_ids_record,
    schema_record,
    schema_tombstone,
)
from ottla.schemas.schema import Schema, SchemaReference, SchemaType

INT = Schema('"int"')
STRING = Schema('"string"')


def replayed(*records: tuple[bytes | None, bytes | None]) -> RegistryState:
    state = RegistryState()
    for offset, (key, value) in enumerate(records):
        state.replay(SchemasRecord(offset, 1_000 + offset, key, value))
    return state


def raw(key: dict[str, object], value: object) -> Record:
    encoded = None if value is None else json.dumps(value).encode()
    return json.dumps(key).encode(), encoded


def test_equal_schemas_of_a_context_are_stored_once() -> None:
    state = replayed(schema_record("a", 1, 1, INT), schema_record("b", 1, 1, INT))
    assert state.versions("a")[1].stored is state.versions("b")[1].stored
    stored = state.stored(".", 1)
    assert stored is not None
    assert [version.place for version in state.versions_with(stored)] == [("a", 1), ("b", 1)]


def test_versions_of_an_import_are_in_order() -> None:
    state = replayed(schema_record("a", 5, 1, INT), schema_record("a", 2, 2, STRING))
    assert list(state.versions("a")) == [2, 5]


def test_a_soft_delete_hides_a_version_and_keeps_its_id() -> None:
    state = replayed(schema_record("a", 1, 1, INT), schema_record("a", 1, 1, INT, deleted=True))
    assert state.latest("a") is None
    assert state.latest("a", with_deleted=True) is not None
    assert state.stored(".", 1) is not None


def test_delete_subject_hides_the_versions_up_to_its_number() -> None:
    state = replayed(
        schema_record("a", 1, 1, INT),
        schema_record("a", 2, 2, STRING),
        delete_subject_record("a", 2),
        schema_record("a", 3, 1, INT),
    )
    assert [version.number for version in state.live_versions("a")] == [3]


def test_a_tombstone_removes_the_schema_with_its_last_version() -> None:
    records = schema_record("a", 1, 1, INT), schema_record("b", 1, 1, INT)
    state = replayed(*records, schema_tombstone("a", 1))
    assert state.stored(".", 1) is not None
    state = replayed(*records, schema_tombstone("a", 1), schema_tombstone("b", 1))
    assert state.stored(".", 1) is None
    assert state.find(".", INT) is None
    assert state.subjects() == []
    assert state.max_ids == {".": 1}


def test_the_highest_ids_survive_a_compaction() -> None:
    assert replayed(max_ids_record({".": 9, ".c": 3})).max_ids == {".": 9, ".c": 3}


def test_a_schema_with_two_ids_is_found_under_the_lower_one() -> None:
    records = schema_record("a", 1, 5, INT), schema_record("b", 1, 3, INT)
    found = replayed(*records).find(".", INT)
    assert found is not None
    assert found.id == 3
    found = replayed(*records, schema_tombstone("b", 1)).find(".", INT)
    assert found is not None
    assert found.id == 5


def test_equal_texts_of_two_types_are_two_schemas() -> None:
    state = replayed(schema_record("a", 1, 1, INT))
    assert state.find(".", Schema('"int"', SchemaType.JSON)) is None


def test_ids_belong_to_contexts() -> None:
    state = replayed(schema_record("a", 1, 1, INT), schema_record(":.c:a", 1, 1, STRING))
    assert state.contexts() == [".", ".c"]
    assert state.subjects() == [":.c:a", "a"]
    assert [state.versions(one)[1].stored.schema for one in ("a", ":.c:a")] == [INT, STRING]


def test_a_reference_without_context_is_in_the_context_of_its_referrer() -> None:
    referring = Schema('"r"', references=(SchemaReference("n", "b", 1),))
    state = replayed(schema_record(":.c:a", 1, 1, referring))
    assert [one.subject for one in state.referrers(":.c:b", 1)] == [":.c:a"]
    assert state.referrers("b", 1) == []


def test_unreadable_records_are_skipped_with_one_line_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad_version = raw(
        {"keytype": "SCHEMA", "subject": "a", "version": 0, "magic": 1},
        {"subject": "a", "version": 0, "id": 1, "schema": "x"},
    )
    bad_type = raw(
        {"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 1},
        {"subject": "a", "version": 1, "id": 1, "schema": "x", "schemaType": "XML"},
    )
    state = replayed(
        (None, b"x"), (b"{", None), bad_version, bad_type, schema_record("a", 1, 1, INT)
    )
    assert state.unreadable == len(caplog.records) == 4
    assert list(state.versions("a")) == [1]
    assert state.end_offset == 5


def test_a_topic_of_confluent_loads() -> None:
    state = replayed(
        raw({"keytype": "NOOP", "magic": 0}, None),
        raw({"keytype": "CONTEXT", "tenant": "default", "context": ".c", "magic": 0}, {
            "tenant": "default", "context": ".c", "offset": 1, "ts": 2,
        }),
        raw({"keytype": "CONFIG", "subject": None, "magic": 0}, {
            "subject": None, "compatibilityLevel": "FULL", "compatibilityGroup": "major",
        }),
        raw({"keytype": "MODE", "subject": "a", "magic": 0}, {"subject": "a", "mode": "READONLY"}),
        raw({"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 1}, {
            "subject": "a", "version": 1, "id": 1, "guid": "g", "md5": "m", "schema": '"int"',
            "metadata": {"properties": {"major": "1"}}, "ruleSet": {"domainRules": [
                {"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "x",
                 "disabled": False}]},
            "deleted": False, "ts": 17,
        }),
        raw({"keytype": "SCHEMA", "subject": "b", "version": 1, "magic": 1}, {
            "subject": "b", "version": 1, "id": 2, "schema": "{}", "schemaType": "JSON",
            "references": [{"name": "n", "subject": "a", "version": 1}], "deleted": False,
        }),
        raw({"keytype": "DELETE_SUBJECT", "subject": "b", "magic": 0}, {
            "subject": "b", "version": 1,
        }),
        raw({"keytype": "CLEAR_SUBJECT", "subject": "b", "magic": 0}, {"subject": "b"}),
        raw({"keytype": "MODE", "subject": "a", "magic": 0}, None),
    )  # fmt: skip
    assert state.unreadable == 0
    assert state.subjects() == ["a"]
    assert state.contexts() == [".", ".c"]
    assert state.configs[""].compatibility_group == "major"
    assert state.modes == {}
    assert state.max_ids == {".": 2}


def test_a_topic_of_karapace_loads() -> None:
    state = replayed(
        raw({"subject": None, "magic": 0, "keytype": "CONFIG"}, {"compatibilityLevel": "NONE"}),
        raw({"keytype": "SCHEMA", "magic": 1, "subject": "a", "version": 1}, {
            "deleted": False, "id": 1, "schema": '"int"', "subject": "a", "version": 1,
        }),
        raw({"keytype": "SCHEMA", "magic": 1, "subject": "a", "version": 2}, {
            "deleted": False, "id": 2, "schema": "{}", "schemaType": "JSON", "subject": "a",
            "version": 2, "references": [],
        }),
        raw({"keytype": "DELETE_SUBJECT", "magic": 0, "subject": "a"}, {
            "subject": "a", "version": 1,
        }),
        (json.dumps({"keytype": "SCHEMA", "magic": 1, "subject": "a", "version": 2}).encode(), b""),
    )  # fmt: skip
    assert state.unreadable == 0
    assert list(state.versions("a")) == [1]
    assert state.live_versions("a") == []


def test_a_schema_takes_less_than_five_kilobytes() -> None:
    fields = ",".join(f'{{"name":"field_{n}","type":["null","string"]}}' for n in range(20))
    records = [
        schema_record(f"s{n // 3}", n % 3 + 1, n + 1, Schema(f'{{"name":"R{n}","f":[{fields}]}}'))
        for n in range(600)
    ]
    tracemalloc.start()
    try:
        state = replayed(*records)
        size_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(state.subjects()) == 200
    assert size_bytes / 600 < 5_000
