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
"""How many records are taken for each worker where `max_in_progress` is not given."""
AHEAD_MAX: Final = 10_000
"""How many records of a partition are remembered from the first that is not done. A record that
takes for ever holds up its partition then; a crash does no more than these again."""


class WorkOptions(TypedDict, total=False):
    """The keywords of `run`, as `WorkSettings` has them."""

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
    """How many records are worked on at once."""
    ordering: Ordering = "key"
    """The unit that is processed in the order of offsets, one record at a time: a key within a
    partition, a partition, or none. A record without a key has no predecessor."""
    max_in_progress: int | None = None
    """How many records are taken and not done, at most; 16 for each worker if it is not said."""
    retries: int = 3
    """How often a handler that failed is called again with the same record."""
    backoff_ms: float = 100
    """How long to wait before that; doubled at every further try, give or take a fifth."""
    backoff_max_ms: float = 10_000
    retry_on: RetryOn = Exception
    """Which errors are worth another try: types, or a function of the error."""
    dead_letter_topic: str | None = None
    """Where a record goes that cannot be worked on; it then counts as done."""
    on_error: OnError = "stop"
    """Without such a topic: stop, and raise HandlerError; or log it, and count it as done."""
    timeout: float = 30.0
    """How many seconds handlers get to end, when all stops or partitions go."""

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
        """How many records are taken and not done, at most."""
        if self.max_in_progress is None:
            return IN_PROGRESS_PER_WORKER * self.workers
        return self.max_in_progress

    def is_retriable(self, error: Exception) -> bool:
        """Whether this error is worth another try."""
        if isinstance(self.retry_on, type | tuple):
            return isinstance(error, self.retry_on)
        return self.retry_on(error)

    def backoff_after(self, attempts: int) -> float:
        """Return how many milliseconds to wait after so many failed tries, before chance adds."""
        doublings = min(attempts - 1, 60)  # far beyond any limit, and still a float
        return min(self.backoff_ms * 2.0**doublings, self.backoff_max_ms)
