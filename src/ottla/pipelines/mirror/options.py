"""The options of a mirror, in a form that can be sent to Spark's other processes."""

import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Final, Self

from ottla.clients.config.settings import ClientSettings, read_client_settings
from ottla.pipelines.mirror.offset_syncs import MirroredTopic
from ottla.pipelines.sink.commit_decision import TOPIC as DECISIONS_TOPIC

NOTES_PREFIX: Final = "ottla-mirror."
NOTES_SUFFIX: Final = ".offsets"
_NOT_MIRRORED: Final = ("__", NOTES_PREFIX, DECISIONS_TOPIC)
"""Prefixes of topics that brokers, mirrors and sinks keep for themselves."""
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
DEFAULT_RANGE_BYTES: Final = 256 << 20
"""About how much of a partition one micro-batch copies."""


class MirrorError(Exception):
    """Ends the mirror; a retry does not help before its operator has acted."""


def notes_topic(source_cluster: str) -> str:
    """Return the topic, on the target, with the state of copies from a cluster."""
    return f"{NOTES_PREFIX}{source_cluster}{NOTES_SUFFIX}"


def is_notes_topic(name: str) -> bool:
    """Whether a mirror keeps its notes there."""
    return name.startswith(NOTES_PREFIX) and name.endswith(NOTES_SUFFIX)


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """Source, target and selection. Settings have Kafka's names."""

    source: dict[str, str]
    target: dict[str, str]
    topics: tuple[str, ...]
    """Names, or regular expressions for whole names."""
    groups: str = ".*"
    """A regular expression for the groups to translate; empty for none."""
    prefix: str = ""
    replication_factor: int = 0
    """Of topics that are made; 0 is the source's, as far as there are brokers."""
    range_bytes: int = DEFAULT_RANGE_BYTES
    task_count: int = 2
    """Into how many tasks a micro-batch is split, at most."""

    @property
    def source_settings(self) -> ClientSettings:
        """How to reach the cluster that is copied from."""
        return read_client_settings(self.source, {})

    @property
    def target_settings(self) -> ClientSettings:
        """How to reach the cluster that is copied to."""
        return read_client_settings(self.target, {})

    @property
    def plain_names(self) -> tuple[str, ...]:
        """The topics that are named, rather than described."""
        return tuple(word for word in self.topics if _NAME.fullmatch(word))

    def is_wanted(self, topic: str) -> bool:
        """Whether a topic of the source is to be copied; internal topics never are."""
        if topic.startswith(_NOT_MIRRORED):
            return False
        return any(topic == word or re.fullmatch(word, topic) for word in self.topics)

    def is_wanted_group(self, group_id: str) -> bool:
        """Whether a group's offsets are to be translated."""
        return bool(self.groups) and re.fullmatch(self.groups, group_id) is not None

    def target_topic(self, topic: str) -> str:
        """Return the name of a topic's copy on the target."""
        return self.prefix + topic

    def is_fed(self, copy: MirroredTopic) -> bool:
        """Whether a mirror with these options writes a copy."""
        is_wanted = self.is_wanted(copy.source_name)
        return is_wanted and self.target_topic(copy.source_name) == copy.name

    def checked(self) -> Self:
        """Return this, or raise MirrorError for contradictory options."""
        for word in (*self.topics, self.groups):
            try:
                re.compile(word)
            except re.error as error:
                raise MirrorError(f"{word!r} is no regular expression: {error}") from None
        if not self.topics:
            raise MirrorError("no topic is named: give --topics NAME,… or a pattern such as '.*'")
        for name in self.plain_names:
            if name.startswith(_NOT_MIRRORED):
                raise MirrorError(
                    f"{name!r} belongs to brokers, mirrors or sinks: it is not mirrored"
                )
        if self.prefix and not _NAME.fullmatch(self.prefix):
            raise MirrorError(f"a topic's name cannot begin with {self.prefix!r}")
        return self

    def with_tasks(self, task_count: int) -> Self:
        """Return the same with another number of tasks."""
        return replace(self, task_count=task_count)

    def to_json(self) -> str:
        """Write it down."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the result of `to_json`."""
        values = json.loads(text)
        values["topics"] = tuple(values["topics"])
        return cls(**values)
