"""What a driver decides about one batch of a query, and how that is written down.

A decision is a record of a compacted topic, as JSON that people can read:

    ["decision", QUERY]   {"batch": 7, "commit": ["RUN.TASK.ATTEMPT:ID:EPOCH", …], "abort": […]}
    ["done", QUERY]       {"batch": 7}

The first is written in a transaction, see `two_phases`. The second says that all of its
transactions are ended: coordinators forget them after a week.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

TOPIC: Final = "ottla-sink.decisions"
"""Where all queries keep them: compacted, with one partition."""
NO_BATCH: Final = -1
"""The last batch of a query that has decided nothing."""


class DecisionError(Exception):
    """A decision cannot be made or kept; the words say what to do."""


def older_checkpoint(last_batch_id: int, batch_id: int) -> DecisionError:
    """Say that a query goes on from before what it has written."""
    return DecisionError(
        f"the checkpoint is older than what was written: batch {last_batch_id} was decided, the "
        f"checkpoint is at {batch_id}. Restore the newer checkpoint, or begin with a new "
        "checkpoint location; nothing of this batch is written"
    )


class AttemptName(NamedTuple):
    """One attempt of one task of one run of a query: nobody else ever has its transactions."""

    query: str
    """What all runs have in common: the beginning of all transactional ids."""
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


@dataclass(frozen=True, slots=True)
class Decision:
    """Which transactions of a batch are to be committed, and which left-over ones aborted."""

    batch_id: int = NO_BATCH
    committed: tuple[OpenTransaction, ...] = ()
    aborted: tuple[OpenTransaction, ...] = ()

    def to_json(self, query: str) -> bytes:
        """Write it down."""
        value = {
            "batch": self.batch_id,
            "commit": [_word(each, query) for each in self.committed],
            "abort": [_word(each, query) for each in self.aborted],
        }
        return _json(value)

    @classmethod
    def from_json(cls, text: bytes, query: str) -> Self:
        """Read what `to_json` wrote."""
        value: Any = json.loads(text)
        return cls(
            value["batch"],
            tuple(_transaction(word, query) for word in value["commit"]),
            tuple(_transaction(word, query) for word in value["abort"]),
        )


def decision_key(query: str) -> bytes:
    """Return where the last decision of a query is."""
    return _json(["decision", query])


def done_key(query: str) -> bytes:
    """Return where it is said how far a query's decisions are done."""
    return _json(["done", query])


def done_note(batch_id: int) -> bytes:
    """Say that all is done that was decided about batches up to this one."""
    return _json({"batch": batch_id})


def done_batch(text: bytes) -> int:
    """Read what `done_note` wrote."""
    batch_id: int = json.loads(text)["batch"]
    return batch_id


def is_of_query(transactional_id: str, query: str) -> bool:
    """Whether this is the transactional id of an attempt of a query's."""
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
