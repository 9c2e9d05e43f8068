"""Kafka's dump tool reads Ottla's files: its output matches the written records."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.storage.log.log import PartitionLog
from ottla.storage.producers.producer_snapshot import decode_snapshot
from tests.interop.dump_rows import aborted_row, batch_row, producer_row
from tests.interop.kafka_dump import Dump, Dumps, dump
from tests.interop.ottla_folder import OttlaFolder
from tests.interop.ottla_story import CONFIG, TOPICS, Written, write_story

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
each_topic = pytest.mark.parametrize("topic", TOPICS)


@dataclass
class Story:
    directory: Path
    written: dict[str, Written]
    dumps: Dumps

    def log(self, topic: str) -> PartitionLog:
        return OttlaFolder(self.directory, CONFIG).log(topic)

    def paths(self, pattern: str) -> list[Path]:
        return sorted(self.directory.glob(pattern))

    def dumped(self, pattern: str) -> list[Dump]:
        """Return the dumps in order; a test that opened a log may have deleted an index since."""
        return [found for path, found in sorted(self.dumps.by_path.items()) if path.match(pattern)]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    directory = tmp_path_factory.mktemp("logs")
    with OttlaFolder(directory, CONFIG) as folder:
        for number, topic in enumerate(TOPICS, 1):
            folder.create(topic, number.to_bytes(16))
        written = write_story(folder)
    files = [path for path in directory.glob("*/*") if path.suffix in SUFFIXES]
    return Story(directory, written, dump(sorted(files), "--deep-iteration", "--print-data-log"))


def test_there_is_a_lot_to_say(story: Story) -> None:
    assert len(story.paths("codecs-0/*.log")) > 5
    assert len(story.paths("transactions-0/*.log")) > 3
    assert len(story.paths("transactions-0/*.txnindex")) > 1
    assert len(story.paths("zipped-0/*.log")) > 5
    assert len(story.dumps.by_path) > 50


def test_nothing_is_complained_about(story: Story) -> None:
    assert story.dumps.complaints == []
    remarks = {remark for found in story.dumps.by_path.values() for remark in found.remarks}
    empty = {f"{p} is empty." for p in story.paths("*/*.index") if p.stat().st_size == 0}
    assert {remark for remark in remarks if not remark.startswith("Log starting")} <= empty


@pytest.mark.parametrize("option", ["--index-sanity-check", "--verify-index-only"])
def test_every_index_passes_the_checks_of_a_starting_broker(story: Story, option: str) -> None:
    paths = [*story.paths("*/*.index"), *story.paths("*/*.timeindex")]
    dumps = dump(paths, option)

    assert dumps.complaints == []
    assert list(dumps.by_path) == paths
    if option == "--index-sanity-check":
        for path, found in dumps.by_path.items():
            assert found.remarks in ([f"{path} passed sanity check."], [f"{path} is empty."])


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_with_a_wrong_entry_would_be_complained_about(
    story: Story, tmp_path: Path, suffix: str
) -> None:
    directory = Path(shutil.copytree(story.directory / "codecs-0", tmp_path / "codecs-0"))
    path = sorted(directory.glob(f"*{suffix}"))[1]
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)

    assert dump([path]).complaints


@each_topic
def test_all_batches_are_valid_and_have_the_headers_that_ottla_reads(
    story: Story, topic: str
) -> None:
    log = story.log(topic)
    rows = [
        [batch_row(batch, position) for position, batch in segment.batches_at(0)]
        for segment in log.segments
    ]

    assert [found.rows for found in story.dumped(f"{topic}-0/*.log")] == rows
    assert {row["isvalid"] for found in rows for row in found} == {"true"}


@each_topic
def test_all_records_are_what_was_written(story: Story, topic: str) -> None:
    dumped = [r for found in story.dumped(f"{topic}-0/*.log") for r in found.records]
    records = story.written[topic].records

    data = [record for record in dumped if record["marker"] is None]
    assert [
        (record["offset"], record["timestamp_ms"], record["key"], record["value"])
        for record in data
    ] == [(str(r.offset), str(r.timestamp_ms), r.key, r.value) for r in records]
    assert [record["header_keys"] for record in data] == [
        ",".join(name for name, _ in record.headers) for record in records
    ]
    assert [int(record["offset"] or -1) for record in dumped] == list(range(len(dumped)))


def test_both_kinds_of_markers_are_understood(story: Story) -> None:
    dumped = [r for found in story.dumped("transactions-0/*.log") for r in found.records]

    markers = [(r["marker"], r["coordinator_epoch"]) for r in dumped if r["marker"]]
    assert markers.count(("COMMIT", "5")) == 4
    assert markers.count(("ABORT", "5")) == 7


@each_topic
def test_the_indexes_hold_what_ottla_reads_in_them(story: Story, topic: str) -> None:
    log = story.log(topic)

    assert [found.rows for found in story.dumped(f"{topic}-0/*.index")] == [
        [{"offset": str(e.offset), "position": str(e.position)} for e in s.offset_index.entries()]
        for s in log.segments
    ]
    assert [found.rows for found in story.dumped(f"{topic}-0/*.timeindex")] == [
        [
            {"timestamp": str(e.timestamp_ms), "offset": str(e.offset)}
            for e in s.time_index.entries()
        ]
        for s in log.segments
    ]


def test_the_aborted_transactions_are_found(story: Story) -> None:
    log = story.log("transactions")
    aborted = log.aborted_transactions(0, log.end_offset)

    rows = [row for found in story.dumped("transactions-0/*.txnindex") for row in found.rows]
    assert rows == [aborted_row(transaction) for transaction in aborted]
    assert len(rows) == 7


@each_topic
def test_the_snapshots_hold_the_producers(story: Story, topic: str) -> None:
    for path in story.paths(f"{topic}-0/*.snapshot"):
        entries = decode_snapshot(path.read_bytes(), int(path.stem))
        assert story.dumps.by_path[path].rows == [producer_row(entry) for entry in entries]
        assert bool(entries) is (topic == "transactions")
