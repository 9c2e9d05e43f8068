"""Client exceptions can be pickled, as a process pool does."""

import pickle

import pytest

from ottla.clients.admin.per_item_results import ItemsFailedError
from ottla.clients.consumer.group.group_errors import (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
)
from ottla.clients.consumer.state.errors import (
    ConcurrentUseError,
    DeserializationError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from ottla.clients.consumer.workers.errors import HandlerError, StuckHandlerError
from ottla.clients.errors import NoResponseError, UnreachableError
from ottla.clients.producer.state.errors import RecordTooLargeError
from ottla.clients.producer.transactions.transaction_errors import abortable, fatal
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

NAME = TopicPartition("letters", 3)
FENCED = ErrorCode.PRODUCER_FENCED
ERRORS = [
    ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "topic 'a/b'"),
    ItemsFailedError({"a": 1}, {"b": ApiError(ErrorCode.UNKNOWN_TOPIC_ID)}),
    fatal(FENCED, "late"),
    abortable(FENCED, "late"),
    CommitFailedError(ErrorCode.UNKNOWN_MEMBER_ID, "readers"),
    RebalanceInProgressError("readers"),
    FencedInstanceIdError("readers", "me"),
    ConcurrentUseError("two threads"),
    NoOffsetForPartitionError([NAME]),
    OffsetOutOfRangeError({NAME: 7}),
    LogTruncationError(NAME, 7, None),
    DeserializationError(NAME, 7, "no JSON", 8),
    HandlerError(NAME, 7, "it failed"),
    StuckHandlerError("they hang", [(NAME, 7)]),
    NoResponseError("none"),
    UnreachableError("away"),
    RecordTooLargeError("large"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_its_way_to_another_process(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__.keys() == error.__dict__.keys()
    assert getattr(again, "code", None) == getattr(error, "code", None)
    assert getattr(again, "partition", None) == getattr(error, "partition", None)
