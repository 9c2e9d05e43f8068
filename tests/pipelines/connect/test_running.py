"""Connectors run from a file, as `ottla connect run --once` runs them."""

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Consumer, Producer
from ottla.cli.main import main
from ottla.pipelines.connect import (
    REQUIRED,
    ConnectorError,
    Setting,
    SinkConnector,
    SourceConnector,
    text,
    whole,
)
from ottla.pipelines.connect.declaring.declaration import read_declarations
from ottla.pipelines.connect.running import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

seen: list[tuple[str, int]] = []


class Numbers(SourceConnector):
    """A custom source: this many numbers at once."""

    SETTINGS = (Setting("count", whole, REQUIRED, "how many numbers there are"),)

    def records(self, spark: "SparkSession") -> "DataFrame":
        rate = spark.readStream.format("rate-micro-batch")
        numbers = rate.option("rowsPerBatch", self.settings["count"]).load()
        return numbers.selectExpr("named_struct('n', value) AS value")


class Memory(SinkConnector):
    """A sink of one's own: remembers the words it was given."""

    SETTINGS = (Setting("prefix", text, "", "what stands before them"),)

    def write(self, batch: "DataFrame", batch_id: int) -> None:
        rows = batch.select("value.words", "offset").orderBy("offset").collect()
        seen.extend((self.settings["prefix"] + row.words, row.offset) for row in rows)


@pytest.fixture(autouse=True)
def _nothing_seen() -> Iterator[None]:
    yield
    seen.clear()


def run_once(spark: "SparkSession", folder: Path, declaration: str) -> None:
    file = folder / "connectors.toml"
    file.write_text(declaration, encoding="utf-8")
    run(spark, read_declarations(file), is_once=True, stop=Event(), say=lambda _: None)


def records_of(servers: str, *topics: str) -> dict[str, list[tuple[Any, bytes | None]]]:
    found: dict[str, list[tuple[Any, bytes | None]]] = {topic: [] for topic in topics}
    with Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        parts = [(topic, 0) for topic in topics]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        while any(consumer.position(part) < ends[part] for part in ends):
            for record in consumer.poll(timeout=1):
                found[record.topic].append((record.key, record.value))
    return found


FILES = """
name = "letters-in"
connector.class = "files-source"
bootstrap.servers = "{servers}"
path = "{folder}/in"
format = "json"
schema = "id INT, words STRING, card STRING"
key.fields = ["id"]
topic = "letters"
{more}
[[transforms]]
type = "mask"
fields = ["card"]
"""


def test_files_become_records_once_and_bad_lines_dead_letters(
    spark: "SparkSession", broker_servers: str, tmp_path: Path
) -> None:
    tmp_path /= "a folder"
    (tmp_path / "in").mkdir(parents=True)
    first = '{"id":1,"words":"a","card":"4711"}\n{"id":"two"}\nnonsense\n'
    (tmp_path / "in" / "first.json").write_text(first, encoding="utf-8")
    tolerant = FILES.format(
        servers=broker_servers,
        folder=tmp_path,
        more='errors.tolerance = "all"\nerrors.deadletterqueue.topic.name = "dead"',
    )
    run_once(spark, tmp_path, tolerant)
    assert [file.name for file in tmp_path.parent.iterdir()] == ["a folder"]
    (tmp_path / "in" / "second.json").write_text('{"id":2,"words":"b"}\n', encoding="utf-8")
    run_once(spark, tmp_path, tolerant)
    found = records_of(broker_servers, "letters", "dead")
    assert [(json.loads(key), json.loads(value or b"")) for key, value in found["letters"]] == [
        ({"id": 1}, {"id": 1, "words": "a", "card": ""}),
        ({"id": 2}, {"id": 2, "words": "b", "card": None}),
    ]
    assert sorted(value for _, value in found["dead"]) == [b"nonsense", b'{"id":"two"}']
    strict = FILES.format(servers=broker_servers, folder=tmp_path, more="")
    with pytest.raises(ConnectorError, match=r"letters-again: a line does not .*first\.json"):
        run_once(spark, tmp_path, strict.replace("letters-in", "letters-again"))


SINK = """
name = "{name}"
connector.class = "{module}:Memory"
bootstrap.servers = "{servers}"
topics = ["words"]
prefix = "> "
{more}
"""


def test_a_sink_of_ones_own_gets_the_fields_that_were_found_in_the_topic(
    spark: "SparkSession", broker_servers: str, tmp_path: Path
) -> None:
    with Producer(bootstrap_servers=broker_servers) as producer:
        for value in ('{"words":"a"}', "[", '{"words":"b"}'):
            producer.send("words", value)
    tolerant = 'errors.tolerance = "all"\nerrors.deadletterqueue.topic.name = "dead-words"'
    names = {"module": __name__, "servers": broker_servers}
    run_once(spark, tmp_path, SINK.format(name="memory", more=tolerant, **names))
    assert seen == [("> a", 0), ("> b", 2)]
    assert records_of(broker_servers, "dead-words") == {"dead-words": [(None, b"[")]}
    with pytest.raises(ConnectorError, match=r"strict: the value .* words-0 at offset 1"):
        run_once(spark, tmp_path, SINK.format(name="strict", more="", **names))


def test_a_source_of_ones_own_fills_a_topic(
    spark: "SparkSession", broker_servers: str, tmp_path: Path
) -> None:
    run_once(
        spark,
        tmp_path,
        f'name = "numbers"\nconnector.class = "{__name__}:Numbers"\ncount = 3\ntopic = "numbers"\n'
        f'bootstrap.servers = "{broker_servers}"\n',
    )
    found = records_of(broker_servers, "numbers")["numbers"]
    assert sorted(value or b"" for _, value in found) == [b'{"n":0}', b'{"n":1}', b'{"n":2}']


def ended_with(words: list[str]) -> object:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


def test_the_command_checks_a_file_without_spark(
    broker_servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.toml"
    words = ["connect", "check", str(file)]
    (tmp_path / "in").mkdir()
    file.write_text(FILES.format(servers=broker_servers, folder=tmp_path, more=""))
    assert ended_with(words) == 0
    assert capsys.readouterr().out == "letters-in: ok\n"
    (tmp_path / "in").rmdir()
    assert ended_with(words) == 1
    assert "path: there is no directory" in capsys.readouterr().err
    file.write_text("name = 'x'", encoding="utf-8")
    assert ended_with(words) == 2
    assert "connector.class: is missing" in capsys.readouterr().err


def test_the_command_looks_for_the_brokers_and_the_topics(
    broker_servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.toml"
    words = ["connect", "check", str(file)]
    sink = 'name = "s"\nconnector.class = "files-sink"\npath = "out"\ntopics = ["nowhere"]\n'
    settings = 'kafka.fetch.max.bytes = "1000000"\n'  # a consumer's, of no use here
    file.write_text(f'{sink}{settings}bootstrap.servers = "{broker_servers}"\n')
    assert ended_with(words) == 1
    assert "topics: there is no topic 'nowhere'" in capsys.readouterr().err
    file.write_text(f'{sink}bootstrap.servers = "127.0.0.1:1"\n')
    assert ended_with(words) == 1
    assert "is the broker running?" in capsys.readouterr().err
    assert ended_with([*words, "--offline"]) == 0
