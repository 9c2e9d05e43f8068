"""Confluent's registry client for Python and python-schema-registry-client, against ours."""

import json
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.common.schema_registry_client import (
    ConfigCompatibilityLevel,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError
from schema_registry.client import SchemaRegistryClient as CommunityClient
from schema_registry.client import schema as community_schema

from tests.registries import threaded_registry

PERSON = '{"type":"record","name":"Person","fields":[{"name":"id","type":"int"}]}'
WITH_NAME = (
    '{"type":"record","name":"Person","fields":'
    '[{"name":"id","type":"int"},{"name":"name","type":"string"}]}'
)


@pytest.fixture
def url() -> Iterator[str]:
    with threaded_registry() as served:
        yield served


@pytest.fixture
def client(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as made:
        yield made


def test_confluents_client_registers_and_reads(client: SchemaRegistryClient) -> None:
    schema = Schema(PERSON, "AVRO")
    assert client.register_schema("a", schema) == 1
    full = client.register_schema_full_response("b", schema)
    assert (full.schema_id, full.version) == (1, 1)
    assert client.get_schema(1).schema_str == PERSON
    assert client.get_schema_by_guid(full.guid).schema_str == PERSON
    assert client.get_schema_types() == ["JSON", "PROTOBUF", "AVRO"]
    assert client.get_subjects_by_schema_id(1) == ["a", "b"]
    versions = client.get_schema_versions(1)
    assert [(one.subject, one.version) for one in versions] == [("a", 1), ("b", 1)]
    looked_up = client.lookup_schema("a", schema)
    assert (looked_up.schema_id, looked_up.version) == (1, 1)
    assert client.get_latest_version("a").version == 1
    assert client.get_version("a", 1).schema.schema_str == PERSON
    assert client.get_versions("a") == [1]
    assert client.get_subjects() == ["a", "b"]
    assert client.get_contexts() == ["."]


def test_confluents_client_deletes(client: SchemaRegistryClient) -> None:
    client.register_schema("a", Schema(PERSON, "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject("a/b c")
    assert refused.value.error_code == 40401
    assert client.delete_version("a", 1) == 1
    assert client.delete_subject("b") == [] if "b" in client.get_subjects() else True
    assert client.delete_version("a", 1, permanent=True) == 1
    with pytest.raises(SchemaRegistryError) as gone:
        client.get_versions("a")
    assert (gone.value.http_status_code, gone.value.error_code) == (404, 40401)


def test_confluents_client_configures(client: SchemaRegistryClient) -> None:
    assert client.get_compatibility() == "BACKWARD"
    client.set_compatibility("a", "FULL")
    assert client.get_compatibility("a") == "FULL"
    client.set_config("a", ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))
    assert client.get_config("a").compatibility_level == "NONE"
    client.delete_config("a")
    client.update_mode("b", "READONLY")
    assert client.get_mode("b") == "READONLY"
    client.delete_mode("b")
    assert client.get_global_mode() == "READWRITE"
    client.update_global_mode("IMPORT", force=True)
    assert client.get_global_mode() == "IMPORT"


def test_confluents_client_checks_compatibility(client: SchemaRegistryClient) -> None:
    client.register_schema("a", Schema(PERSON, "AVRO"))
    assert not client.test_compatibility("a", Schema(WITH_NAME, "AVRO"))
    assert client.test_compatibility_all_versions("a", Schema(PERSON, "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("a", Schema(WITH_NAME, "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 40901)


def test_confluents_client_keeps_references_metadata_and_rules(
    client: SchemaRegistryClient,
) -> None:
    client.register_schema("person", Schema(PERSON, "AVRO"))
    rule = Rule("r", None, RuleKind.CONDITION, RuleMode.WRITE, "CEL", None, None, "true", None, None, False)  # fmt: skip  # noqa: E501
    schema = Schema(
        '{"type":"array","items":"Person"}',
        "AVRO",
        [SchemaReference("Person", "person", 1)],
        Metadata(None, MetadataProperties({"owner": "me"}), None),
        RuleSet(None, [rule]),
    )
    assert client.register_schema("people", schema) == 2
    found = client.get_latest_with_metadata("people", {"owner": "me"})
    assert found.schema.references == schema.references
    assert found.schema.metadata.properties.properties == {"owner": "me"}
    assert found.schema.rule_set.domain_rules[0].name == "r"
    assert client.get_referenced_by("person", 1) == [2]


@pytest.mark.parametrize(
    ("schema_type", "text"),
    [
        ("JSON", '{"type":"object","properties":{"a":{"type":"string"}}}'),
        ("PROTOBUF", 'syntax = "proto3";\nmessage M { string a = 1; }'),
    ],
)
def test_confluents_client_registers_the_other_types(
    client: SchemaRegistryClient, schema_type: str, text: str
) -> None:
    schema_id = client.register_schema("a", Schema(text, schema_type), normalize_schemas=True)
    assert client.get_schema(schema_id).schema_type == schema_type
    assert client.lookup_schema("a", Schema(text, schema_type), normalize_schemas=True).version == 1


def test_the_community_client_works(url: str) -> None:
    client = CommunityClient(url=url)
    schema = community_schema.AvroSchema(json.loads(PERSON))
    assert client.register("a", schema) == 1
    assert client.get_by_id(1) is not None
    assert client.get_schema("a").version == 1
    assert client.check_version("a", schema).schema_id == 1
    assert not client.test_compatibility("a", community_schema.AvroSchema(json.loads(WITH_NAME)))
    assert client.update_compatibility("NONE", subject="a")
    assert client.get_compatibility("a") == "NONE"
    assert client.get_subjects() == ["a"]
    assert client.get_versions("a") == [1]
    assert client.delete_version("a", "latest") == 1


def test_a_plain_client_sees_the_types_of_the_interface(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        body = {"schema": PERSON}
        registered = client.post("/subjects/a/versions", json=body)
        assert registered.json() == {"id": 1}
        assert registered.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
        assert client.get("/schemas/ids/1").json() == {"schema": PERSON}
        assert client.get("/subjects/", headers={"Accept": "text/xml"}).status_code == 406
        assert client.get("/openapi.json").json()["openapi"].startswith("3.")
