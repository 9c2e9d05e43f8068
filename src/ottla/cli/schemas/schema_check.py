"""Compares schemas with earlier versions by a compatibility level, and reports the differences."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ottla.cli.schemas.schema_fields import field_at, line_of
from ottla.cli.schemas.schema_sources import LocalSchema, shown_path
from ottla.cli.support.exit_codes import WrongCallError
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.schemas.parsed_schema import CompatibilityPolicy, Incompatibility, ParsedSchema
from ottla.schemas.schema import SchemaType

LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
DEFAULT_LEVEL: Final = "BACKWARD"
"""The level of a registry without a configuration."""
GROUPS_MAX: Final = 1_000
"""The most consumer groups of which the committed offsets are read."""
BACKWARD: Final = "backward"
FORWARD: Final = "forward"
BOTH: Final = "both"
NEW: Final = "new"
VALID: Final = "valid"
"""Not compared with anything."""
_COMPATIBLE: Final = "compatible"
_INCOMPATIBLE: Final = "incompatible"
_INVALID: Final = "invalid"
_WAY_OUT_FORWARD: Final = {
    "READER_FIELD_MISSING_DEFAULT_VALUE": "keep the field: earlier consumers need it",
    "MISSING_ENUM_SYMBOLS": "remove the new symbols: earlier consumers do not know them",
    "MISSING_UNION_BRANCH": "remove the new branch: earlier consumers do not know it",
    "NAME_MISMATCH": "keep the name",
    "FIXED_SIZE_MISMATCH": "keep the size",
    "TYPE_MISMATCH": "keep the type, or add a field with a new name",
}
_WAY_OUT: Final = {
    BACKWARD: "undo the change, or write to a new topic",
    FORWARD: "undo the change; or choose BACKWARD, if all consumers are deployed first",
}


@dataclass(frozen=True, slots=True)
class EarlierVersion:
    """A schema that the new schema is compared with."""

    name: str
    """For messages, such as `git main` or `version 3`."""
    parsed: ParsedSchema


@dataclass(frozen=True, slots=True)
class Finding:
    """One incompatible change, or the reason why a schema is invalid."""

    rule: str
    message: str
    way_out: str = ""
    direction: str = ""
    """backward: the new schema cannot read earlier data; forward: the other way round; or both."""
    earlier: str = ""
    path: str = ""
    """The place in the schema of the reader."""
    field: str = ""
    line: int = 1


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """The result for one schema."""

    name: str
    status: str
    subject: str | None = None
    level: str = ""
    compared: tuple[str, ...] = ()
    """The names of the earlier versions."""
    findings: tuple[Finding, ...] = ()
    file: str | None = None
    readers: tuple[str, ...] | None = None
    """The consumer groups that read the topic; None if no cluster was asked."""

    @property
    def is_good(self) -> bool:
        """Whether the schema may be merged."""
        return self.status not in {_INCOMPATIBLE, _INVALID}


def parse_level(word: str) -> str:
    """Return a compatibility level; a wrong call if there is none of this name."""
    level = word.upper().replace("-", "_")
    if level not in LEVELS:
        names = ", ".join(name.lower() for name in LEVELS)
        raise WrongCallError(f"--level is one of {names}, not {word!r}")
    return level


def directions_of(level: str) -> tuple[str, ...]:
    """Return the directions that a level asks for."""
    kind = level.removesuffix("_TRANSITIVE")
    return {
        "BACKWARD": (BACKWARD,),
        "FORWARD": (FORWARD,),
        "FULL": (BACKWARD, FORWARD),
    }.get(kind, ())


def invalid(name: str, reason: str, path: Path | None) -> CheckedSchema:
    """Return the result for a text that is no schema."""
    file = None if path is None else _file(path)
    finding = Finding("INVALID_SCHEMA", reason, "correct the schema")
    return CheckedSchema(name, _INVALID, findings=(finding,), file=file)


def check(
    new: LocalSchema,
    earlier: Sequence[EarlierVersion],
    level: str,
    subject: str | None = None,
    policy: CompatibilityPolicy = CompatibilityPolicy.STRICT,
) -> CheckedSchema:
    """Compare a schema with earlier versions, the newest last; the level chooses the versions."""
    checked = CheckedSchema(
        new.name,
        NEW,
        subject,
        level,
        file=None if new.path is None else _file(new.path),
    )
    if not earlier:
        return checked
    chosen = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    findings = tuple(
        finding for version in chosen for finding in _compared(new, version, level, policy)
    )
    status = _INCOMPATIBLE if findings else _COMPATIBLE
    names = tuple(version.name for version in chosen)
    return replace(checked, status=status, compared=names, findings=findings)


def _compared(
    new: LocalSchema, earlier: EarlierVersion, level: str, policy: CompatibilityPolicy
) -> list[Finding]:
    """Compare in the directions of a level; a reason of both directions is one finding."""
    found: dict[tuple[str, str], Finding] = {}
    for direction in directions_of(level):
        known = set(found)
        for finding in compare(new, earlier, direction, policy):
            key = finding.rule, finding.path
            if key in known:
                found[key] = replace(found[key], direction=BOTH)
            else:
                found.setdefault(key, finding)
    return list(found.values())


def compare(
    new: LocalSchema,
    earlier: EarlierVersion,
    direction: str,
    policy: CompatibilityPolicy = CompatibilityPolicy.STRICT,
) -> list[Finding]:
    """Return why one of two schemas cannot read data of the other."""
    reader, writer = new.parsed, earlier.parsed
    if direction == FORWARD:
        reader, writer = writer, reader
    if reader.type is not writer.type:
        change = f"the type of the schema changed from {earlier.parsed.type} to {new.parsed.type}"
        way_out = "use a new subject"
        return [Finding("TYPE_CHANGED", change, way_out, direction, earlier.name, line=new.line)]
    found = []
    for one in reader.reading(writer, policy):
        change, way_out = _split(one, direction)
        if direction == FORWARD and reader.type is not SchemaType.AVRO:
            change = f"from this schema back to {earlier.name}, {change[:1].lower()}{change[1:]}"
        name = field_at(reader.type, reader, one.path)
        line = new.line
        if new.path is not None and new.path.suffix != ".py":
            line = line_of(new.schema.type, new.schema.text, name)
        found.append(
            Finding(one.rule, change, way_out, direction, earlier.name, one.path, name, line)
        )
    return found


def _split(reason: Incompatibility, direction: str) -> tuple[str, str]:
    """Split a message into the change and the way out.

    The way out of a message changes the reader; forward, the reader is deployed already.
    """
    message = reason.message.removeprefix(f"{reason.rule} at {reason.path}: ")
    separator = "; " if "; " in message else ": "
    change, found, way_out = message.rpartition(separator)
    if not found:
        change, way_out = message, ""
    if direction == FORWARD:
        way_out = _WAY_OUT_FORWARD.get(reason.rule, "")
    return change, way_out or _WAY_OUT[direction]


def _file(path: Path) -> str:
    """Return a path for reports: GitHub takes paths from the top of the repository."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    if workspace and path.is_relative_to(Path(workspace).resolve()):
        return str(path.relative_to(Path(workspace).resolve()))
    return shown_path(path)


# -- groups that read a topic ---------------------------------------------------------------------


def topic_of(subject: str | None) -> str | None:
    """Return the topic of a subject by TopicNameStrategy; None for other subjects."""
    name = (subject or "").rpartition(":")[2]
    for suffix in ("-value", "-key"):
        if name.endswith(suffix):
            return name.removesuffix(suffix) or None
    return None


async def with_readers(view: ClusterView, results: Sequence[CheckedSchema]) -> list[CheckedSchema]:
    """Add the groups with committed offsets of the topic of each subject."""
    admin = AsyncAdmin.over(view)
    groups_by_topic: dict[str, list[str]] = {}
    for group in (await admin.groups.list())[:GROUPS_MAX]:
        committed = await admin.groups.committed(group.group_id)
        for name in sorted({name.topic for name in committed}):
            groups_by_topic.setdefault(name, []).append(group.group_id)
    added = []
    for result in results:
        topic = topic_of(result.subject)
        readers = None if topic is None else tuple(groups_by_topic.get(topic, ()))
        added.append(replace(result, readers=readers))
    return added


# -- reports --------------------------------------------------------------------------------------


def write_text(results: Iterable[CheckedSchema]) -> None:
    """Write a line per schema and the findings below it."""
    for result in results:
        sys.stdout.write(f"{result.status:<12}  {result.name}{_described(result)}\n")
        for finding in result.findings:
            sys.stdout.write(f"  {_place(result, finding)}{finding.rule}\n")
            for label, text in _details(result, finding):
                sys.stdout.write(f"    {label:<8} {text}\n")


def _described(result: CheckedSchema) -> str:
    words = []
    if result.subject and result.subject != result.name:
        words.append(result.subject)
    if len(result.compared) == 1:
        words.append(f"{result.level} against {result.compared[0]}")
    elif result.compared:
        first, last = result.compared[0], result.compared[-1]
        words.append(f"{result.level} against {len(result.compared)} versions, {first} to {last}")
    return f" ({'; '.join(words)})" if words else ""


def _place(result: CheckedSchema, finding: Finding) -> str:
    return "" if result.file is None else f"{result.file}:{finding.line}: "


def _details(result: CheckedSchema, finding: Finding) -> list[tuple[str, str]]:
    rows = [("change", finding.message)]
    if finding.field or finding.path:
        shown = f"{finding.field} ({finding.path})" if finding.field else finding.path
        rows.insert(0, ("at", shown))
    if finding.direction:
        rows.append(("effect", _effect(finding)))
    if result.readers:
        rows.append(("readers", ", ".join(result.readers)))
    return [*rows, ("do", finding.way_out)]


def _effect(finding: Finding) -> str:
    match finding.direction:
        case "backward":
            return f"consumers with this schema cannot read data of {finding.earlier}"
        case "forward":
            return f"consumers with the schema of {finding.earlier} cannot read new data"
        case _:
            return f"neither this schema nor {finding.earlier} can read data of the other"


def as_json(results: Iterable[CheckedSchema]) -> list[dict[str, Any]]:
    """Return the results as JSON values."""
    return [
        {
            "schema": result.name,
            "file": result.file,
            "subject": result.subject,
            "status": result.status,
            "level": result.level or None,
            "compared": list(result.compared),
            "readers": None if result.readers is None else list(result.readers),
            "findings": [_finding_as_json(finding) for finding in result.findings],
        }
        for result in results
    ]


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "direction": finding.direction or None,
        "earlier": finding.earlier or None,
        "path": finding.path,
        "field": finding.field,
        "line": finding.line,
        "message": finding.message,
        "way_out": finding.way_out,
    }


def write_json(results: Iterable[CheckedSchema]) -> None:
    """Write the results as one JSON array."""
    sys.stdout.write(json.dumps(as_json(results), indent=2, ensure_ascii=False) + "\n")


def write_annotations(results: Iterable[CheckedSchema]) -> None:
    """Write GitHub's workflow commands, which show findings beside the lines of the file."""
    for result in results:
        for finding in result.findings:
            place: Mapping[str, str] = {"title": finding.rule}
            if result.file is not None:
                place = {"file": result.file, "line": str(finding.line), **place}
            properties = ",".join(f"{name}={_escaped(text, ':,')}" for name, text in place.items())
            lines = [f"{label}: {text}" for label, text in _details(result, finding)]
            message = _escaped("\n".join([result.name, *lines]), "")
            sys.stdout.write(f"::error {properties}::{message}\n")


def _escaped(text: str, more: str) -> str:
    for letter in f"%\r\n{more}":
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text
