"""Properties of every client history, under the names of Jepsen's Kafka workload.

Each checker looks at one property and returns its violations. Offsets may have gaps (markers,
compaction), so reads are compared by *index*: the rank of an offset among all known offsets of its
partition.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ottla.model.identifiers import TopicPartition
from ottla.simulation.checks.history import Commit, History, Operation, Outcome, Read

NOTHING: Final = -1


class Violation(NamedTuple):
    """Something that must not be."""

    invariant: str
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail}"


class Logs:
    """All that a history says about which value is where."""

    def __init__(self, history: History) -> None:
        self.values: dict[TopicPartition, dict[int, dict[str, None]]] = defaultdict(dict)
        """By partition and offset; a dict of values in place of a set, for its order."""
        self.offsets: dict[TopicPartition, dict[str, list[int]]] = defaultdict(dict)
        """By partition and value, in order."""
        self.read: dict[TopicPartition, dict[str, None]] = defaultdict(dict)
        """The values that were read."""
        for operation in history.operations:
            self._take(operation)
        self._index = {
            name: {offset: index for index, offset in enumerate(sorted(by_offset))}
            for name, by_offset in self.values.items()
        }
        for by_value in self.offsets.values():
            for offsets in by_value.values():
                offsets.sort()

    def index(self, partition: TopicPartition, offset: int) -> int:
        """Return the rank of an offset among the known offsets."""
        return self._index[partition][offset]

    def has_committed(self, operation: Operation) -> bool:
        """Return whether an operation must have happened: it is ok, or its writes were read."""
        if operation.outcome is Outcome.OK:
            return True
        return operation.outcome is Outcome.UNKNOWN and any(
            sent.value in self.read[sent.partition] for sent in operation.sent
        )

    def _take(self, operation: Operation) -> None:
        for read in operation.read:
            self.read[read.partition][read.value] = None
            self._place(read.partition, read.offset, read.value)
        if operation.outcome is Outcome.OK:
            for sent in operation.sent:
                if sent.offset is not None:
                    self._place(sent.partition, sent.offset, sent.value)

    def _place(self, partition: TopicPartition, offset: int, value: str) -> None:
        values = self.values[partition].setdefault(offset, {})
        if value not in values:
            values[value] = None
            self.offsets[partition].setdefault(value, []).append(offset)


Checker = Callable[[History, Logs], Iterator[Violation]]


def inconsistent_offsets(_: History, logs: Logs) -> Iterator[Violation]:
    """J1: all sends and reads of an offset agree on its value."""
    for name, by_offset in logs.values.items():
        for offset, values in sorted(by_offset.items()):
            if len(values) > 1:
                yield Violation("J1 inconsistent-offsets", f"{name} has {[*values]} at {offset}")


def duplicates(_: History, logs: Logs) -> Iterator[Violation]:
    """J2: a value is there once; only where producers are idempotent."""
    for name, by_value in logs.offsets.items():
        for value, offsets in by_value.items():
            if len(offsets) > 1:
                yield Violation("J2 duplicate", f"{name} has {value} at {offsets}")


def lost_writes(history: History, logs: Logs) -> Iterator[Violation]:
    """J3: before the last value that was read nothing is missing that was written."""
    read_to = {
        name: max(logs.index(name, logs.offsets[name][value][0]) for value in values)
        for name, values in logs.read.items()
        if values
    }
    for operation in filter(logs.has_committed, history.operations):
        for sent in operation.sent:
            name, value = sent.partition, sent.value
            offsets = logs.offsets[name].get(value)
            if not offsets or value in logs.read[name]:
                continue
            if logs.index(name, offsets[-1]) <= read_to.get(name, NOTHING):
                yield Violation("J3 lost-write", f"{name} had {value} at {offsets[-1]}: unread")


def unseen(history: History, logs: Logs) -> Iterator[Violation]:
    """J4: every committed value was read; only after a final read to the end."""
    for operation in filter(logs.has_committed, history.operations):
        for sent in operation.sent:
            if sent.value not in logs.read[sent.partition]:
                yield Violation("J4 unseen", f"{sent.partition}: {sent.value} was never read")


def aborted_reads(history: History, logs: Logs) -> Iterator[Violation]:
    """J5: no reader saw a value of a failed operation."""
    failed = [one for one in history.operations if one.outcome is Outcome.FAILED]
    for sent in [sent for operation in failed for sent in operation.sent]:
        if sent.value in logs.read[sent.partition]:
            yield Violation("J5 aborted-read", f"{sent.partition}: {sent.value} was read")


def precommitted_reads(history: History, _: Logs) -> Iterator[Violation]:
    """J6: no transaction reads its own writes."""
    for operation in history.operations:
        own = {(sent.partition, sent.value) for sent in operation.sent}
        for read in operation.read:
            if (read.partition, read.value) in own:
                detail = f"{operation.client} read its own {read.value} in {read.partition}"
                yield Violation("J6 precommitted-read", detail)


def jumps_within(history: History, logs: Logs) -> Iterator[Violation]:
    """J7: the reads of one operation are one after the other, and leave nothing out."""
    for operation in history.operations:
        last: dict[TopicPartition, int] = {}
        for read in operation.read:
            if read.partition not in operation.moved:
                yield from _jump("J7 int-", operation, read, last.get(read.partition), logs)
            last[read.partition] = read.offset


def jumps_between(history: History, logs: Logs) -> Iterator[Violation]:
    """J8: a reader's next operation continues where its last operation ended."""
    last: dict[tuple[str, TopicPartition], int] = {}
    for operation in history.operations:
        for name in operation.moved:
            last.pop((operation.client, name), None)
        firsts: dict[TopicPartition, Read] = {}
        for read in operation.read:
            if firsts.setdefault(read.partition, read) is read:
                before = last.get((operation.client, read.partition))
                yield from _jump("J8 ", operation, read, before, logs)
            last[operation.client, read.partition] = read.offset


def disordered_sends(history: History, logs: Logs) -> Iterator[Violation]:
    """J9: a client's sends to a partition are in the log in the order of sending."""
    last: dict[tuple[str, TopicPartition], tuple[int, str]] = {}
    for operation in history.operations:
        for sent in operation.sent:
            offsets = logs.offsets[sent.partition].get(sent.value)
            if not offsets:
                continue
            key = (operation.client, sent.partition)
            offset_before, value_before = last.get(key, (NOTHING, ""))
            if offsets[0] <= offset_before:
                detail = (
                    f"{operation.client} sent {value_before}, at {offset_before} of "
                    f"{sent.partition}, before {sent.value}, at {offsets[0]}"
                )
                yield Violation("J9 nonmonotonic-send", detail)
            last[key] = (offsets[0], sent.value)


def lost_commits(
    commits: Iterable[Commit], committed: dict[tuple[str, TopicPartition], int]
) -> list[Violation]:
    """G2: a group's offset is its last acknowledged commit, or a commit with an unknown outcome.

    The commits must come from one client, one after the other. A commit with an unknown outcome may
    arrive after later commits were acknowledged.
    """
    possible: dict[tuple[str, TopicPartition], list[int]] = {}
    late: dict[tuple[str, TopicPartition], list[int]] = {}
    for commit in commits:
        key = (commit.group_id, commit.partition)
        if commit.outcome is Outcome.OK:
            possible[key] = [commit.offset]
        elif commit.outcome is Outcome.UNKNOWN:
            late.setdefault(key, []).append(commit.offset)
            possible.setdefault(key, [NOTHING])
    return [
        Violation("G2 lost-commit", f"{key[0]} has {committed.get(key, NOTHING)}, not {offsets}")
        for key, offsets in possible.items()
        if committed.get(key, NOTHING) not in [*offsets, *late.get(key, [])]
    ]


ALWAYS: Final[tuple[Checker, ...]] = (
    inconsistent_offsets,
    lost_writes,
    aborted_reads,
    precommitted_reads,
    jumps_within,
    jumps_between,
    disordered_sends,
)


def check_history(
    history: History, *, is_idempotent: bool = True, is_read_to_the_end: bool = True
) -> list[Violation]:
    """Look for everything; two things only where they can be expected."""
    logs = Logs(history)
    checkers = [
        *ALWAYS,
        *([duplicates] if is_idempotent else []),
        *([unseen] if is_read_to_the_end else []),
    ]
    return [violation for checker in checkers for violation in checker(history, logs)]


def _jump(
    prefix: str, operation: Operation, read: Read, before: int | None, logs: Logs
) -> Iterator[Violation]:
    if before is None:
        return
    step = logs.index(read.partition, read.offset) - logs.index(read.partition, before)
    if step != 1:
        kind = "poll-skip" if step > 1 else "nonmonotonic-poll"
        detail = f"{operation.client} read {read.offset} of {read.partition} after {before}"
        yield Violation(f"{prefix}{kind}", detail)
