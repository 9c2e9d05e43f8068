"""The start or end of a read, parsed from its option: a word, offsets or times.

startingOffsets         earliest | latest | {"topic": {"0": 23, "1": -2}}, -2 earliest, -1 latest
startingTimestamp       milliseconds, for every partition
…OffsetsByTimestamp     {"topic": {"0": milliseconds}}
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.model.identifiers import TopicPartition
from ottla.model.isolation_level import EARLIEST, LATEST
from ottla.pipelines.source.errors import SourceOptionError

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_NUMBER_BY_PARTITION: Final = '{"topic": {"0": number}}'


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a read: the name of its option, and the option's value in one of the fields."""

    option: str
    everywhere: int | None = None
    """EARLIEST or LATEST, in every partition."""
    offset_by_partition: Mapping[TopicPartition, int] | None = None
    """Offsets, EARLIEST or LATEST."""
    time_ms: int | None = None
    time_ms_by_partition: Mapping[TopicPartition, int] | None = None

    @property
    def named_partitions(self) -> Collection[TopicPartition] | None:
        """The partitions that the option names one by one; None if it holds for all."""
        if self.offset_by_partition is not None:
            return self.offset_by_partition.keys()
        if self.time_ms_by_partition is not None:
            return self.time_ms_by_partition.keys()
        return None

    def times_for(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the timestamp to look up in each partition; empty unless the bound is a time."""
        if self.time_ms is not None:
            return dict.fromkeys(partitions, self.time_ms)
        if self.time_ms_by_partition is not None:
            return {name: self.time_ms_by_partition[name] for name in partitions}
        return {}

    def refuse(self, refused: int, why: str) -> None:
        """Raise SourceOptionError if the bound is `refused`: EARLIEST, or LATEST."""
        said = {self.everywhere, *(self.offset_by_partition or {}).values()}
        if refused in said:
            raise SourceOptionError(f"{self.option} {why}")


def read_offsets(option: str, text: str) -> Bound:
    """Read a word, or offsets by partition."""
    word = text.strip().lower()
    if word in _WORDS:
        return Bound(option, everywhere=_WORDS[word])
    if not text.lstrip().startswith("{"):
        raise SourceOptionError(
            f"{option} cannot be {text!r}: it must be earliest, latest or {_NUMBER_BY_PARTITION}"
        )
    return Bound(option, offset_by_partition=_numbers(option, text, least=EARLIEST))


def read_time(option: str, text: str) -> Bound:
    """Read one time for every partition."""
    try:
        time_ms = int(text)
    except ValueError:
        time_ms = -1
    if time_ms < 0:
        raise SourceOptionError(f"{option} cannot be {text!r}: it must be milliseconds since 1970")
    return Bound(option, time_ms=time_ms)


def read_times(option: str, text: str) -> Bound:
    """Read times by partition."""
    return Bound(option, time_ms_by_partition=_numbers(option, text, least=0))


def read_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Read `{"topic": [0, 1]}`."""
    found: set[TopicPartition] = set()
    for topic, listed in _object(option, text).items():
        if not isinstance(listed, list) or not all(_is_whole(number, 0) for number in listed):
            raise SourceOptionError(
                f'{option}: {json.dumps({topic: listed})} is not like {{"topic": [0, 1]}}'
            )
        found.update(TopicPartition(topic, number) for number in listed)
    if not found:
        raise SourceOptionError(f'{option} names no partition: it must be like {{"topic": [0, 1]}}')
    return tuple(sorted(found))


def _numbers(option: str, text: str, *, least: int) -> dict[TopicPartition, int]:
    found = {}
    for topic, numbers in _object(option, text).items():
        for partition, number in numbers.items() if isinstance(numbers, dict) else [("", 0)]:
            if not partition.isascii() or not partition.isdigit() or not _is_whole(number, least):
                raise SourceOptionError(
                    f"{option}: {json.dumps({topic: numbers})} is not like {_NUMBER_BY_PARTITION}"
                )
            found[TopicPartition(topic, int(partition))] = number
    if not found:
        raise SourceOptionError(f"{option} names no partition: it must be {_NUMBER_BY_PARTITION}")
    return found


def _object(option: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SourceOptionError(f"{option} is not JSON, {error}: {text!r}") from None
    if not isinstance(found, dict):
        raise SourceOptionError(f"{option} is not a JSON object: {text!r}")
    return found


def _is_whole(number: object, least: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= least
