"""The driver's decision about one batch of a query, and its stored format.

A decision is a record of a compacted topic, as readable JSON:

    ["decision", QUERY]   {"batch": 7, "commit": ["RUN.TASK.ATTEMPT:ID:EPOCH", …], "abort": […]}
    ["done", QUERY]       {"batch": 7}

The first record is written in a transaction, see `exactly_once`. The second says that all
transactions of the decision have ended: coordinators forget them after a week.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

TOPIC: Final = "ottla-sink.decisions"
"""The topic with the decisions of all queries: compacted, with one partition."""
NO_BATCH: Final = -1
"""The last batch of a query without decisions."""


class DecisionError(Exception):
    """A decision cannot be made or kept; the message has the remedy."""


def older_checkpoint(last_batch_id: int, batch_id: int) -> DecisionError:
    """Return the error for a batch that is older than the last decision."""
    return DecisionError(
        f"the checkpoint is older than the output: batch {last_batch_id} was decided, the "
        f"checkpoint is at {batch_id}. Restore the newer checkpoint, or begin with a new "
        "checkpoint location; nothing of this batch is written"
    )


class AttemptName(NamedTuple):
    """The unique name of one attempt of one task of one run of a query."""

    query: str
    """Shared by all runs: the prefix of all transactional ids."""
    run: str
    """New at each start of the query. Without dots."""
    task: int
    attempt: int

    def __str__(self) -> str:
        """Return the transactional id."""
        return f"{self.query}.{self.run}.{self.task}.{self.attempt}"


class OpenTransaction(NamedTuple):
    """A flushed transaction that waits for the decision. It can be pickled."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class CommitDecision:
    """The transactions of a batch to commit, and the abandoned ones to abort."""

    batch_id: int = NO_BATCH
    committed: tuple[OpenTransaction, ...] = ()
    aborted: tuple[OpenTransaction, ...] = ()

    def to_json(self, query: str) -> bytes:
        """Return the stored form."""
        value = {
            "batch": self.batch_id,
            "commit": [_word(each, query) for each in self.committed],
            "abort": [_word(each, query) for each in self.aborted],
        }
        return _json(value)

    @classmethod
    def from_json(cls, text: bytes, query: str) -> Self:
        """Parse the stored form."""
        value: Any = json.loads(text)
        return cls(
            value["batch"],
            tuple(_transaction(word, query) for word in value["commit"]),
            tuple(_transaction(word, query) for word in value["abort"]),
        )


def decision_key(query: str) -> bytes:
    """Return the key of a query's last decision."""
    return _json(["decision", query])


def done_key(query: str) -> bytes:
    """Return the key of the record that says how far a query's decisions are done."""
    return _json(["done", query])


def done_note(batch_id: int) -> bytes:
    """Return the record value that says that all decisions up to this batch are done."""
    return _json({"batch": batch_id})


def done_batch(text: bytes) -> int:
    """Parse the value that `done_note` returns."""
    batch_id: int = json.loads(text)["batch"]
    return batch_id


def is_of_query(transactional_id: str, query: str) -> bool:
    """Whether this is the transactional id of an attempt of a query."""
    if not transactional_id.startswith(f"{query}."):
        return False
    run, *numbers = transactional_id.removeprefix(f"{query}.").split(".")
    return bool(run) and [each.isdecimal() for each in numbers] == [True, True]


def _word(transaction: OpenTransaction, query: str) -> str:
    short = transaction.transactional_id.removeprefix(f"{query}.")
    return f"{short}:{transaction.producer_id}:{transaction.epoch}"


def _transaction(word: str, query: str) -> OpenTransaction:
    short, producer_id, epoch = word.rsplit(":", 2)
    return OpenTransaction(f"{query}.{short}", int(producer_id), int(epoch))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
