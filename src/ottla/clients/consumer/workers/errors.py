"""The errors of `run`: they name the record and the remedy."""

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
    """The processing of a record failed, and the run has stopped. `__cause__` is the reason.

    Processed records are committed, at most up to this record: it comes again with the next run.
    """

    def __init__(self, partition: TopicPartition, offset: int, reason: str) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(f"{partition} offset {offset}: {reason}")


class StuckHandlerError(ConsumerError):
    """Handlers did not end in time. Their records are not committed, and are read again."""

    def __init__(self, sentence: str, records: Collection[tuple[TopicPartition, int]]) -> None:
        self.records = tuple(records)
        """The partition and offset of each record."""
        super().__init__(sentence)


def handler_error(work: Work, failure: Failure) -> HandlerError:
    """Make the error of a failed record."""
    tries = f" {work.attempts} times" if work.attempts > 1 else ""
    reason = f"{_WHAT_BY_STAGE[failure.stage]}{tries}: {type(failure.error).__name__}: "
    error = HandlerError(work.name, work.record.offset, reason + message_of(failure.error))
    error.__cause__ = failure.error
    return error


def message_of(error: BaseException) -> str:
    """Return the message of an application's error, even if its `__str__` raises."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - of the application
        return "(without words)"


def describe(stuck: Collection[Work], now: float) -> str:
    """Describe the records that are stuck, and for how long."""
    said = ", ".join(f"{work} (for {now - work.started_at:.1f} s)" for work in stuck)
    return f"handlers have not ended: {said}"


def stuck_error(stuck: Collection[Work], now: float) -> StuckHandlerError:
    """Make the error of stuck records."""
    return StuckHandlerError(describe(stuck, now), [(one.name, one.record.offset) for one in stuck])
