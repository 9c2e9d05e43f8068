"""The options of `run`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict, get_args

from ottla.wire.records.consumer_record import ConsumerRecord

Handler = Callable[[ConsumerRecord], Any]
Ordering = Literal["key", "partition", "none"]
OnError = Literal["stop", "skip"]
RetryOn = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
IN_PROGRESS_PER_WORKER: Final = 16
"""The default of `max_in_progress` per worker."""
AHEAD_MAX: Final = 10_000
"""The limit of tracked records per partition, from the first unprocessed one. One stuck record
then stops its partition; after a crash at most this many records are processed again."""


class WorkOptions(TypedDict, total=False):
    """The keywords of `run`, as in `WorkSettings`."""

    workers: int
    ordering: Ordering
    max_in_progress: int | None
    retries: int
    backoff_ms: float
    backoff_max_ms: float
    retry_on: RetryOn
    dead_letter_topic: str | None
    on_error: OnError
    timeout: float


@dataclass(frozen=True, slots=True)
class WorkSettings:
    """How records are processed; ValueError names an invalid option."""

    workers: int = 8
    """The number of records that are processed concurrently."""
    ordering: Ordering = "key"
    """The unit that is processed in the order of offsets, one record at a time: a key within a
    partition, a partition, or none. A record without a key has no predecessor."""
    max_in_progress: int | None = None
    """The limit of unprocessed records; by default 16 per worker."""
    retries: int = 3
    """How often a failed handler is called again with the same record."""
    backoff_ms: float = 100
    """The backoff before the first retry; doubled at each further retry, with 20% jitter."""
    backoff_max_ms: float = 10_000
    retry_on: RetryOn = Exception
    """The errors to retry: exception types, or a predicate."""
    dead_letter_topic: str | None = None
    """The topic for records that cannot be processed; they then count as processed."""
    on_error: OnError = "stop"
    """Without a dead-letter topic: stop and raise HandlerError, or log and skip the record."""
    timeout: float = 30.0
    """How many seconds handlers have to end, at a stop or a revocation."""

    def __post_init__(self) -> None:
        for name, value, least in (
            ("workers", self.workers, 1),
            ("max_in_progress", self.in_progress_max, 1),
            ("retries", self.retries, 0),
            ("backoff_ms", self.backoff_ms, 0),
            ("backoff_max_ms", self.backoff_max_ms, self.backoff_ms),
            ("timeout", self.timeout, 0),
        ):
            if value < least:
                raise ValueError(f"{name} is {value}, and must be at least {least}")
        self._check_words()

    def _check_words(self) -> None:
        for name, word, words in (
            ("ordering", self.ordering, get_args(Ordering)),
            ("on_error", self.on_error, get_args(OnError)),
        ):
            if word not in words:
                raise ValueError(f"{name} is {word!r}, and must be one of {', '.join(words)}")
        if self.dead_letter_topic is not None and self.on_error == "skip":
            raise ValueError("on_error='skip' and a dead_letter_topic exclude each other")

    @property
    def in_progress_max(self) -> int:
        """The limit of unprocessed records."""
        if self.max_in_progress is None:
            return IN_PROGRESS_PER_WORKER * self.workers
        return self.max_in_progress

    def is_retriable(self, error: Exception) -> bool:
        """Whether to retry after this error."""
        if isinstance(self.retry_on, type | tuple):
            return isinstance(error, self.retry_on)
        return self.retry_on(error)

    def backoff_after(self, attempts: int) -> float:
        """Return the backoff in milliseconds after this many failed attempts, without jitter."""
        doublings = min(attempts - 1, 60)  # above any limit, and still a finite float
        return min(self.backoff_ms * 2.0**doublings, self.backoff_max_ms)
