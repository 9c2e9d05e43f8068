"""`ottla doctor`: checks this machine and this installation for missing requirements."""

import os
import platform
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

import ottla
from ottla.cli.support.compiled_loops import LOOPS, REMEDY, missing_loops, slower_sentence
from ottla.cli.support.exit_codes import FAILURE, CommandError
from ottla.cli.support.options import Format, Settings, with_cluster
from ottla.cli.support.output import OutputFormat, show
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.pipelines.spark.java import JavaNotFoundError, find_java
from ottla.storage.files.open_files import OPEN_FILES_MAX
from ottla.testing.zookeeper_server import why_not
from ottla.wire.records.compression.codecs import Compression, compress, decompress

PYTHON_MIN: Final = (3, 11)
OPEN_FILES_NEEDED: Final = 2 * OPEN_FILES_MAX
"""The files that a broker keeps open, and as many connections."""
FREE_BYTES_LOW: Final = 5 << 30
FREE_BYTES_MIN: Final = 200 << 20
"""Enough for a preallocated segment or two, and the indexes of a few partitions."""
_SAMPLE: Final = b"Dearest Ottla " * 100

COLUMNS = ("STATUS", "CHECK", "FINDING")
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--brokers",
        "-b",
        "--bootstrap-server",
        envvar="OTTLA_BROKERS",
        metavar="HOST:PORT,…",
        help="A cluster to try to reach.",
    ),
]


class Verdict(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """It works, but slowly or not for long."""
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    verdict: Verdict
    text: str
    """The finding and, unless it is ok, the remedy."""


@dataclass(frozen=True, slots=True)
class Extra:
    """Optional packages and their purpose."""

    name: str
    packages: tuple[str, ...]
    purpose: str
    problem: Callable[[], str] = lambda: ""
    """Returns any other missing requirement."""


def _no_java() -> str:
    try:
        find_java()
    except JavaNotFoundError as error:
        return str(error)
    return ""


EXTRAS: Final = (
    Extra("arrow", ("pyarrow",), "poll_arrow and bulk sending of tables"),
    Extra("spark", ("pyspark", "py4j", "pyarrow"), "pipelines, connectors, mirrors", _no_java),
    Extra("postgres", ("psycopg",), "the PostgreSQL connector"),
    Extra("schemas", ("jsonschema_rs", "msgspec", "google.protobuf"), "the schema registry"),
    Extra("delta", ("deltalake",), "the Delta sink"),
    Extra("pipelines", ("yaml",), "connector files in YAML"),
    Extra("zookeeper", ("kazoo",), "clusters with their metadata in ZooKeeper", why_not),
    Extra("uvloop", ("uvloop",), "a faster event loop in brokers"),
)


def check_installation() -> Iterator[Finding]:
    """Check Ottla, Python, the compiled loops, the codecs and the extras."""
    place = Path(ottla.__file__ or "").parent
    yield Finding("ottla", Verdict.OK, f"{ottla.__version__} in {place}")
    yield check_python(sys.version_info[:3], platform.python_implementation())
    missing = missing_loops()
    if missing:
        text = f"{slower_sentence(missing, len(LOOPS))}. To compile them, {REMEDY}"
        yield Finding("compiled loops", Verdict.WARNING, text)
    else:
        yield Finding("compiled loops", Verdict.OK, f"all {len(LOOPS)}")
    for codec in Compression:
        if codec is not Compression.NONE:
            yield check_codec(codec)
    for extra in EXTRAS:
        yield check_extra(extra)


def check_python(version: tuple[int, ...], implementation: str) -> Finding:
    """Check that Python is new enough, and a tested implementation."""
    text = f"{implementation} {'.'.join(map(str, version))} in {sys.prefix}"
    if version < PYTHON_MIN:
        return Finding("python", Verdict.ERROR, f"{text}: install Python 3.11 or newer")
    if implementation != "CPython":
        return Finding("python", Verdict.WARNING, f"{text}: Ottla is tested with CPython alone")
    return Finding("python", Verdict.OK, text)


def check_codec(codec: Compression) -> Finding:
    """Compress a sample and decompress it again."""
    check = f"codec {codec.name.lower()}"
    try:
        is_same = bytes(decompress(codec, compress(codec, _SAMPLE))) == _SAMPLE
    except ImportError as error:
        text = f"{error}: `pip install --force-reinstall ottla` installs the package again"
        return Finding(check, Verdict.ERROR, text)
    if not is_same:
        return Finding(check, Verdict.ERROR, "a compressed text does not decompress to itself")
    if codec is Compression.GZIP and find_spec("isal") is None:
        return Finding(check, Verdict.WARNING, "by zlib: `pip install isal` makes it faster")
    return Finding(check, Verdict.OK, "compresses and decompresses")


def check_extra(extra: Extra) -> Finding:
    """Check that an extra is installed as a whole, or not at all."""
    check = f"extra {extra.name}"
    install = f"pip install 'ottla[{extra.name}]'"
    missing = [name for name in extra.packages if not _is_installed(name)]
    if len(missing) == len(extra.packages):
        return Finding(check, Verdict.OK, f"not installed; `{install}` adds {extra.purpose}")
    if missing:
        text = f"{', '.join(missing)} is missing, for {extra.purpose}: `{install}`"
        return Finding(check, Verdict.WARNING, text)
    if problem := extra.problem():
        return Finding(check, Verdict.WARNING, f"for {extra.purpose}: {problem}")
    return Finding(check, Verdict.OK, ", ".join(map(_versioned, extra.packages)))


def check_open_files() -> Finding:
    """Check the limit of a broker's open files and connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{_limit(soft)}, at most {_limit(hard)}"
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES_NEEDED:
        return Finding("open files", Verdict.OK, text)
    advice = f"a broker needs {OPEN_FILES_NEEDED:,} or more: `ulimit -n 65536` before it is started"
    return Finding("open files", Verdict.WARNING, f"{text}; {advice}")


def check_data_dir(folder: Path) -> Iterator[Finding]:
    """Check that a broker can write to its data directory or create it, and the free space."""
    present = next(path for path in (folder, *folder.parents) if path.exists())
    name = str(folder) if present == folder else f"{folder}, which `ottla start` makes"
    if not present.is_dir():
        yield Finding(
            "data dir", Verdict.ERROR, f"{present} is not a directory: choose another data dir"
        )
        return
    if not os.access(present, os.R_OK | os.W_OK | os.X_OK):
        yield Finding("data dir", Verdict.ERROR, _not_writable(present))
        return
    foreign = [path for path in sorted(present.iterdir()) if not os.access(path, os.W_OK)]
    if present == folder and foreign:
        yield Finding("data dir", Verdict.ERROR, _not_writable(foreign[0]))
        return
    yield Finding("data dir", Verdict.OK, f"{name}, can be written")
    yield check_free_bytes(present, shutil.disk_usage(present).free)


def check_free_bytes(folder: Path, free_bytes: int) -> Finding:
    """Check the free space on the disk of a directory."""
    text = f"{free_bytes / (1 << 30):,.1f} GiB free at {folder}"
    if free_bytes < FREE_BYTES_MIN:
        return Finding("disk", Verdict.ERROR, f"{text}: make room, or name another directory")
    if free_bytes < FREE_BYTES_LOW:
        advice = "lower retention.ms or retention.bytes of a topic to free space"
        return Finding("disk", Verdict.WARNING, f"{text}: {advice}")
    return Finding("disk", Verdict.OK, text)


def _not_writable(path: Path) -> str:
    return f"user {os.getuid()} may not write to {path}: `chown` it, or name another directory"


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # it lies in a package that is not installed either
        return False


def _versioned(package: str) -> str:
    if package == "google.protobuf":
        package = "protobuf"
    try:
        distributions = metadata.packages_distributions().get(package, [package])
        return f"{package} {metadata.version(distributions[0])}"
    except metadata.PackageNotFoundError:
        return package


def _limit(count: int) -> str:
    return "unlimited" if count == resource.RLIM_INFINITY else f"{count:,}"


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, help=f"{summary}\n\n{DETAILS}")(doctor)


DETAILS = """Looks at Python, the compiled loops, the codecs, the extras, the limit of open files
and the directory of a broker. With --brokers, tries to reach a cluster. Each line is ok, a
warning or an error, and suggests a remedy. The exit code is 1 if there is an error.
"""


def doctor(
    data_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="The directory that a broker is to use.")
    ] = Path("ottla-data"),
    brokers: Bootstrap = None,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Check this machine and this installation."""
    findings = [
        *check_installation(),
        check_open_files(),
        *check_data_dir(data_dir.absolute()),
    ]
    if brokers:
        findings.append(check_cluster(brokers, settings))
    rows = [
        {"STATUS": found.verdict.value, "CHECK": found.check, "FINDING": found.text}
        for found in findings
    ]
    show(rows, COLUMNS, form)
    if any(found.verdict is Verdict.ERROR for found in findings):
        raise SystemExit(FAILURE)


def check_cluster(brokers: str, settings: list[str] | None) -> Finding:
    """Check that a cluster responds, and report its id and its brokers."""

    async def work(view: ClusterView) -> str:
        found = await AsyncAdmin.over(view).cluster.describe()
        ids = ", ".join(str(row.broker_id) for row in found.brokers)
        return f"cluster {found.cluster_id} at {brokers}: brokers {ids}"

    try:
        return Finding("cluster", Verdict.OK, with_cluster(brokers, settings, work))
    except CommandError as error:
        return Finding("cluster", Verdict.ERROR, str(error))
