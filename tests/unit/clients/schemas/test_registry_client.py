"""The registry clients: requests, retries, fail-over, caches and errors."""

import asyncio
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, current_thread
from typing import Any

import pytest

from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.schemas.registry_calls import RegistryError, RegistryUnreachableError
from ottla.clients.schemas.registry_client import AsyncRegistryClient, RegistryClient
from ottla.clients.schemas.schema_settings import (
    RegistrySettings,
    parse_servers,
    read_registry_settings,
)
from ottla.schemas.parsing import parse_schema
from ottla.schemas.schema import Metadata, Rule, RuleSet, Schema, SchemaReference, SchemaType
from tests.unit.clients.schemas.scripted_server import ScriptedServer, Seen

TEXT = '{"type":"record","name":"Order","fields":[]}'
UNKNOWN = {"error_code": 40403, "message": "Schema 9 not found"}


def client_of(*urls: str, **changed: Any) -> RegistryClient:
    servers = parse_servers(",".join(urls))
    return RegistryClient(RegistrySettings(servers, backoff_ms=1, **changed))


def closed_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@pytest.mark.parametrize(("fields", "is_apart"), [(1, False), (2000, True)])
def test_an_asyncio_client_parses_large_schemas_in_another_thread(
    monkeypatch: pytest.MonkeyPatch, fields: int, is_apart: bool
) -> None:
    threads = []

    def parse(*given: Any) -> Any:
        threads.append(current_thread())
        return parse_schema(*given)

    monkeypatch.setattr("ottla.schemas.parsing.parse_schema", parse)
    rows = [{"name": f"field{n}", "type": "long"} for n in range(fields)]
    schema = Schema(json.dumps({"type": "record", "name": "Wide", "fields": rows}))

    async def parsed() -> Any:
        async with AsyncRegistryClient(url="http://127.0.0.1:1") as client:
            return await client.parsed(schema)

    assert asyncio.run(parsed()).record_name == "Wide"
    assert [thread is not current_thread() for thread in threads] == [is_apart]


def test_register_sends_the_schema_once_and_asks_for_all_members() -> None:
    with (
        ScriptedServer(lambda seen: (200, {"id": 7, "guid": "g", "version": 2})) as server,
        client_of(server.url) as client,
    ):
        schema = Schema(
            TEXT,
            SchemaType.JSON,
            (SchemaReference("a.json", "a", 1),),
            Metadata({"f": ("PII",)}, {"owner": "shop"}, ("owner",)),
            RuleSet(domain_rules=(Rule("positive", "CONDITION", expr="x > 0", tags=("t",)),)),
        )
        found = client.register("orders-value", schema, normalize=True)
        assert (found.id, found.guid, found.version, found.subject) == (7, "g", 2, "orders-value")
        assert client.register("orders-value", schema, normalize=True) is found
        (request,) = server.seen
    assert (request.method, request.path) == (
        "POST",
        "/subjects/orders-value/versions?normalize=true",
    )
    assert request.headers["confluent-accept-unknown-properties"] == "true"
    assert request.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    assert request.body == {
        "schema": TEXT,
        "schemaType": "JSON",
        "references": [{"name": "a.json", "subject": "a", "version": 1}],
        "metadata": {
            "tags": {"f": ["PII"]},
            "properties": {"owner": "shop"},
            "sensitive": ["owner"],
        },
        "ruleSet": {
            "domainRules": [
                {"name": "positive", "kind": "CONDITION", "expr": "x > 0", "tags": ["t"]}
            ]
        },
    }


def test_a_schema_is_read_with_its_references_metadata_and_rules() -> None:
    answer = {
        "schema": TEXT,
        "schemaType": "PROTOBUF",
        "guid": "g",
        "references": [{"name": "a.proto", "subject": "a", "version": 1}],
        "metadata": {"properties": {"owner": "shop"}},
        "ruleSet": {"migrationRules": [{"name": "up", "mode": "UPGRADE", "disabled": True}]},
        "unknown": 1,
    }
    with ScriptedServer(lambda seen: (200, answer)) as server, client_of(server.url) as client:
        found = client.schema_by_id(3, format="serialized")
        assert client.schema_by_id(3, format="serialized") is found
        assert server.paths == ["GET /schemas/ids/3?format=serialized"]
    assert found.id == 3
    assert found.schema == Schema(
        TEXT,
        SchemaType.PROTOBUF,
        (SchemaReference("a.proto", "a", 1),),
        Metadata(properties={"owner": "shop"}),
        RuleSet(migration_rules=(Rule("up", mode="UPGRADE", disabled=True),)),
    )


def test_every_other_operation_asks_its_path() -> None:
    full = {"subject": "a/b", "version": 1, "id": 1, "schema": TEXT}

    def answer(seen: Seen) -> tuple[int, Any]:
        if seen.method == "DELETE":
            return 200, {
                "mode": "X"
            } if "mode" in seen.path else 1 if "/versions/" in seen.path else [1]
        if seen.path.startswith("/mode"):
            return 200, {"mode": "IMPORT"}
        if seen.path.startswith("/compatibility"):
            return 200, {"is_compatible": False, "messages": ["no"]}
        if seen.path.endswith("/versions?deleted=true"):
            return 200, [1, 2]
        return 200, ["a/b"] if seen.path.startswith("/subjects?") else full

    with ScriptedServer(answer) as server, client_of(server.url) as client:
        assert client.look_up("a/b", Schema(TEXT), deleted=True).version == 1
        assert client.schema_by_guid("g").guid == "g"
        assert client.latest_version("a/b").schema.text == TEXT
        assert client.latest_with_metadata("a/b", {"owner": "x y"}).id == 1
        assert client.version("a/b", 1, deleted=True).id == 1
        assert client.versions("a/b", deleted=True) == [1, 2]
        assert client.subjects(":.c:", deleted=True) == ["a/b"]
        result = client.check_compatibility("a/b", Schema(TEXT), version=None)
        assert (result.is_compatible, result.messages) == (False, ("no",))
        client.config("a/b")
        client.set_config({"compatibility": "FULL"})
        client.delete_config("a/b")
        assert client.mode("a/b") == "IMPORT"
        assert client.set_mode("IMPORT", force=True) == "IMPORT"
        client.delete_mode("a/b")
        assert client.delete_version("a/b", "latest") == 1
        assert client.delete_subject("a/b", permanent=True) == [1]
        assert server.paths == [
            "POST /subjects/a%2Fb?deleted=true",
            "GET /schemas/guids/g",
            "GET /subjects/a%2Fb/versions/latest",
            "GET /subjects/a%2Fb/metadata?key=owner&value=x+y",
            "GET /subjects/a%2Fb/versions/1?deleted=true",
            "GET /subjects/a%2Fb/versions?deleted=true",
            "GET /subjects?subjectPrefix=%3A.c%3A&deleted=true",
            "POST /compatibility/subjects/a%2Fb/versions?verbose=true",
            "GET /config/a%2Fb?defaultToGlobal=true",
            "PUT /config",
            "DELETE /config/a%2Fb",
            "GET /mode/a%2Fb?defaultToGlobal=true",
            "PUT /mode?force=true",
            "DELETE /mode/a%2Fb",
            "DELETE /subjects/a%2Fb/versions/latest",
            "DELETE /subjects/a%2Fb?permanent=true",
        ]
        assert len({request.peer for request in server.seen}) == 1, "the connection was not kept"


def test_an_unknown_id_is_asked_for_once_by_many_threads() -> None:
    arrived, answered = Barrier(8), Event()

    def answer(_: Seen) -> tuple[int, Any]:
        answered.wait(30)
        return 200, {"schema": TEXT}

    with (
        ScriptedServer(answer) as server,
        client_of(server.url) as client,
        ThreadPoolExecutor(8) as threads,
    ):

        def ask() -> str:
            arrived.wait(30)
            return client.schema_by_id(9).schema.text

        asked = [threads.submit(ask) for _ in range(7)]
        arrived.wait(30)
        answered.set()
        assert {future.result() for future in asked} == {TEXT}
        assert len(server.seen) == 1


def test_an_unknown_id_is_asked_for_once_by_many_tasks_although_the_first_is_cancelled() -> None:
    held = [Event(), Event()]
    arrived = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    def answer(_: Seen) -> tuple[int, Any]:
        loops[0].call_soon_threadsafe(arrived.set)
        held[len(server.seen) - 1].wait(30)
        return 200, {"schema": TEXT}

    async def run(url: str) -> None:
        loops.append(asyncio.get_running_loop())
        async with AsyncRegistryClient(url=url) as client:
            first = asyncio.create_task(client.schema_by_id(9))
            others = [asyncio.create_task(client.schema_by_id(9)) for _ in range(5)]
            await arrived.wait()
            first.cancel()
            held[1].set()
            found = await asyncio.gather(*others)
            assert {row.schema.text for row in found} == {TEXT}
            held[0].set()

    with ScriptedServer(answer) as server:
        asyncio.run(run(server.url))
        assert len(server.seen) == 2


def test_a_refusal_has_status_code_and_message_and_is_remembered_for_a_moment() -> None:
    with (
        ScriptedServer(lambda seen: (404, UNKNOWN)) as server,
        client_of(server.url) as client,
    ):
        for _ in range(3):
            with pytest.raises(RegistryError, match="Schema 9 not found") as caught:
                client.schema_by_id(9)
            assert (caught.value.status, caught.value.code) == (404, 40403)
        assert len(server.seen) == 1


def test_a_response_that_is_not_json_is_quoted() -> None:
    with (
        ScriptedServer(lambda seen: (403, b"<html>")) as server,
        client_of(server.url) as client,
        pytest.raises(RegistryError, match=r"Forbidden: <html> \(HTTP 403, code 403\)"),
    ):
        client.subjects()


def test_a_server_error_is_retried_unless_the_call_deletes() -> None:
    def answer(_: Seen) -> tuple[int, Any]:
        return 500, {"error_code": 50003, "message": "no leader"}

    with ScriptedServer(answer) as server, client_of(server.url, retries=2) as client:
        with pytest.raises(RegistryError, match="no leader"):
            client.register("a", Schema(TEXT))
        assert len(server.seen) == 3
        with pytest.raises(RegistryError, match="no leader"):
            client.delete_subject("a")
        assert len(server.seen) == 4


def test_a_kept_connection_that_the_server_has_closed_is_replaced() -> None:
    def answer(_: Seen) -> tuple[int, Any] | None:
        return None if len(server.seen) == 2 else (200, [])

    with ScriptedServer(answer) as server, client_of(server.url, retries=0) as client:
        assert client.subjects() == client.subjects() == []
        assert len(server.seen) == 3


def test_the_next_server_takes_over_and_stays_preferred() -> None:
    down = f"http://127.0.0.1:{closed_port()}"
    with (
        ScriptedServer(lambda seen: (503, {})) as ill,
        ScriptedServer(lambda seen: (200, [])) as well,
        client_of(down, ill.url, well.url) as client,
    ):
        assert client.subjects() == client.subjects() == []
        assert (len(ill.seen), len(well.seen)) == (1, 2)


def test_an_unreachable_registry_is_one_sentence() -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    with client_of(url, retries=1) as client, pytest.raises(RegistryUnreachableError) as caught:
        client.subjects()
    assert str(caught.value).startswith(f"the schema registry {url} is unreachable: {url}: [Errno")

    async def ask() -> None:
        async with AsyncRegistryClient(url=url, schema_registry_retries=0) as client:
            await client.subjects()

    with pytest.raises(RegistryUnreachableError, match="is unreachable"):
        asyncio.run(ask())


@pytest.mark.parametrize("is_async", [False, True])
def test_a_silent_server_ends_in_a_timeout(is_async: bool) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        settings = RegistrySettings(
            parse_servers(f"http://127.0.0.1:{silent.getsockname()[1]}"), timeout_ms=50, retries=0
        )

        async def ask() -> None:
            async with AsyncRegistryClient(settings) as client:
                await client.subjects()

        def call() -> None:
            if is_async:
                asyncio.run(ask())
            else:
                RegistryClient(settings).subjects()

        with pytest.raises(RegistryUnreachableError, match="did not answer within"):
            call()


def test_a_server_that_does_not_speak_http_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as threads:

        def serve() -> None:
            line, _ = listening.accept()
            with line:
                line.recv(1 << 16)
                line.sendall(b"\0\0\0\1nonsense\r\n\r\n")

        served = threads.submit(serve)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with (
            client_of(url, retries=0) as client,
            pytest.raises(RegistryUnreachableError, match="does not speak HTTP"),
        ):
            client.subjects()
        served.result()


def test_the_user_comes_from_the_url_or_from_the_settings() -> None:
    with ScriptedServer(lambda seen: (200, [])) as server:
        with_user = server.url.replace("//", "//milena:se%40cret@")
        for client in (
            RegistryClient(url=with_user),
            RegistryClient({"url": server.url, "basic.auth.user.info": "milena:se@cret"}),
        ):
            with client:
                client.subjects()
        assert {request.headers["authorization"] for request in server.seen} == {
            "Basic bWlsZW5hOnNlQGNyZXQ="
        }


def test_settings_that_are_wrong_are_named() -> None:
    with pytest.raises(InvalidClientSettingError, match=r"schema\.registry\.url is missing"):
        read_registry_settings({}, {})
    with pytest.raises(InvalidClientSettingError, match="'ftp://a' is not a URL"):
        read_registry_settings({"url": "ftp://a"}, {})
    with pytest.raises(InvalidClientSettingError, match="certificates"):
        RegistryClient({"url": "https://a", "ssl.ca.location": "/missing"})
    assert str(parse_servers("https://u:p@[::1]/registry/")[0]) == "https://[::1]:443/registry"
