"""What a driver decides about one batch of a query, and how that is written down.

A decision is kept as committed offsets of a group that is named after the query: the offset is
the batch's number, the metadata names the transactions. All of a group's offsets that are
committed in one transaction are there together or not at all, and they are found without a scan.
The broker takes 4,096 bytes of metadata for one partition (offset.metadata.max.bytes), so a long
list is spread over the partitions of the topics that were written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from ottla.clients.admin_groups import CommittedOffset
from ottla.clients.producer.transaction_requests import OffsetToCommit
from ottla.model.identifiers import TopicPartition

NO_BATCH: Final = -1
"""The last batch of a query that has decided nothing."""
METADATA_BYTES_MAX: Final = 4_096
"""Kafka's default for offset.metadata.max.bytes."""
_COMMIT: Final = "+"
_ABORT: Final = "-"


class DecisionError(Exception):
    """A decision cannot be made or kept; the words say what to do."""


class AttemptName(NamedTuple):
    """One attempt of one task of one run of a query: nobody else ever has its transactions."""

    query: str
    """What all runs have in common: the beginning of all transactional ids, and the group."""
    run: str
    """New whenever the query is started. No dots."""
    task: int
    attempt: int

    def __str__(self) -> str:
        """Return the transactional id."""
        return f"{self.query}.{self.run}.{self.task}.{self.attempt}"


class OpenTransaction(NamedTuple):
    """A transaction that is written and waits for the decision. It can be pickled."""

    transactional_id: str
    producer_id: int
    epoch: int
    topic: str = ""
    """One of the topics that it wrote to."""

    @property
    def name(self) -> tuple[str, int, int]:
        """What tells it from all others, of the same transactional id, too."""
        return self.transactional_id, self.producer_id, self.epoch


@dataclass(frozen=True, slots=True)
class Decision:
    """Which transactions of a batch are to be committed, and which left-over ones aborted."""

    batch_id: int = NO_BATCH
    committed: tuple[OpenTransaction, ...] = ()
    aborted: tuple[OpenTransaction, ...] = ()

    def offsets(
        self, query: str, partition_counts: Mapping[str, int]
    ) -> dict[TopicPartition, OffsetToCommit]:
        """Write it as offsets of partitions that exist; DecisionError if there are too few."""
        words = [_word(_COMMIT, each, query) for each in self.committed]
        words += [_word(_ABORT, each, query) for each in self.aborted]
        pages = _pages(words)
        slots = [
            TopicPartition(topic, number)
            for topic, count in sorted(partition_counts.items())
            for number in range(count)
        ]
        if len(pages) > len(slots):
            raise DecisionError(
                f"batch {self.batch_id} has {len(words)} transactions, more than can be decided "
                f"on at once with {len(slots)} partitions: write with fewer tasks, as with "
                f"df.coalesce({len(slots) * len(words) // len(pages)})"
            )
        return {
            slot: OffsetToCommit(self.batch_id, f"{number}/{len(pages)} {page}")
            for number, (slot, page) in enumerate(zip(slots, pages, strict=False), start=1)
        }

    @classmethod
    def read(cls, query: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> Self:
        """Read the last one; what earlier ones have left in other partitions is not looked at."""
        batch_id = max((each.offset for each in offsets.values()), default=NO_BATCH)
        pages = [each.metadata or "" for each in offsets.values() if each.offset == batch_id]
        words: list[str] = []
        for page in pages:
            head, *rest = page.split(" ")
            if head.partition("/")[2] != str(len(pages)):
                raise DecisionError(
                    f"group {query!r} is not only used for what queries decide, or parts of the "
                    f"decision about batch {batch_id} are lost: {page[:80]!r}"
                )
            words += rest
        return cls(
            batch_id,
            tuple(_transaction(word, query) for word in words if word[0] == _COMMIT),
            tuple(_transaction(word, query) for word in words if word[0] == _ABORT),
        )


def is_of_query(transactional_id: str, query: str) -> bool:
    """Whether this is the transactional id of an attempt of a query's."""
    if not transactional_id.startswith(f"{query}."):
        return False
    run, *numbers = transactional_id.removeprefix(f"{query}.").split(".")
    return bool(run) and [each.isdecimal() for each in numbers] == [True, True]


def _word(sign: str, transaction: OpenTransaction, query: str) -> str:
    short = transaction.transactional_id.removeprefix(f"{query}.")
    return f"{sign}{short}:{transaction.producer_id}:{transaction.epoch}"


def _transaction(word: str, query: str) -> OpenTransaction:
    short, producer_id, epoch = word[1:].rsplit(":", 2)
    return OpenTransaction(f"{query}.{short}", int(producer_id), int(epoch))


def _pages(words: Iterable[str]) -> Sequence[str]:
    """Put words together to texts that leave room for their numbers."""
    room = METADATA_BYTES_MAX - len("12345/12345 ")
    pages: list[str] = []
    for word in words:
        if pages and len(pages[-1]) + 1 + len(word) <= room:
            pages[-1] += f" {word}"
        else:
            pages.append(word)
    return pages
