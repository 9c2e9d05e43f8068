"""The REST proxy on a broker, by real sockets."""

import json
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from schemathesis.checks import not_a_server_error

from ottla import Admin, Consumer, Producer, SchemaDeserializer
from ottla.clients.schemas.registry_client import RegistryClient
from ottla.rest.http_application import BODY_BYTES_MAX, BODY_ITEMS_MAX
from ottla.rest.openapi import openapi_document
from ottla.rest.routes import ROUTES
from ottla.testing import Broker
from tests.rest_calls import JSON, V2, RestCalls, v2

LETTER = json.dumps(
    {
        "type": "record",
        "name": "Letter",
        "fields": [{"name": "to", "type": "string"}, {"name": "pages", "type": ["null", "int"]}],
    }
)
JSON_SCHEMA = '{"type":"object","properties":{"to":{"type":"string"}},"required":["to"]}'
MESSAGE = 'syntax = "proto3"; message Letter { string to = 1; int32 pages = 2; }'
FORMATS = [
    ("binary", None, "AQI="),
    ("json", None, {"to": "Milena", "pages": [1, 2]}),
    ("avro", LETTER, {"to": "Milena", "pages": {"int": 2}}),
    ("jsonschema", JSON_SCHEMA, {"to": "Milena"}),
    ("protobuf", MESSAGE, {"to": "Milena", "pages": 2}),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(rest=True) as broker:
        yield broker


@pytest.fixture
def rest(broker: Broker) -> RestCalls:
    return RestCalls(broker.rest_url)


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: Broker) -> str:
    name = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)[:100]
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.topics.create(name, partitions=2)
    return name


def produced(rest: RestCalls, topic: str, *values: Any, partition: int = 0) -> None:
    records = [{"value": value} for value in values]
    path = f"/topics/{topic}/partitions/{partition}"
    answer = rest.post(path, {"records": records}, v2("json"))
    assert [row["error_code"] for row in answer["offsets"]] == [None] * len(values)


def instance_of(rest: RestCalls, topic: str, form: str = "json", **more: str) -> str:
    """Create an instance that reads a topic from its beginning; return its path."""
    given = {"format": form, "auto.offset.reset": "earliest", **more}
    answer = rest.post(f"/consumers/group-{topic}", given)
    path = f"/consumers/group-{topic}/instances/{answer['instance_id']}"
    assert answer["base_uri"] == rest.url + path
    rest.post(f"{path}/subscription", {"topics": [topic]})
    return path


def consumed(rest: RestCalls, path: str, form: str = "json", count: int = 1) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + 20
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} records"
        found += rest.get(f"{path}/records?timeout=3000", v2(form))
    return found


# -- version 2 ------------------------------------------------------------------------------------


def test_topics_and_partitions_are_described(rest: RestCalls, topic: str) -> None:
    produced(rest, topic, 1, 2)
    assert topic in rest.get("/topics")
    found = rest.get(f"/topics/{topic}")
    assert found["configs"]["cleanup.policy"] == "delete"
    assert [row["partition"] for row in found["partitions"]] == [0, 1]
    assert rest.get(f"/topics/{topic}/partitions") == found["partitions"]
    assert rest.get(f"/topics/{topic}/partitions/1") == found["partitions"][1]
    assert rest.get(f"/topics/{topic}/partitions/0/offsets") == {
        "beginning_offset": 0,
        "end_offset": 2,
    }
    assert rest.get("/brokers") == {"brokers": [1]}


@pytest.mark.parametrize(("form", "schema", "value"), FORMATS)
def test_a_record_of_each_format_is_read_as_it_was_written(
    rest: RestCalls, topic: str, form: str, schema: str | None, value: Any
) -> None:
    schemas = {} if schema is None else {"key_schema": schema, "value_schema": schema}
    records = [{"key": value, "value": value, "partition": 0}, {"value": None, "partition": 0}]
    answer = rest.post(f"/topics/{topic}", {**schemas, "records": records}, v2(form))
    assert [row["offset"] for row in answer["offsets"]] == [0, 1]
    assert (answer["value_schema_id"] is None) is (schema is None)
    if schema is not None:
        ids = {
            "key_schema_id": answer["key_schema_id"],
            "value_schema_id": answer["value_schema_id"],
        }
        rest.post(f"/topics/{topic}", {**ids, "records": records[:1]}, v2(form))
    path = instance_of(rest, topic, form)
    first, second = consumed(rest, path, form, 2)[:2]
    assert first == {"topic": topic, "key": value, "value": value, "partition": 0, "offset": 0}
    assert (second["key"], second["value"]) == (None, None)
    first_only = "offset=0&max_bytes=1&timeout=30000"
    found = rest.get(f"/topics/{topic}/partitions/0/records?{first_only}", v2(form))
    assert found == [first]
    rest.ask("DELETE", path)


def test_other_clients_read_the_proxys_avro(broker: Broker, rest: RestCalls, topic: str) -> None:
    body = {"value_schema": LETTER, "records": [{"value": {"to": "Milena", "pages": None}}]}
    rest.post(f"/topics/{topic}", body, v2("avro"))
    with (
        RegistryClient(url=broker.registry_url) as registry,
        Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id=f"others-{topic}",
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        consumer.subscribe([topic])
        record = next(iter(consumer))
        reader = SchemaDeserializer("schema", registry)
        assert reader.deserialize(topic, record.value) == {"to": "Milena", "pages": None}


def test_records_that_fail_do_so_alone(rest: RestCalls, topic: str) -> None:
    records = [{"value": 1}, {"value": 2, "partition": 7}, {"value": "x" * (2 << 20)}]
    answer = rest.post(f"/topics/{topic}", {"records": records}, v2("json"))
    first, second, third = answer["offsets"]
    assert first["error_code"] is None
    assert (second["error_code"], third["error_code"]) == (1, 1)
    assert "Partition 7" in second["error"]


@pytest.mark.parametrize(
    ("form", "body", "code"),
    [
        ("avro", {"records": [{"key": 1, "value": None}]}, 42201),
        ("avro", {"records": [{"value": 1}]}, 42202),
        ("avro", {"value_schema": LETTER, "records": [{"value": {"to": 1}}]}, 42203),
        ("avro", {"value_schema": "{", "records": [{"value": 1}]}, 42205),
        ("avro", {"value_schema_id": 9999, "records": [{"value": 1}]}, 40403),
        ("binary", {"records": [{"value": "?"}]}, 42203),
        ("json", {"records": []}, 422),
        ("json", {}, 422),
        ("json", [], 422),
    ],
)
def test_invalid_produce_requests_have_their_codes(
    rest: RestCalls, topic: str, form: str, body: object, code: int
) -> None:
    status, found = rest.code("POST", f"/topics/{topic}", body, v2(form))
    assert found == code
    assert status == int(str(code)[:3])


def test_positions_commits_and_assignments(rest: RestCalls, topic: str) -> None:
    produced(rest, topic, *range(5))
    path = rest.post(f"/consumers/group-{topic}", {"format": "json", "name": "n"})["base_uri"]
    path = path.removeprefix(rest.url)
    names = {"partitions": [{"topic": topic, "partition": 0}]}
    rest.post(f"{path}/assignments", names)
    assert rest.get(f"{path}/assignments") == names
    place = {"topic": topic, "partition": 0, "offset": 3}
    rest.post(f"{path}/positions", {"offsets": [place]})
    assert [row["value"] for row in consumed(rest, path, count=2)] == [3, 4]
    rest.post(f"{path}/positions/beginning", names)
    assert [row["value"] for row in consumed(rest, path, count=5)] == [0, 1, 2, 3, 4]
    rest.post(f"{path}/positions/end", names)
    assert rest.get(f"{path}/records?timeout=100", v2("json")) == []
    rest.post(f"{path}/offsets", {"offsets": [{**place, "offset": 1}]})
    status, found = rest.ask("GET", f"{path}/offsets", names)
    assert (status, found["offsets"]) == (200, [{**place, "offset": 2, "metadata": ""}])
    assert rest.code("POST", f"{path}/subscription", {"topics": [topic]}) == (409, 40903)
    assert rest.ask("DELETE", path) == (204, None)
    assert rest.code("DELETE", path) == (404, 40403)


def test_a_response_has_no_more_bytes_than_asked_for_and_loses_nothing(
    rest: RestCalls, topic: str
) -> None:
    produced(rest, topic, *("x" * 1000 for _ in range(10)))
    path = instance_of(rest, topic, "json", **{"auto.commit.enable": "false"})
    consumed(rest, path, count=1)
    rest.post(f"{path}/positions/beginning", {"partitions": [{"topic": topic, "partition": 0}]})
    sizes = [
        len(rest.get(f"{path}/records?timeout=3000&max_bytes=3000", v2("json"))) for _ in range(4)
    ]
    assert sizes == [3, 3, 3, 1]
    rest.ask("DELETE", path)


def test_a_commit_covers_only_the_records_that_were_returned(rest: RestCalls, topic: str) -> None:
    produced(rest, topic, *range(10))
    path = instance_of(rest, topic, "json", **{"auto.commit.enable": "false"})
    returned = []
    while not returned:
        returned = rest.get(f"{path}/records?timeout=3000&max_bytes=1", v2("json"))
    rest.post(f"{path}/offsets")
    names = {"partitions": [{"topic": topic, "partition": 0}]}
    _, found = rest.ask("GET", f"{path}/offsets", names)
    assert [row["offset"] for row in found["offsets"]] == [1]
    rest.ask("DELETE", path)


def test_a_pattern_subscribes_to_the_topics_that_match(rest: RestCalls, topic: str) -> None:
    produced(rest, topic, 1)
    path = instance_of(rest, topic)
    rest.ask("DELETE", f"{path}/subscription")
    rest.post(f"{path}/subscription", {"topic_pattern": f"{topic[:-1]}."})
    assert rest.get(f"{path}/subscription") == {"topics": [topic]}
    both = {"topics": [topic], "topic_pattern": "x"}
    assert rest.code("POST", f"{path}/subscription", both) == (409, 40903)
    rest.ask("DELETE", path)


def test_a_record_of_another_format_is_an_error_that_a_seek_passes(
    rest: RestCalls, topic: str
) -> None:
    rest.post(f"/topics/{topic}/partitions/0", {"records": [{"value": "/w=="}]}, v2("binary"))
    produced(rest, topic, 1)
    path = instance_of(rest, topic)
    for _ in range(2):
        status, found = 200, []
        while status == 200:
            status, found = rest.ask("GET", f"{path}/records?timeout=3000", accept=v2("json"))
        assert (status, found["error_code"]) == (422, 42207)
        assert "offset 0" in found["message"]
    rest.post(f"{path}/positions", {"offsets": [{"topic": topic, "partition": 0, "offset": 1}]})
    assert [row["value"] for row in consumed(rest, path)] == [1]
    status, found = rest.ask("GET", f"{path}/records", accept=v2("avro"))
    assert (status, found["error_code"]) == (406, 40601)
    rest.ask("DELETE", path)


def test_a_request_that_waits_delays_no_other(rest: RestCalls, topic: str) -> None:
    path = instance_of(rest, topic)
    answers: list[Any] = []
    waiting = threading.Thread(
        target=lambda: answers.append(rest.ask("GET", f"{path}/records?timeout=60000"))
    )
    waiting.start()
    started = time.monotonic()
    assert topic in rest.get("/topics")
    assert rest.get(f"{path}/subscription") == {"topics": [topic]}
    assert rest.ask("DELETE", path) == (204, None)
    waiting.join()
    assert time.monotonic() - started < 30
    status, found = answers[0]
    assert (status, found["error_code"]) == (404, 40403)


# -- version 3 ------------------------------------------------------------------------------------


def test_a_topic_is_created_grown_and_deleted(rest: RestCalls) -> None:
    topics = f"{rest.cluster}/topics"
    body = {
        "topic_name": "v3_made",
        "partitions_count": 2,
        "configs": [{"name": "retention.ms", "value": "1000"}],
    }
    checked = rest.ask("POST", topics, {**body, "validate_only": True}, JSON)
    assert checked[0] == 200
    status, made = rest.ask("POST", topics, body, JSON)
    assert (status, made["partitions_count"], made["replication_factor"]) == (201, 2, 1)
    assert rest.code("POST", topics, body, JSON) == (400, 40002)
    config = rest.get(f"{topics}/v3_made/configs/retention.ms")
    assert (config["value"], config["source"]) == ("1000", "DYNAMIC_TOPIC_CONFIG")
    grown = rest.ask("PATCH", f"{topics}/v3_made", {"partitions_count": 3}, JSON)[1]
    assert grown["partitions_count"] == 3
    assert rest.ask("DELETE", f"{topics}/v3_made") == (204, None)
    assert rest.code("GET", f"{topics}/v3_made") == (404, 40401)


def test_every_link_of_version_3_leads_to_a_page(rest: RestCalls, topic: str) -> None:
    """Follow all links, apart from pages that this proxy does not have."""
    path = instance_of(rest, topic)
    produced(rest, topic, 1)
    consumed(rest, path)
    rest.post(f"{path}/offsets")
    to_visit, seen = ["/v3/clusters"], {"/v3/clusters"}
    absent = ("/acls", "/reassignment")
    while to_visit:
        page = rest.get(to_visit.pop())
        for url in links(page):
            link = url.removeprefix(rest.url)
            is_other = "/topics/" in link and f"/topics/{topic}" not in link
            is_other |= "/consumer-groups/" in link and topic not in link
            if link not in seen and not link.endswith(absent) and not is_other:
                seen.add(link)
                to_visit.append(link)
    assert any(link.endswith("/lag-summary") for link in seen)
    assert any("/assignments/" in link or link.endswith("/assignments") for link in seen)
    rest.ask("DELETE", path)


def links(page: Any) -> Iterator[str]:
    if isinstance(page, list):
        for row in page:
            yield from links(row)
    elif isinstance(page, dict):
        for name, value in page.items():
            if name == "related" and isinstance(value, str):
                yield value
            else:
                yield from links(value)


def test_lags_count_the_records_after_the_commit(rest: RestCalls, topic: str) -> None:
    produced(rest, topic, *range(4))
    path = instance_of(rest, topic)
    consumed(rest, path, count=4)
    rest.post(f"{path}/offsets", {"offsets": [{"topic": topic, "partition": 0, "offset": 0}]})
    group = f"{rest.cluster}/consumer-groups/group-{topic}"
    assert rest.get(group)["state"] == "STABLE"
    summary = rest.get(f"{group}/lag-summary")
    assert (summary["total_lag"], summary["max_lag_topic_name"]) == (3, topic)
    lag = rest.get(f"{group}/lags/{topic}/partitions/0")
    assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (1, 4, 3)
    rest.ask("DELETE", path)


def test_a_stream_of_records_has_a_report_for_each(
    broker: Broker, rest: RestCalls, topic: str
) -> None:
    sent = [
        {
            "partition_id": 1,
            "key": {"type": "STRING", "data": "k"},
            "value": {"type": "JSON", "data": {"n": 1}},
            "headers": [{"name": "h", "value": "AQ=="}, {"name": "none"}],
            "timestamp": "2024-01-01T00:00:00Z",
        },
        {"value": {"type": "AVRO", "schema": LETTER, "data": {"to": "x", "pages": 1}}},
        {"value": {"data": {"to": "y", "pages": None}}},
        {"value": {"type": "BINARY", "data": "?"}},
        {"partition_id": "one"},
    ]
    body = "".join(map(json.dumps, sent)).encode()
    reports = rest.lines(f"{rest.cluster}/topics/{topic}/records", body)
    assert [row["error_code"] for row in reports] == [200, 200, 200, 42203, 422]
    assert reports[0]["key"] == {"type": "STRING", "size": 1}
    assert reports[0]["timestamp"] == "2024-01-01T00:00:00.000Z"
    assert reports[2]["value"]["schema_id"] == reports[1]["value"]["schema_id"]
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign([(topic, 1)])
        consumer.seek_to_beginning()
        record = next(row for row in consumer if row.key == b"k")
    assert record.headers == (("h", b"\1"), ("none", None))
    assert record.timestamp == 1_704_067_200_000


def test_a_stream_ends_at_input_that_is_no_record(rest: RestCalls, topic: str) -> None:
    body = b'{"value": {"type": "STRING", "data": "a"}} nonsense'
    reports = rest.lines(f"{rest.cluster}/topics/{topic}/records", body)
    assert reports[-1]["error_code"] == 400


def test_a_batch_names_its_successes_and_failures(rest: RestCalls, topic: str) -> None:
    path = f"{rest.cluster}/topics/{topic}/records:batch"
    entries = [
        {"id": "a", "value": {"type": "STRING", "data": "x"}},
        {"id": "b", "value": {"type": "STRING", "data": 1}},
        {"id": "c", "partition_id": 9},
    ]
    status, answer = rest.ask("POST", path, {"entries": entries}, JSON)
    assert status == 207
    assert [row["id"] for row in answer["successes"]] == ["a"]
    failures = {row["id"]: row["error_code"] for row in answer["failures"]}
    assert failures == {"b": 42203, "c": 40402}
    for invalid in ([], [entries[0], entries[0]]):
        assert rest.code("POST", path, {"entries": invalid}, JSON) == (422, 42208)


# -- streams of records ---------------------------------------------------------------------------


def test_records_come_as_lines_between_bounds(rest: RestCalls, topic: str) -> None:
    produced(rest, topic, *({"n": number, "to": {"name": "M"}} for number in range(6)))
    path = f"/v1/topics/{topic}/records"
    assert [row["value"]["n"] for row in rest.lines(path)] == [0, 1, 2, 3, 4, 5]
    assert [row["offset"] for row in rest.lines(f"{path}?from=2&to=4")] == [2, 3]
    assert len(rest.lines(f"{path}?limit=2")) == 2
    assert rest.lines(f"{path}?from=end") == []
    assert len(rest.lines(f"{path}?from=2020-01-01T00:00:00Z")) == 6
    assert rest.lines(f"{path}?partition=1") == []
    for condition, count in (
        ("/n=3", 1),
        ("/n>=4", 2),
        ("/to/name=M", 6),
        ("/to/name!=M", 0),
        ("offset<2", 2),
        ("/missing", 0),
    ):
        assert len(rest.lines(f"{path}?filter={quote(condition)}")) == count, condition


@pytest.mark.parametrize(
    "query",
    [
        "from=tomorrow",
        "limit=0",
        "follow=true&to=1",
        "filter=",
        "partition=x",
        "filter=" + "a" * 2000,
    ],
)
def test_invalid_parameters_are_refused(rest: RestCalls, topic: str, query: str) -> None:
    assert rest.ask("GET", f"/v1/topics/{topic}/records?{query}")[0] == 422


def test_arrow_has_the_records_between_bounds(rest: RestCalls, topic: str) -> None:
    produced(rest, topic, *range(5))
    path = f"/v1/topics/{topic}/records?from=1&to=4"
    with rest.open("GET", path, accept="application/vnd.apache.arrow.stream") as response:
        table = pa.ipc.open_stream(response.read()).read_all()
    assert table["offset"].to_pylist() == [1, 2, 3]
    assert table["value"].to_pylist() == [b"1", b"2", b"3"]


def test_events_follow_a_topic(broker: Broker, rest: RestCalls, topic: str) -> None:
    path = f"/v1/topics/{topic}/records?follow=true&from=end&filter=/n%3E1"
    with rest.open("GET", path, accept="text/event-stream") as response:
        assert response.readline() == b": ottla\n"
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(3):
                producer.send(topic, json.dumps({"n": number}).encode(), partition=0)
        lines = iter(response.readline, b"")
        assert next(line for line in lines if line.startswith(b"id:")) == b"id: 0:2\n"
        assert json.loads(next(lines).removeprefix(b"data: "))["value"] == {"n": 2}


# -- all of it ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/topics/no-such-topic", 40401),
        ("GET", "/topics/no-such-topic/partitions/0", 40401),
        ("GET", "/consumers/g/instances/i/records", 40403),
        ("GET", "/v3/clusters/other/topics", 404),
        ("GET", "/nowhere", 404),
        ("GET", "/topics/%ff", 400),
        ("PUT", "/topics", 405),
    ],
)
def test_missing_things_have_their_codes(
    rest: RestCalls, method: str, path: str, code: int
) -> None:
    assert rest.code(method, path) == (int(str(code)[:3]), code)


def test_content_types_are_negotiated(rest: RestCalls, topic: str) -> None:
    assert rest.ask("GET", "/topics", accept="text/html")[0] == 406
    assert rest.ask("GET", "/topics", accept="text/html, */*;q=0.1")[0] == 200
    assert rest.code("POST", f"/topics/{topic}", {"records": []}, V2) == (415, 415)
    with rest.open("GET", "/topics") as response:
        assert response.getheader("Content-Type") == V2


def test_hostile_bodies_are_refused(rest: RestCalls, topic: str) -> None:
    deep = b'{"records":[{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}"
    path = f"/topics/{topic}"
    assert rest.code("POST", path, deep, v2("json"))[0] == 400
    assert rest.code("POST", path, b"\xff", v2("json"))[0] == 400
    many = b'{"records":[' + b"{}," * BODY_ITEMS_MAX + b"{}]}"
    assert rest.code("POST", path, many, v2("json"))[0] == 413
    values = b'{"records":[{"value":[' + b'"",' * BODY_ITEMS_MAX + b'""]}]}'
    assert rest.code("POST", path, values, v2("json"))[0] == 413
    address = urlsplit(rest.url)
    assert address.hostname
    connection = HTTPConnection(address.hostname, address.port, timeout=20)
    connection.putrequest("POST", path)
    connection.putheader("Content-Length", str(BODY_BYTES_MAX + 1))
    connection.endheaders()
    with connection.getresponse() as response:
        assert response.status == 413
    connection.close()


def test_the_document_has_every_route() -> None:
    paths = json.loads(openapi_document())["paths"]
    found = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert found == {(route.method, route.path) for route in ROUTES}


def test_no_generated_request_is_a_server_error(rest: RestCalls) -> None:
    schema = schemathesis.openapi.from_dict(json.loads(openapi_document()))
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=3,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            verbosity=Verbosity.quiet,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def check(case: schemathesis.Case) -> None:
            case.call_and_validate(base_url=rest.url, checks=[not_a_server_error])

        check()


def test_the_proxy_keeps_its_port_over_a_restart() -> None:
    with Broker(rest=True) as broker:
        url = broker.rest_url
        broker.restart()
        assert broker.rest_url == url
        assert RestCalls(url).get("/topics") == []
