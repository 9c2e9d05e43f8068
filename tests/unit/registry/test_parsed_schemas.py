import json

import pytest

from ottla.registry.parsed_schemas import LIGHT_CHARACTERS_MAX, HeavyWorkError
from ottla.registry.registry_machine import RegistryMachine
from ottla.registry.schemas_log import SchemasRecord
from ottla.registry.schemas_records import Record, schema_record, schema_tombstone
from ottla.schemas.parsed_schema import InvalidSchemaError
from ottla.schemas.schema import Schema, SchemaReference


def machine_with(*records: Record) -> RegistryMachine:
    machine = RegistryMachine()
    for offset, (key, value) in enumerate(records):
        machine.state.replay(SchemasRecord(offset, 0, key, value))
    return machine


def fixed(name: str, size: int) -> Schema:
    return Schema(json.dumps({"type": "fixed", "name": name, "size": size}))


def referring(name: str, subject: str) -> Schema:
    text = json.dumps({"type": "array", "items": name})
    return Schema(text, references=(SchemaReference(name, subject, 1),))


def test_a_large_schema_is_left_to_another_thread() -> None:
    doc = "x" * (LIGHT_CHARACTERS_MAX + 1)
    large = Schema(json.dumps({"type": "fixed", "name": "F", "size": 1, "doc": doc}))
    parsed = machine_with().parsed
    with pytest.raises(HeavyWorkError) as heavy:
        parsed.canonical(".", large, normalize=False)
    heavy.value.work()
    assert doc in parsed.canonical(".", large, normalize=False)


def test_a_large_reference_makes_a_small_schema_heavy() -> None:
    doc = "x" * (LIGHT_CHARACTERS_MAX + 1)
    large = Schema(json.dumps({"type": "fixed", "name": "F", "size": 1, "doc": doc}))
    machine = machine_with(schema_record("f", 1, 1, large))
    with pytest.raises(HeavyWorkError):
        machine.parsed.canonical(".", referring("F", "f"), normalize=False)


def test_a_failure_of_heavy_work_is_the_error_of_the_decision() -> None:
    parsed = machine_with().parsed
    broken = Schema("[" * (LIGHT_CHARACTERS_MAX + 1))
    with pytest.raises(HeavyWorkError) as heavy:
        parsed.canonical(".", broken, normalize=False)
    heavy.value.work()
    with pytest.raises(InvalidSchemaError):
        parsed.canonical(".", broken, normalize=False)


def test_references_follow_a_version_that_was_replaced() -> None:
    old = schema_record("f", 1, 1, fixed("F", 1))
    machine = machine_with(old)
    resolved = machine.parsed.formatted(".", referring("F", "f"), "resolved")
    assert json.loads(resolved)["items"]["size"] == 1
    changes = schema_tombstone("f", 1), schema_record("f", 1, 2, fixed("F", 2))
    for offset, (key, value) in enumerate(changes, 1):
        machine.state.replay(SchemasRecord(offset, 0, key, value))
    resolved = machine.parsed.formatted(".", referring("F", "f"), "resolved")
    assert json.loads(resolved)["items"]["size"] == 2


def test_circular_references_of_a_foreign_log_are_one_error() -> None:
    records = [schema_record(name, 1, n, referring(other, other)) for n, name, other in (
        (1, "a", "b"), (2, "b", "a"))]  # fmt: skip
    machine = machine_with(*records)
    with pytest.raises(InvalidSchemaError, match="circular"):
        machine.parsed.canonical(".", referring("a", "a"), normalize=False)
