"""The costs of requests, counted with three additions per response.

Times are counted in buckets with bounds that grow by the square root of two, because the square of
a number has twice as many bits: a bucket is found by one multiplication.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ottla.broker.requests.response_error_codes import error_finder
from ottla.wire.api_key import ApiKey

BUCKETS: Final = 128
MINUTES_KEPT: Final = 5
"""Quantiles cover about this time, as Kafka's do."""
VERSION_BITS: Final = 8
"""Where the version ends and the API begins in the key of a meter."""
_COUNTED_BY_HANDLERS: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
"""Searching their responses for errors would cost more than all other counting."""


class Meter:
    """One version of one API. The connection adds to its fields directly, without a call."""

    __slots__ = ("_history", "buckets", "find_errors", "request_bytes", "total_ns")

    def __init__(self, find_errors: Callable[[Any], Iterator[int]] | None = None) -> None:
        self.buckets = [0] * BUCKETS
        """Requests by the number of bits of the square of their nanoseconds."""
        self.total_ns = 0
        self.request_bytes = 0
        self.find_errors = find_errors
        self._history: deque[list[int]] = deque(maxlen=MINUTES_KEPT)

    @property
    def count(self) -> int:
        """The number of completed requests."""
        return sum(self.buckets)

    def recent_buckets(self) -> list[int]:
        """Return the counts of the last minutes."""
        if not self._history:
            return list(self.buckets)
        return [now - then for now, then in zip(self.buckets, self._history[0], strict=True)]

    def a_minute_has_passed(self) -> None:
        """Record where the buckets stand."""
        self._history.append(list(self.buckets))


class Meters(dict[int, Meter]):
    """The meter of each version of each API, made at first use.

    A key is `api_key << VERSION_BITS | api_version`. A missing key makes a meter, so only versions
    from the table of routes may be looked up.
    """

    def __init__(self) -> None:
        super().__init__()
        self.errors: Counter[tuple[int, int]] = Counter()
        """The number of error codes by API and code: each occurrence in a response counts."""

    def __missing__(self, key: int) -> Meter:
        api_key, _ = api_and_version(key)
        finder = None if api_key in _COUNTED_BY_HANDLERS else error_finder(api_key)
        meter = self[key] = Meter(finder)
        return meter

    def count_errors(self, api_key: int, codes: Iterable[int]) -> None:
        """Count the codes of one response."""
        for code in codes:
            self.errors[api_key, code] += 1

    def a_minute_has_passed(self) -> None:
        """Drop the oldest minute from the quantiles."""
        for meter in self.values():
            meter.a_minute_has_passed()


def api_and_version(key: int) -> tuple[int, int]:
    """Return API and version of a meter's key."""
    return key >> VERSION_BITS, key & ((1 << VERSION_BITS) - 1)


def bucket_bound_ns(number: int) -> float:
    """Return up to how many nanoseconds a bucket counts."""
    return float(2 ** (number / 2))


def quantile_ns(buckets: list[int], quantile: float) -> float:
    """Return this quantile of the request times, to the precision of the buckets."""
    wanted = sum(buckets) * quantile
    seen = 0
    for number, count in enumerate(buckets):
        if count and seen + count >= wanted:
            lower = bucket_bound_ns(number - 1) if number else 0.0
            return lower + (bucket_bound_ns(number) - lower) * (wanted - seen) / count
        seen += count
    return 0.0
