import asyncio
import json

import pytest

from ottla.registry.http_application import RegistryApplication
from ottla.registry.registry import Registry
from ottla.registry.registry_errors import RegistryError
from ottla.registry.registry_machine import Operation, RegistryMachine
from tests.registries import DirectClient, direct_client, no_forward, with_registry
from tests.schemas_log_twin import SchemasLogTwin, SharedLog

INT, STRING = '"int"', '"string"'
UNKNOWN = {"confluent_accept_unknown_properties": "true"}


@with_registry
async def test_an_id_answers_with_the_schema_only(client: DirectClient) -> None:
    await client.register("a", INT)
    await client.register("j", '{"type":"object"}', schemaType="JSON")
    assert (await client.get("/schemas/ids/1")).content == {"schema": INT}
    assert (await client.get("/schemas/ids/2")).content["schemaType"] == "JSON"
    full = (await client.get("/schemas/ids/1?fetchMaxId=true", **UNKNOWN)).content
    assert (full["schemaType"], full["maxId"]) == ("AVRO", 2)
    assert (await client.get(f"/schemas/guids/{full['guid']}")).content == {"schema": INT}
    ids = await client.get(f"/schemas/guids/{full['guid']}/ids")
    assert ids.content == [{"context": ".", "id": 1}]
    assert (await client.get("/schemas/guids/nonsense")).code == 40403
    text = await client.get("/schemas/ids/2/schema")
    assert text.content == {"type": "object"}
    for path in ("/schemas/ids/9", "/schemas/ids/x", "/schemas/ids/99999999999"):
        assert (await client.get(path)).code == 40403


@with_registry
async def test_a_version_answers_with_its_place(client: DirectClient) -> None:
    await client.register("a", INT)
    expected = {"subject": "a", "version": 1, "id": 1, "schema": INT}
    for version in ("1", "latest", "-1"):
        assert (await client.get(f"/subjects/a/versions/{version}")).content == expected
    full = (await client.get("/subjects/a/versions/1", **UNKNOWN)).content
    assert set(full) == {*expected, "guid", "schemaType", "ts", "deleted"}
    for version in ("0", "-2", "2147483648", "x", "1.0"):
        assert (await client.get(f"/subjects/a/versions/{version}")).code == 42202
    assert (await client.get("/subjects/a/versions/2")).code == 40402
    assert (await client.get("/subjects/b/versions/1")).code == 40401
    assert (await client.get("/subjects/a/versions/1/schema")).content == "int"
    assert (await client.get("/subjects/a/versions/1?format=strange")).status in {200, 422}


@with_registry
async def test_lists_have_pages(client: DirectClient) -> None:
    for name in "dcba":
        await client.register(name, INT)
    assert (await client.get("/subjects?offset=1&limit=2")).content == ["b", "c"]
    assert (await client.get("/subjects?limit=0")).content == []
    assert (await client.get("/subjects?offset=-3&limit=-1")).content == ["a", "b", "c", "d"]
    assert (await client.get("/subjects?limit=x")).code == 422
    assert (await client.get("/schemas/ids/1/subjects?limit=1")).content == ["a"]
    versions = (await client.get("/schemas/ids/1/versions?offset=3")).content
    assert versions == [{"subject": "d", "version": 1}]
    assert [one["subject"] for one in (await client.get("/schemas?limit=2")).content] == ["a", "b"]


@with_registry
async def test_schemas_are_listed_by_prefix(client: DirectClient) -> None:
    for subject in ("a1", "a2", "b", ":.c:a3"):
        await client.register(subject, INT)
    await client.register("a1", '["int"]')

    async def listed(query: str) -> list[str]:
        found = (await client.get("/schemas" + query)).content
        return [f"{one['subject']}/{one['version']}" for one in found]

    assert await listed("") == [":.c:a3/1", "a1/1", "a1/2", "a2/1", "b/1"]
    assert await listed("?subjectPrefix=a") == ["a1/1", "a1/2", "a2/1"]
    assert await listed("?subjectPrefix=:*:a&latestOnly=true") == [":.c:a3/1", "a1/2", "a2/1"]
    await client.delete("/subjects/b")
    assert await listed("?subjectPrefix=b") == []
    assert await listed("?subjectPrefix=b&deleted=true") == ["b/1"]
    await client.put("/config/zebra", {"alias": "a2"})
    assert await listed("?subjectPrefix=z&aliases=true") == ["a2/1"]


@with_registry
async def test_contexts_have_ids_and_subjects_of_their_own(client: DirectClient) -> None:
    await client.register("a", INT)
    await client.post("/contexts/c/subjects/a/versions", {"schema": STRING})
    assert (await client.get("/schemas/ids/1")).content == {"schema": INT}
    for path in (
        "/contexts/c/schemas/ids/1",
        "/contexts/.c/schemas/ids/1",
        "/contexts/:.c:/schemas/ids/1/",
        "/schemas/ids/1?subject=:.c:",
        "/schemas/ids/1?subject=:.c:a",
    ):
        assert (await client.get(path)).content == {"schema": STRING}, path
    assert (await client.get("/contexts/c/subjects")).content == [":.c:a"]
    assert (await client.get("/subjects")).content == [":.c:a", "a"]
    assert (await client.get("/subjects?subjectPrefix=")).content == ["a"]
    assert (await client.get("/subjects?subjectPrefix=:.c:")).content == [":.c:a"]
    assert (await client.get("/subjects/:.c:a/versions/1")).content["schema"] == STRING
    assert (await client.get("/subjects/%3A.c%3Aa/versions/1/")).content["schema"] == STRING
    assert (await client.get("/contexts?limit=1")).content == ["."]
    await client.register(":.c:only", '"long"')
    assert (await client.get("/schemas/ids/2?subject=only")).content == {"schema": '"long"'}


@with_registry
async def test_names_with_strange_characters_work(client: DirectClient) -> None:
    for name in ("a/b", "a b", "ä%", "..", "versions", "a?b#c", "a+b"):
        assert (await client.register(name, INT)).content == {"id": 1}, name
    assert len((await client.get("/subjects")).content) == 7
    assert (await client.get("/subjects/a%2Fb/versions")).content == [1]
    assert (await client.get("/subjects/%FF/versions")).status == 400


@with_registry
async def test_formats_and_references_are_shown_as_asked(client: DirectClient) -> None:
    await client.register("f", {"type": "fixed", "name": "F", "size": 2})
    references = [{"name": "F", "subject": "f", "version": 1}]
    await client.register("a", '{"type":"array","items":"F"}', references=references)
    shown = (await client.get("/schemas/ids/2?format=resolved")).content["schema"]
    assert json.loads(shown)["items"]["size"] == 2
    qualified = await client.get("/subjects/a/versions/1?referenceFormat=qualified")
    assert qualified.content["references"][0]["subject"] == ":.:f"
    proto = 'syntax = "proto3"; message M { string a = 1; }'
    await client.register("p", proto, schemaType="PROTOBUF")
    descriptor = (await client.get("/schemas/ids/3?format=serialized")).content["schema"]
    answer = await client.post("/subjects/p", {"schema": descriptor, "schemaType": "PROTOBUF"})
    assert answer.content["id"] == 3


@with_registry
async def test_the_server_describes_itself(client: DirectClient) -> None:
    assert (await client.get("/")).content == {}
    assert (await client.get("/schemas/types")).content == ["JSON", "PROTOBUF", "AVRO"]
    clusters = {"kafka-cluster": "cluster", "schema-registry-cluster": "schema-registry"}
    identity = {"scope": {"path": [], "clusters": clusters}}
    assert (await client.get("/v1/metadata/id")).content == identity
    assert (await client.get("/v1/metadata/version")).content == {"version": "1", "commitId": ""}


@with_registry
async def test_the_answer_has_the_type_that_the_client_takes(client: DirectClient) -> None:
    v1 = "application/vnd.schemaregistry.v1+json"
    for accept, expected in (
        ("", v1),
        ("*/*", v1),
        ("text/html, application/*;q=0.1", v1),
        ("application/json", "application/json"),
        ("application/json;q=0.5, application/vnd.schemaregistry+json", None),
    ):
        answer = await client.get("/", accept=accept)
        shown = dict(answer.response.headers)["Content-Type"]
        assert shown == (expected or "application/vnd.schemaregistry+json")
    refused = await client.get("/", accept="text/html")
    assert (refused.status, refused.code) == (406, 406)
    assert (await client.get("/", accept="application/json;q=0")).status == 406


@with_registry
async def test_bodies_have_a_known_type_and_form(client: DirectClient) -> None:
    path = "/subjects/a/versions"
    for content_type in ("application/json; charset=utf-8", "application/octet-stream"):
        answer = await client.post(path, {"schema": INT, "new": 1}, content_type=content_type)
        assert answer.content == {"id": 1}
    assert (await client.post(path, {}, content_type="text/plain")).code == 415
    for body in (b"", b"{", b"\xff", b'{"schema":"\\ud800"}', b"[" * 1_000_000):
        assert (await client.post(path, body)).status in {400, 422}, body[:20]
    for body in (b"[]", b'{"schema":1}', b'{"references":[{}]}', b'{"id":1e99}', b"null"):
        assert (await client.post(path, body)).code == 422, body
    for body in (b'{"mode":null}', b"{}"):
        assert (await client.put("/mode", body)).code == 422


@with_registry
async def test_unknown_paths_and_methods_are_404_and_405(client: DirectClient) -> None:
    for path in (
        "/x",
        "/subjects/a/b",
        "/subjects//versions",
        "/schemas/ids",
        "x",
        "*",
        "/contexts/c/x",
    ):
        assert (await client.get(path)).status == 404, path
    assert (await client.call("PATCH", "/subjects")).status == 405
    assert (await client.call("HEAD", "/subjects")).status == 200


def test_every_operation_is_authorized_with_its_subject() -> None:
    class Recorder:
        def __init__(self) -> None:
            self.seen: list[tuple[Operation, str | None]] = []

        def authorize(
            self, principal: str | None, operation: Operation, subject: str | None
        ) -> None:
            self.seen.append((operation, subject))
            raise RegistryError(40301, "no")

    async def story() -> None:
        async with direct_client() as client:
            recorder = Recorder()
            registry = client.application._registry
            guarded = DirectClient(RegistryApplication(registry, authorizer=recorder))
            answer = await guarded.register("a", INT)
            assert (answer.status, answer.code) == (403, 40301)
            await guarded.get("/contexts/c/config/a")
            await guarded.get("/subjects")
            assert recorder.seen == [
                (Operation.WRITE, "a"),
                (Operation.READ_CONFIG, ":.c:a"),
                (Operation.READ, None),
            ]

    asyncio.run(story())


def test_reads_wait_for_the_first_replay() -> None:
    async def story() -> None:
        shared = SharedLog()
        registry = Registry(SchemasLogTwin(shared), RegistryMachine(), no_forward)
        client = DirectClient(RegistryApplication(registry))
        reading = asyncio.ensure_future(client.get("/subjects"))
        running = asyncio.ensure_future(registry.run())
        assert (await reading).content == []
        running.cancel()

    asyncio.run(story())


@pytest.mark.parametrize("size", [10, 40_000])
def test_a_text_with_a_surrogate_is_refused(size: int) -> None:
    async def story() -> None:
        async with direct_client() as client:
            body = b'{"schema":"\\"\\ud800' + b"x" * size + b'\\""}'
            assert (await client.post("/subjects/a/versions", body)).status in {400, 422}

    asyncio.run(story())


@with_registry
async def test_tagged_entities_are_found(client: DirectClient) -> None:
    fields = [{"name": "x", "type": "int", "confluent:tags": ["PII"]}, {"name": "y", "type": "int"}]
    record = {"type": "record", "name": "A", "fields": fields, "confluent:tags": ["OWN"]}
    await client.register("a", record)
    field = {
        "schemaEntity": {"entityPath": "A.x", "entityType": "SR_FIELD"},
        "tags": ["PII"],
    }
    whole = {"schemaEntity": {"entityPath": "A", "entityType": "SR_RECORD"}, "tags": ["OWN"]}
    for path in ("/schemas/ids/1", "/subjects/a/versions/1"):
        assert "schemaTags" not in (await client.get(path)).content
        for query, found in {
            "findTags=PII": [field],
            "findTags=*": [whole, field],
            "findTags=OWN&findTags=PII": [whole, field],
            "findTags=none": [],
        }.items():
            answer = await client.get(f"{path}?{query}")
            assert answer.content.get("schemaTags", []) == found, (path, query)
