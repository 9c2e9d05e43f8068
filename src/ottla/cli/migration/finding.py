"""A finding about a cluster: an obstacle or a note, and the nodes, topics or groups it is about."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Whether a finding blocks the replacement of a broker."""

    OBSTACLE = "obstacle"
    NOTE = "note"


class Subject(StrEnum):
    """The kinds of things that a finding can be about."""

    CLUSTER = "cluster"
    NODE = "node"
    TOPIC = "topic"
    PARTITION = "partition"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence: the fact, and after a colon the remedy."""

    severity: Severity
    subject: Subject
    text: str
    names: tuple[str, ...] = ()
    """The nodes, topics, partitions or groups; empty for the cluster."""


def obstacle(subject: Subject, text: str, names: Iterable[object] = ()) -> Finding:
    """Make a finding that blocks."""
    return Finding(Severity.OBSTACLE, subject, text, tuple(map(str, names)))


def note(subject: Subject, text: str, names: Iterable[object] = ()) -> Finding:
    """Make a finding that does not block."""
    return Finding(Severity.NOTE, subject, text, tuple(map(str, names)))


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Join findings with the same sentence; obstacles come first."""
    names_by_sentence: dict[tuple[Severity, Subject, str], dict[str, None]] = {}
    for found in findings:
        sentence = found.severity, found.subject, found.text
        names_by_sentence.setdefault(sentence, {}).update(dict.fromkeys(found.names))
    joined = [Finding(*sentence, tuple(names)) for sentence, names in names_by_sentence.items()]
    return sorted(joined, key=lambda found: found.severity is Severity.NOTE)
