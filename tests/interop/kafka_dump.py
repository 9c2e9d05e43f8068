"""Kafka's own dump tool, and its output for the files of a log."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.kafka_node import run_tool

_PAIR = re.compile(r"(\w+): (\S+)")
_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) \w+: (?P<timestamp_ms>-?\d+)"
    r" keySize: (?P<key_bytes>-?\d+) valueSize: (?P<value_bytes>-?\d+)"
    r" sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<header_keys>[^\]]*)\]"
    r"(?: endTxnMarker: (?P<marker>\w+) coordinatorEpoch: (?P<coordinator_epoch>\d+))?"
    r"(?: key: (?P<key>.*?))?(?: payload: (?P<value>.*))?"
)
_LISTS_FILE = re.compile(r"Non-consecutive offsets in .*")
_BEFORE_THE_FIRST = re.compile(r"  -1 is followed by \d+")


@dataclass
class Dump:
    """The tool's output for one file."""

    rows: list[dict[str, str]] = field(default_factory=list)
    """Batches, or entries of an index or a snapshot: by the tool's own names."""
    records: list[dict[str, str | None]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """Lines that are none of these."""


@dataclass
class Dumps:
    """The tool's output for all files, and its error messages."""

    by_path: dict[Path, Dump]
    complaints: list[str]


def dump(paths: Iterable[Path], *options: str) -> Dumps:
    """Run the tool over these files."""
    files = ",".join(map(str, paths))
    done = run_tool("org.apache.kafka.tools.DumpLogSegments", *options, "--files", files)
    assert done.returncode == 0, done.stderr
    by_path: dict[Path, Dump] = {}
    current = Dump()
    for line in done.stdout.splitlines():
        if line.startswith("Dumping "):
            current = by_path[Path(line.removeprefix("Dumping "))] = Dump()
        elif record := _RECORD.fullmatch(line):
            current.records.append(record.groupdict())
        elif (pairs := dict(_PAIR.findall(line))) and not line.startswith("Log starting"):
            current.rows.append(pairs)
        elif line:
            current.remarks.append(line)
    return Dumps(by_path, _complaints(done.stderr))


def _complaints(errors: str) -> list[str]:
    """Leave out an error that 4.3.1 prints for every file not starting at offset 0 (-1 before)."""
    lines = [line for line in errors.splitlines() if not _BEFORE_THE_FIRST.fullmatch(line)]
    return [
        line
        for line, following in zip(lines, [*lines, ""][1:], strict=True)
        if not _LISTS_FILE.fullmatch(line) or following.startswith("  ")
    ]
