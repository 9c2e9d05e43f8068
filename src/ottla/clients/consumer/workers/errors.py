"""What `run` raises: which record it was, and what to do."""

from collections.abc import Collection

from ottla.clients.consumer.state.errors import ConsumerError
from ottla.clients.consumer.workers.executors import Failure, Stage
from ottla.clients.consumer.workers.lane_scheduler import Work
from ottla.model.identifiers import TopicPartition

_WHAT_BY_STAGE = {
    Stage.KEY: "its key cannot be deserialized",
    Stage.VALUE: "its value cannot be deserialized",
    Stage.HANDLER: "the handler failed",
}


class HandlerError(ConsumerError):
    """A record could not be worked on, and so all has stopped. `__cause__` is why.

    What was done is committed, up to this record at most: it comes again with the next run.
    """

    def __init__(self, partition: TopicPartition, offset: int, reason: str) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(f"{partition} offset {offset}: {reason}")


class StuckHandlerError(ConsumerError):
    """Handlers did not end in time. Their records are not committed, and will come again."""

    def __init__(self, sentence: str, records: Collection[tuple[TopicPartition, int]]) -> None:
        self.records = tuple(records)
        """Partition and offset of each."""
        super().__init__(sentence)


def handler_error(work: Work, failure: Failure) -> HandlerError:
    """Make an error of what became of a record."""
    tries = f" {work.attempts} times" if work.attempts > 1 else ""
    reason = f"{_WHAT_BY_STAGE[failure.stage]}{tries}: {type(failure.error).__name__}: "
    error = HandlerError(work.name, work.record.offset, reason + message_of(failure.error))
    error.__cause__ = failure.error
    return error


def message_of(error: BaseException) -> str:
    """Return what an error of the application says, even if it cannot say it."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - of the application
        return "(without words)"


def describe(stuck: Collection[Work], now: float) -> str:
    """Say which records hang, and for how long."""
    said = ", ".join(f"{work} (for {now - work.started_at:.1f} s)" for work in stuck)
    return f"handlers have not ended: {said}"


def stuck_error(stuck: Collection[Work], now: float) -> StuckHandlerError:
    """Make an error of records that hang."""
    return StuckHandlerError(describe(stuck, now), [(one.name, one.record.offset) for one in stuck])
