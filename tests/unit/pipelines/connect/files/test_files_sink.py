"""The choice of files to merge, and that merging keeps their contents."""

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from ottla.pipelines.connect import Home
from ottla.pipelines.connect.files.files_sink import FilesSink, alike, ending_of, has_header, join

CSV = {"header": "true"}


def written(folder: Path, number: int, text: bytes, ending: str = ".csv") -> Path:
    file = folder / f"orders-{number:010}-0{ending}"
    file.write_bytes(gzip.compress(text) if ending.endswith(".gz") else text)
    return file


def names_of(groups: list[list[Path]]) -> list[list[str]]:
    return [[file.name for file in group] for group in groups]


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("orders.eu-0000000007-0.json", ".json"),
        ("orders.eu-0000000007-12.zstd.parquet", ".zstd.parquet"),
        ("orders.eu-0000000007-merged-0-0.csv.gz", ".csv.gz"),
        ("orders.eu-0000000007-0.c000.json", ".json"),
        ("orders.eu-0000000007-0", ""),
        ("orders-eu-0000000007-0.json", None),
        ("orders.eu-new-0000000007-0.json", None),
        ("orders.eu-2026-11-15.json", None),
    ],
)
def test_a_connector_knows_its_own_files(name: str, ending: str | None) -> None:
    assert ending_of(name, "orders.eu") == ending


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    settings = {"path": str(tmp_path), "format": "csv", "partition.by": ("day",), "format.": {},
                "compact.min.files": 2, "file.size.bytes": 1_000}  # fmt: skip
    sink = FilesSink(Home("orders", tmp_path, "an-id"), settings)
    day = tmp_path / "day=mon"
    day.mkdir()
    own = [written(day, number, b"id\n1\n") for number in range(3)]
    large = written(day, 7, b"id\n" + b"1\n" * 500)
    (day / "orders-eu-0000000001-0.csv").write_bytes(b"id\n1\n")
    (day / "orders-of-mine.csv").write_bytes(b"id\n1\n")
    assert sorted(sink._files()) == [*own, large]
    assert sink._small_groups() == [own]


def test_csv_with_other_columns_stays_apart(tmp_path: Path) -> None:
    headers = [b"id,note", b"id,note,price", b"id,note", b"note,id", b"id,note,price"]
    for number, header in enumerate(headers):
        written(tmp_path, number, header + b"\n")
    written(tmp_path, 9, b"id,note\n", ".csv.gz")
    written(tmp_path, 10, b'"id\nof it",note\n')
    written(tmp_path, 11, b"id,note\n", ".csv.lz4")
    written(tmp_path, 12, b"id,note\n", ".json")
    assert names_of(alike(tmp_path.iterdir(), "orders", "csv", CSV)) == [
        ["orders-0000000000-0.csv", "orders-0000000002-0.csv"],
        ["orders-0000000001-0.csv", "orders-0000000004-0.csv"],
        ["orders-0000000003-0.csv"],
        ["orders-0000000009-0.csv.gz"],
    ]


@pytest.mark.parametrize("option", ["encoding", "charset", "lineSep"])
def test_text_whose_lines_are_unusual_is_not_merged(tmp_path: Path, option: str) -> None:
    written(tmp_path, 0, b"{}\n", ".json")
    assert alike(tmp_path.iterdir(), "orders", "json", {option: "x"}) == []


def test_parquet_of_another_schema_stays_apart(tmp_path: Path) -> None:
    tables = [
        pa.table({"id": pa.array([1], pa.int32()), "note": ["a"]}),
        pa.table({"id": pa.array([1], pa.int32())}),
        pa.table({"id": pa.array([2], pa.int32()), "note": ["b"]}, metadata={"written": "later"}),
        pa.table({"id": pa.array([1], pa.int64())}),
    ]
    for number, table in enumerate(tables):
        parquet.write_table(table, tmp_path / f"orders-{number:010}-0.snappy.parquet")
    written(tmp_path, 9, b"not what it says", ".parquet")
    groups = alike(tmp_path.iterdir(), "orders", "parquet", {})
    assert [[int(file.name.split("-")[1]) for file in group] for group in groups] == [
        [0, 2],
        [1],
        [3],
    ]


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_csv_has_one_header_and_every_byte_of_its_lines(tmp_path: Path, ending: str) -> None:
    first, second = b'id,note\n1,"two\nlines"\n', b'id,note\n2,"a \\"b\\" "\n3,\n'
    files = [written(tmp_path, 0, first, ending), written(tmp_path, 1, second, ending)]
    join(files, "orders", tmp_path / "staged", have_headers=True)
    (joined,) = (tmp_path / "staged").iterdir()
    assert joined.name == f"part-0{ending}"
    text = gzip.decompress(joined.read_bytes()) if ending.endswith(".gz") else joined.read_bytes()
    assert text == first + second.removeprefix(b"id,note\n")


def test_lines_without_a_header_are_all_kept(tmp_path: Path) -> None:
    lines = [b'{"id":1,"note":"two\\nlines"}\n', b'{"id":2}\n', b'{"id":2}\n']
    files = [written(tmp_path, number, line, ".json") for number, line in enumerate(lines)]
    join(files, "orders", tmp_path / "staged", have_headers=False)
    (joined,) = (tmp_path / "staged").iterdir()
    assert joined.read_bytes() == b"".join(lines)
    assert not has_header("json", {})
    assert not has_header("csv", {"header": "true", "Header": "FALSE"})
