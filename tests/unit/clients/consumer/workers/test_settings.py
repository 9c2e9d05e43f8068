"""Valid and invalid settings of `run`."""

from typing import Any

import pytest

from ottla.clients.consumer.workers.settings import WorkSettings


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"workers": 0}, "workers is 0, and must be at least 1"),
        ({"max_in_progress": 0}, "max_in_progress is 0"),
        ({"retries": -1}, "retries is -1"),
        ({"backoff_ms": 10, "backoff_max_ms": 5}, "backoff_max_ms is 5, and must be at least 10"),
        ({"ordering": "keys"}, "ordering is 'keys', and must be one of key, partition, none"),
        ({"on_error": "ignore"}, "must be one of stop, skip"),
        ({"on_error": "skip", "dead_letter_topic": "orders.dlq"}, "exclude each other"),
    ],
)
def test_what_does_not_go_is_refused_with_a_sentence(
    options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        WorkSettings(**options)


def test_waits_double_up_to_the_longest() -> None:
    told = WorkSettings(backoff_ms=100, backoff_max_ms=500)
    assert [told.backoff_after(tries) for tries in (1, 2, 3, 4, 5000)] == [100, 200, 400, 500, 500]


def test_what_is_worth_another_try_is_said_by_types_or_a_function() -> None:
    told = WorkSettings(retry_on=(OSError, KeyError))
    assert told.is_retriable(TimeoutError())
    assert not told.is_retriable(ValueError())
    told = WorkSettings(retry_on=lambda error: "later" in str(error))
    assert told.is_retriable(ValueError("come later"))
    assert not told.is_retriable(ValueError("never"))
