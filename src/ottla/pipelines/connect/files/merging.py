"""Decides which small files can be merged, and merges text files without changing their content.

Files are merged if they have the same suffix and the same shape: the schema of Parquet or the first
line of CSV. JSON lines and CSV are joined byte by byte and never parsed as records: their values
may have fields that the newest batch lacks, and line breaks.
"""

import io
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_COMPRESSION_BY_ENDING: Final = {"": None, ".bz2": "bz2", ".gz": "gzip", ".zst": "zstd"}
"""Compressions of text files that can be joined; the names are Arrow's."""
_UNUSUAL: Final = frozenset({"charset", "encoding", "linesep"})
"""Writer options that change line breaks or encodings, so that files are not merged."""


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
