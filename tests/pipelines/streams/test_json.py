"""Values become columns, and a bad record is reported with its position and its error."""

from pathlib import Path
from typing import Any

import pytest

from ottla.streams import Pipeline, PipelineError, run, run_batch, stream
from tests.pipelines.streams.topics import committed, create, send, with_headers

SCHEMA = "id long NOT NULL, name string, price double, tags array<string>, at timestamp"
GOOD = {"id": 1, "name": "pen", "price": 1.5, "tags": ["a", "b"], "at": "2026-01-02T03:04:05.000Z"}
BAD = {
    b"{": "the value is not JSON: {",
    b"[1]": "the value is no JSON object: [1]",
    b'{"id": "seven", "name": "x"}': "field id is no bigint: seven",
    b'{"id": 7, "price": "dear"}': "field price is no double: dear",
    b'{"name": "x"}': "field id is missing",
    b'{"id": 7, "at": "at noon"}': "field at is no timestamp: at noon",
    b'{"id": 7, "tags": "a"}': "field tags is no array<string>: a",
    b"\xff\xfe": "the value is not UTF-8",
    b"": "the value is not JSON: ",
}


def test_fields_and_the_record_become_columns(spark: Any, broker_servers: str) -> None:
    create(broker_servers, "pens", partitions=1)
    send(broker_servers, "pens", [("k", GOOD), ("k", None), (None, {"id": 2, "more": 1})])
    pipeline = Pipeline("pens", broker_servers, is_batch=True)
    rows = pipeline.stream("pens").json(SCHEMA).df.orderBy("id").collect()
    assert [row.asDict() for row in rows] == [
        {
            "_key": key,
            "_topic": "pens",
            "_partition": 0,
            "_offset": offset,
            "_timestamp": row["_timestamp"],
            **dict.fromkeys(("name", "price", "tags")),
            **values,
            "at": row["at"],
        }
        for row, key, offset, values in zip(
            rows, ("k", None), (0, 2), ({k: v for k, v in GOOD.items() if k != "at"}, {"id": 2}),
            strict=True,
        )
    ]  # fmt: skip
    assert str(rows[0]["at"]) == "2026-01-02 03:04:05"


def test_dead_letters_say_why_and_the_rest_goes_on(
    spark: Any, broker_servers: str, tmp_path: Path
) -> None:
    create(broker_servers, "mixed", "good", "bad", partitions=1)
    send(broker_servers, "mixed", [("g", GOOD), *(("b", raw) for raw in BAD), ("g", GOOD)])

    def define() -> None:
        stream("mixed").json(SCHEMA, dead_letter_topic="bad").to("good")

    run(define, Pipeline("mixed", broker_servers), state_dir=tmp_path, until_caught_up=True)
    assert committed(broker_servers, "good") == [("g", GOOD)] * 2
    letters = with_headers(broker_servers, "bad")
    told = [headers["__connect.errors.exception.message"] for _, _, headers in letters]
    assert told == [*BAD.values()]
    assert [headers["__connect.errors.offset"] for _, _, headers in letters] == [
        str(offset) for offset in range(1, 1 + len(BAD))
    ]
    assert {key for key, _, _ in letters} == {"b"}


def test_a_bad_record_ends_the_query_and_is_named(
    spark: Any, broker_servers: str, tmp_path: Path
) -> None:
    create(broker_servers, "fragile", "fragile-out", partitions=1)
    send(broker_servers, "fragile", [("g", GOOD), ("b", {"id": "seven"})])

    def define() -> None:
        stream("fragile").json(SCHEMA).group().count().to("fragile-out")

    with pytest.raises(PipelineError) as failed:
        run(define, Pipeline("fragile", broker_servers), state_dir=tmp_path, until_caught_up=True)
    sentence = "flow fragile-out: fragile-0 offset 1: field id is no bigint: seven"
    assert str(failed.value) == sentence
    with pytest.raises(PipelineError, match=sentence):
        run_batch(define, Pipeline("fragile", broker_servers))
    assert committed(broker_servers, "fragile-out") == []
