"""`ottla.scan`: records of a topic as Arrow batches, in Arrow, Polars, pandas and DuckDB."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest

import ottla
from ottla.clients.tables.scan import PIECE_OFFSETS_MAX, Scan
from ottla.testing import Broker
from ottla.wire.records import arrow

PARTITIONS = 3
PER_PARTITION = 10
LARGE = 2 * PIECE_OFFSETS_MAX + 1
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        with ottla.Admin(bootstrap_servers=servers) as admin:
            admin.topics.create("orders", partitions=PARTITIONS)
            admin.topics.create("empty", partitions=1)
            admin.topics.create("large", partitions=1)
        with ottla.Producer(bootstrap_servers=servers) as producer:
            for number in range(PARTITIONS * PER_PARTITION):
                producer.send(
                    "orders",
                    f"order {number}",
                    key=f"key {number}",
                    partition=number % PARTITIONS,
                    timestamp=number // PARTITIONS * MINUTE_MS,
                    headers=[("number", str(number).encode())],
                )
            values = pa.array([str(number) for number in range(LARGE)])
            producer.send_arrow("large", pa.table({"value": values}))
        yield servers


def offsets(scan: Scan) -> dict[int, list[int]]:
    """Return the offsets read from each partition, in the order of the scan."""
    found: dict[int, list[int]] = {}
    for row in scan.to_arrow().to_pylist():
        found.setdefault(row["partition"], []).append(row["offset"])
    return found


def test_a_scan_has_all_columns_but_headers_in_the_order_of_partitions(servers: str) -> None:
    table = ottla.scan("orders", bootstrap_servers=servers).to_arrow()
    assert table.schema == arrow.schema()
    assert table["partition"].to_pylist() == [0] * 10 + [1] * 10 + [2] * 10
    assert table["offset"].to_pylist() == [*range(10)] * 3
    assert table["value"].to_pylist()[:2] == [b"order 0", b"order 3"]


def test_only_the_named_columns_are_read_in_their_order(servers: str) -> None:
    scan = ottla.scan("orders", bootstrap_servers=servers, columns=["headers", "value"])
    assert scan.schema.names == ["headers", "value"]
    assert scan.to_arrow().to_pylist()[0] == {
        "headers": [{"key": "number", "value": b"0"}],
        "value": b"order 0",
    }


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"start": 7}, {0: [7, 8, 9], 1: [7, 8, 9], 2: [7, 8, 9]}),
        ({"end": 2, "partitions": [1]}, {1: [0, 1]}),
        ({"start": {2: 9}, "partitions": [0, 2], "end": {0: 1}}, {0: [0], 2: [9]}),
        ({"start": 4, "end": 4}, {}),
        ({"start": 8, "end": 1000, "partitions": [0]}, {0: [8, 9]}),
        (
            {
                "start": datetime.fromtimestamp(120, UTC),
                "end": datetime.fromtimestamp(240, UTC),
                "partitions": [0],
            },
            {0: [2, 3]},
        ),
        ({"start": datetime.fromtimestamp(10**6, UTC)}, {}),
    ],
    ids=["from", "to", "by partition", "empty", "beyond", "times", "later than all"],
)
def test_bounds_are_offsets_or_times(
    servers: str, bounds: dict[str, Any], expected: dict[int, list[int]]
) -> None:
    scan = ottla.scan("orders", bootstrap_servers=servers, **bounds)
    assert offsets(scan) == expected


@pytest.mark.parametrize("threads", [1, 3])
def test_pieces_that_threads_read_come_in_the_order_of_offsets(servers: str, threads: int) -> None:
    scan = ottla.scan("large", bootstrap_servers=servers, columns=["offset"], threads=threads)
    assert scan.to_arrow()["offset"].to_pylist() == list(range(LARGE))


def test_a_scan_can_be_left_early_and_read_again(servers: str) -> None:
    scan = ottla.scan("large", bootstrap_servers=servers, columns=["offset"])
    batches = iter(scan)
    first = next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert next(iter(scan)).equals(first)


def test_a_scan_ends_where_the_topic_ended_when_it_was_made(servers: str) -> None:
    scan = ottla.scan("empty", bootstrap_servers=servers)
    with ottla.Producer(bootstrap_servers=servers) as producer:
        producer.send("empty", "later").result()
    assert scan.to_arrow().num_rows == 0
    assert ottla.scan("empty", bootstrap_servers=servers).to_arrow().num_rows == 1


def test_aborted_records_are_left_out_of_a_committed_scan(servers: str) -> None:
    settings = {"bootstrap.servers": servers, "transactional.id": "scanned"}
    with ottla.Producer(settings) as producer:
        producer.init_transactions()
        for is_aborted in (True, False):
            producer.begin_transaction()
            producer.send("transactional", "aborted" if is_aborted else "committed")
            if is_aborted:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    scans = {
        level: ottla.scan(
            "transactional", bootstrap_servers=servers, columns=["value"], isolation_level=level
        )
        for level in ("read_committed", "read_uncommitted")
    }
    values = {level: scan.to_arrow()["value"].to_pylist() for level, scan in scans.items()}
    assert values == {
        "read_committed": [b"committed"],
        "read_uncommitted": [b"aborted", b"committed"],
    }


def test_other_libraries_take_a_scan_as_a_table(servers: str) -> None:
    scan = ottla.scan("orders", bootstrap_servers=servers)
    assert polars.DataFrame(scan).equals(scan.to_polars())
    assert scan.to_polars().shape == (30, 7)
    assert scan.to_pandas()["offset"].sum() == 3 * 45
    with duckdb.connect() as connection:
        counted = connection.sql('select "partition", count(*) from scan group by 1 order by 1')
        assert counted.fetchall() == [(0, 10), (1, 10), (2, 10)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["valu"]}, "records have no column 'valu'; did you mean value?"),
        ({"columns": []}, "columns is empty"),
        ({"partitions": [3]}, "topic 'orders' has no partition 3: it has 3 of them"),
        ({"start": {7: 0}}, "topic 'orders' has no partition 7: it has 3 of them"),
        ({"end": -1}, "end is -1 for orders-0: an offset is at least 0"),
        ({"start": datetime(2026, 1, 1)}, "it needs a time zone"),  # noqa: DTZ001
        ({"threads": 0}, "threads is 0: it must be at least 1"),
        ({"group_id": "readers"}, "a scan reads for no group"),
    ],
)
def test_a_wrong_argument_is_named(servers: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        ottla.scan("orders", bootstrap_servers=servers, **arguments)
    assert message in str(refused.value)


def test_a_topic_that_does_not_exist_is_named_with_the_nearest_one(servers: str) -> None:
    with pytest.raises(ottla.SourceReadError) as refused:
        ottla.scan("ordres", bootstrap_servers=servers)
    assert "there is no topic 'ordres'" in str(refused.value)
    assert "orders" in str(refused.value)


def test_a_scan_of_deleted_records_says_what_is_gone(servers: str) -> None:
    with ottla.Producer(bootstrap_servers=servers) as producer:
        for _ in range(5):
            producer.send("trimmed", "value").result()
    scan = ottla.scan("trimmed", bootstrap_servers=servers)
    with ottla.Admin(bootstrap_servers=servers) as admin:
        admin.offsets.delete_before({ottla.TopicPartition("trimmed", 0): 3})
    with pytest.raises(ottla.DataLossError, match="offsets 0 to 3 of trimmed-0 are gone"):
        scan.to_arrow()
