"""Flows that write files and tables beside topics, in one definition."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from ottla.streams import Pipeline, run, run_batch, stream
from tests.pipelines.streams.topics import committed, create, send


def parquet(folder: Path) -> list[dict[str, Any]]:
    found: pa.Table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    return sorted(found.to_pylist(), key=lambda row: row["n"])


def test_one_definition_writes_a_topic_files_and_a_table_each_row_once(
    spark: Any, broker_servers: str, tmp_path: Path
) -> None:
    create(broker_servers, "notes", "noted")
    send(broker_servers, "notes", [(str(n), {"n": n, "rest": n % 2}) for n in range(40)])
    files, table = tmp_path / "files", tmp_path / "table"

    def define() -> None:
        slowly = {"maxOffsetsPerTrigger": "10"}
        notes = stream("notes", options=slowly).json("n long, rest long")
        notes.map(n="n").to("noted")
        notes.to_files(str(files), partition_by=["rest"])
        notes.map(n="n").to_delta(str(table))

    def go() -> None:
        pipeline = Pipeline("notebook", broker_servers)
        run(define, pipeline, state_dir=tmp_path / "state", until_caught_up=True)

    go()
    for name in ("noted", "files", "table"):
        commits = tmp_path / "state/pipelines/notebook/checkpoints" / name / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
        assert last >= 3
        (commits / str(last)).unlink()  # as if the driver had died before it: written again
    go()
    expected = [{"n": n, "rest": n % 2} for n in range(40)]
    assert parquet(files) == expected
    found = DeltaTable(str(table)).to_pyarrow_table().column("n").to_pylist()
    assert sorted(found) == [*range(40)]
    assert sorted(row["n"] for _, row in committed(broker_servers, "noted")) == [*range(40)]


def test_a_batch_writes_files_and_rows_that_change_are_refused(
    spark: Any, broker_servers: str, tmp_path: Path
) -> None:
    create(broker_servers, "memos")
    send(broker_servers, "memos", [(None, {"n": n}) for n in range(5)])

    def define() -> None:
        stream("memos").json("n long").group("n").count().to_files(str(tmp_path / "out"))

    run_batch(define, Pipeline("memos", broker_servers))
    assert parquet(tmp_path / "out") == [{"n": n, "count": 1} for n in range(5)]
    with pytest.raises(ValueError, match="`to_files` needs rows that change no more"):
        run(define, Pipeline("memos", broker_servers), state_dir=tmp_path)
    memos = Pipeline("memos", broker_servers).stream("memos")
    with pytest.raises(ValueError, match=r"format: is to be one of json, csv, parquet"):
        memos.to_files("out", format="orc")  # type: ignore[arg-type]
