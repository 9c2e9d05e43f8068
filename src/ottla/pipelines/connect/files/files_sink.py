"""Writes records as files: JSON lines, CSV or Parquet, partitioned by columns, with merges.

A batch is written to a staging directory. The list of its files is the decision that it is done;
then they are moved into place. After a crash, the moves of a decided batch are completed, and an
undecided batch is written again: each record is in exactly one file. Spark and similar programs do
not read names that begin with a dot.

    .ottla/<id>/staged-7/… ──► .ottla/<id>/batch-7.json ──► day=2026-11-15/orders-7-0.parquet

Files are merged if they have the same suffix and the same shape: the schema of Parquet or the first
line of CSV. JSON lines and CSV are joined byte by byte and never parsed as records: their values
may have fields that the newest batch lacks, and line breaks.
"""

import io
import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.pipelines.connect.declaring.connector import SinkConnector, local_url
from ottla.pipelines.connect.declaring.errors import ConnectorError, older_checkpoint
from ottla.pipelines.connect.declaring.settings import REQUIRED, Setting, text, whole, words
from ottla.runtime.small_files import sync, write_atomically

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Moves = dict[str, str]
"""The target of each staged file, relative to the root."""

_COMPRESSION_BY_ENDING: Final = {"": None, ".bz2": "bz2", ".gz": "gzip", ".zst": "zstd"}
"""Compressions of text files that can be joined; the names are Arrow's."""
_UNUSUAL: Final = frozenset({"charset", "encoding", "linesep"})
"""Writer options that change line breaks or encodings, so that files are not merged."""

FORMATS: Final = ("json", "csv", "parquet")


class Journal:
    """A directory with a small file for each decision, and the staged files of the next."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        self._root = root

    def staging(self, name: str) -> Path:
        """Return an empty staging directory; files of an earlier attempt are removed."""
        staged = self._folder / name
        shutil.rmtree(staged, ignore_errors=True)
        staged.parent.mkdir(parents=True, exist_ok=True)
        return staged

    def decide(self, name: str, moves: Moves, removed: tuple[str, ...] = ()) -> None:
        """Write a decision; from now on it will be carried out, even after a crash."""
        steps = json.dumps({"moves": moves, "removed": removed})
        write_atomically(self._folder / f"{name}.json", steps, is_durable=True)

    def finish(self, name: str) -> bool:
        """Carry a decision out, and return whether there was one; idempotent."""
        decision = self._folder / f"{name}.json"
        if not decision.exists():
            return False
        said = json.loads(decision.read_text(encoding="utf-8"))
        for staged, target in said["moves"].items():
            place = self._root / target
            place.parent.mkdir(parents=True, exist_ok=True)
            if Path(staged).exists():
                Path(staged).replace(place)
        for file in said["removed"]:
            (self._root / file).unlink(missing_ok=True)
        if said["removed"]:
            decision.unlink()
        return True

    def last_batch_id(self) -> int:
        """Return the last batch that was decided, or -1."""
        return max(self._decided_batches(), default=-1)

    def forget_before(self, batch_id: int) -> None:
        """Remove the decisions of earlier batches, which will not be repeated."""
        for earlier, decision in self._decided_batches().items():
            if earlier < batch_id:
                decision.unlink()
        for staged in self._folder.glob("staged-*"):
            shutil.rmtree(staged, ignore_errors=True)

    def _decided_batches(self) -> dict[int, Path]:
        found = self._folder.glob("batch-*.json")
        return {int(file.stem.removeprefix("batch-")): file for file in found}


def ending_of(file_name: str, connector: str) -> str | None:
    """Return the suffix of a connector's file, such as `.csv.gz`; None for any other file.

    The number that Spark puts before it in directories, as in `.c000.csv.gz`, is left out.
    """
    number = r"\d{10}-(?:merged-\d+-)?\d+(?:\.c\d+)?"
    found = re.fullmatch(rf"{re.escape(connector)}-{number}(\..*)?", file_name)
    return None if found is None else found[1] or ""


def alike(
    files: Iterable[Path], connector: str, form: str, options: Mapping[str, str]
) -> list[list[Path]]:
    """Return the groups of a connector's files that can be merged: files of the same shape."""
    groups: dict[tuple[str, str | bytes], list[Path]] = {}
    for file in sorted(files):
        ending = ending_of(file.name, connector)
        shape = None if ending is None else _shape(file, ending, form, options)
        if ending is not None and shape is not None:
            groups.setdefault((ending, shape), []).append(file)
    return list(groups.values())


def join(files: Sequence[Path], connector: str, folder: Path, *, have_headers: bool) -> None:
    """Join text files into one, in a new directory: the lines of all and one header."""
    ending = ending_of(files[0].name, connector) or ""
    folder.mkdir()
    with _written(folder / f"part-0{ending}", ending) as joined:
        for number, file in enumerate(files):
            with _opened(file, ending) as text:
                header = text.readline() if have_headers else b""
                joined.write(header if number == 0 else b"")
                shutil.copyfileobj(text, joined)


def has_header(form: str, options: Mapping[str, str]) -> bool:
    """Whether files begin with the names of their columns."""
    said = {name.lower(): value.lower() for name, value in options.items()}
    return form == "csv" and said.get("header") == "true"


def _shape(file: Path, ending: str, form: str, options: Mapping[str, str]) -> str | bytes | None:
    """Return the common property of files that can be merged; None for a file that cannot."""
    if form == "parquet":
        return _schema(file) if ending.endswith(".parquet") else None
    is_known = ending.removeprefix(f".{form}") in _COMPRESSION_BY_ENDING
    if not is_known or _UNUSUAL & {name.lower() for name in options}:
        return None
    if not has_header(form, options):
        return b""
    with _opened(file, ending) as text:
        header = text.readline()
    is_whole = header.endswith(b"\n") and header.count(b'"') % 2 == 0
    return header if is_whole else None


def _schema(file: Path) -> str | None:
    """Return the schema as text; None if it cannot be read, as for an encrypted file."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    try:
        schema = parquet.read_schema(file)
    except (pa.ArrowException, OSError):
        return None
    return str(schema.to_string(show_field_metadata=False, show_schema_metadata=False))


def _opened(file: Path, ending: str) -> io.BufferedReader:
    import pyarrow as pa  # noqa: PLC0415

    return io.BufferedReader(pa.input_stream(str(file), compression=_compression(ending)))


def _written(file: Path, ending: str) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    return pa.output_stream(str(file), compression=_compression(ending))


def _compression(ending: str) -> str | None:
    return _COMPRESSION_BY_ENDING[re.sub(r"^\.(csv|json)", "", ending)]


class FilesSink(SinkConnector):
    """Writes the fields of values; tombstones are left out."""

    SETTINGS: ClassVar[tuple[Setting, ...]] = (
        Setting("path", text, REQUIRED, "the directory for the files"),
        Setting("format", text, "parquet", "the format of the files", FORMATS),
        Setting("partition.by", words, (), "the fields that make directories, such as day=…"),
        Setting("file.size.bytes", whole, 128 << 20, "how large merged files are to be"),
        Setting("compact.min.files", whole, 10, "how many small files are merged; 0 for never"),
        Setting("format.", text, None, "further options of Spark's writer"),
    )

    def write(self, batch: "DataFrame", batch_id: int) -> None:
        """Write a batch, unless it was decided before; then carry out the decision."""
        journal = Journal(self._root() / ".ottla" / self.home.id, self._root())
        if (last := journal.last_batch_id()) > batch_id:
            raise older_checkpoint("the directory", last, batch_id)
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
                f"path: {path} is no directory that can rename files; a delta-sink can write there"
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
