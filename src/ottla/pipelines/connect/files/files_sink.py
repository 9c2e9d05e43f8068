"""Writes records as files: JSON lines, CSV or Parquet, partitioned by columns, with merges.

A batch is written to a staging directory. The list of its files is the decision that it is done;
then they are moved into place. After a crash, the moves of a decided batch are completed, and an
undecided batch is written again: each record is in exactly one file. Spark and similar programs do
not read names that begin with a dot.

    .ottla/<id>/staged-7/… ──► .ottla/<id>/batch-7.json ──► day=2026-11-15/orders-7-0.parquet
"""

from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from ottla.pipelines.connect.declaring.connector import SinkConnector
from ottla.pipelines.connect.declaring.errors import ConnectorError, older_checkpoint
from ottla.pipelines.connect.declaring.settings import REQUIRED, Setting, text, whole, words
from ottla.pipelines.connect.files.durable_files import sync
from ottla.pipelines.connect.files.journal import Journal, Moves
from ottla.pipelines.connect.files.merging import alike, ending_of, has_header, join
from ottla.pipelines.connect.files.urls import local_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = ("json", "csv", "parquet")


class FilesSink(SinkConnector):
    """Writes the fields of values; tombstones are left out."""

    SETTINGS: ClassVar[tuple[Setting, ...]] = (
        Setting("path", text, REQUIRED, "the folder for the files"),
        Setting("format", text, "parquet", "what is written", FORMATS),
        Setting("partition.by", words, (), "the fields that make folders, such as day=…"),
        Setting("file.size.bytes", whole, 128 << 20, "how large merged files are to be"),
        Setting("compact.min.files", whole, 10, "how many small files are merged; 0 for never"),
        Setting("format.", text, None, "further options of Spark's writer"),
    )

    def write(self, batch: "DataFrame", batch_id: int) -> None:
        """Write a batch, unless it was decided before; then carry out the decision."""
        journal = Journal(self._root() / ".ottla" / self.home.id, self._root())
        if (last := journal.last_batch_id()) > batch_id:
            raise older_checkpoint("the folder", last, batch_id)
        journal.finish("merge")
        if not journal.finish(f"batch-{batch_id}"):
            rows = self._rows(batch)
            staged = journal.staging(f"staged-{batch_id}")
            self._write_rows(rows, staged)
            name = f"{self.home.name}-{batch_id:010}"
            journal.decide(f"batch-{batch_id}", self._moves(staged, self._root(), name))
            journal.finish(f"batch-{batch_id}")
            journal.forget_before(batch_id)
            self._merge(batch.sparkSession, journal, name)

    def _root(self) -> Path:
        path = self.settings["path"]
        if "://" in path:
            raise ConnectorError(
                f"path: {path} is no folder that can rename files; a delta-sink can write there"
            )
        return Path(path).absolute()

    def _rows(self, batch: "DataFrame") -> "DataFrame":
        from pyspark.sql.types import StructType  # noqa: PLC0415

        live = batch.where("value IS NOT NULL")
        if isinstance(batch.schema["value"].dataType, StructType):
            rows = live.select("value.*")
        else:
            rows = live.select("key", "value")
        for name in self.settings["partition.by"]:
            if name not in rows.columns:
                raise ConnectorError(f"partition.by: the records have no field {name!r}")
        return rows

    def _write_rows(self, rows: "DataFrame", staged: Path) -> None:
        by = self.settings["partition.by"]
        # All rows of a directory in one task, so that they are one file.
        gathered = rows.repartition(*by) if by else rows.coalesce(1)
        writer = gathered.write.format(self.settings["format"]).options(**self._options())
        writer.partitionBy(*by).mode("overwrite").save(local_url(staged))

    def _options(self) -> dict[str, str]:
        header = {"header": "true"} if self.settings["format"] == "csv" else {}
        return header | dict(self.settings["format."])

    def _moves(self, staged: Path, place: Path, name: str) -> Moves:
        """Choose unused target paths for staged files, and make them durable.

        A path may be in use: a connector with a new checkpoint counts its batches from 0 again.
        """
        moves: Moves = {}
        numbers = count()
        for file in sorted(staged.rglob("part-*")):
            sync(file)
            folder = place / file.parent.relative_to(staged)
            named = (folder / f"{name}-{number}{_ending(file)}" for number in numbers)
            target = next(free for free in named if not free.exists())
            moves[str(file)] = str(target.relative_to(self._root()))
        return moves

    def _merge(self, spark: "SparkSession", journal: Journal, name: str) -> None:
        """Merge small files of equal form in each directory, if there are enough of them."""
        for number, small in enumerate(self._small_groups()):
            staged = journal.staging("staged-merge")
            self._write_merged(spark, small, staged)
            moves = self._moves(staged, small[0].parent, f"{name}-merged-{number}")
            removed = tuple(str(file.relative_to(self._root())) for file in small)
            journal.decide("merge", moves, removed)
            journal.finish("merge")

    def _small_groups(self) -> list[list[Path]]:
        """Return the groups of files to merge; each group becomes one file."""
        least, size_bytes = self.settings["compact.min.files"], self.settings["file.size.bytes"]
        small_by_folder: dict[Path, list[Path]] = {}
        for file in self._files() if least else ():
            if file.stat().st_size * 2 < size_bytes:
                small_by_folder.setdefault(file.parent, []).append(file)
        form, options = self.settings["format"], self._options()
        groups = [
            _up_to(size_bytes, group)
            for _, small in sorted(small_by_folder.items())
            if len(small) >= least
            for group in alike(small, self.home.name, form, options)
        ]
        return [group for group in groups if len(group) >= least]

    def _write_merged(self, spark: "SparkSession", files: list[Path], staged: Path) -> None:
        form, options = self.settings["format"], self._options()
        if form != "parquet":
            have_headers = has_header(form, options)
            join(files, self.home.name, staged, have_headers=have_headers)
            return
        merged = spark.read.format(form).options(**options).load([*map(local_url, files)])
        writer = merged.coalesce(1).write.format(form).options(**options)
        writer.mode("overwrite").save(local_url(staged))

    def _files(self) -> list[Path]:
        """Return the files that this connector has written."""
        pattern = "/".join(["*"] * (len(self.settings["partition.by"]) + 1))
        found = self._root().glob(pattern)
        return [file for file in found if ending_of(file.name, self.home.name) is not None]


def _up_to(size_bytes: int, files: Iterable[Path]) -> list[Path]:
    """Return the first files, until their sum reaches a size."""
    chosen: list[Path] = []
    total = 0
    for file in files:
        if total < size_bytes:
            chosen.append(file)
            total += file.stat().st_size
    return chosen


def _ending(file: Path) -> str:
    """Return the suffix after the part's name, such as `.zstd.parquet`."""
    return "." + file.name.partition(".")[2] if "." in file.name else ""
