"""Meters: buckets, quantiles, recent values, and the error codes in responses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.requests.request_metrics import (
    BUCKETS,
    MINUTES_KEPT,
    VERSION_BITS,
    Meter,
    Meters,
    api_and_version,
    bucket_bound_ns,
    quantile_ns,
)
from ottla.broker.requests.response_error_codes import error_finder
from ottla.wire.api_key import ApiKey
from ottla.wire.apis import API_BY_KEY
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

INT64_MAX = 2**63 - 1


def count(meter: Meter, *times_ns: int) -> None:
    for time_ns in times_ns:
        meter.buckets[(time_ns * time_ns).bit_length()] += 1


@given(st.integers(0, INT64_MAX))
def test_a_time_is_counted_between_the_bounds_of_its_bucket(time_ns: int) -> None:
    number = (time_ns * time_ns).bit_length()
    assert number < BUCKETS
    assert time_ns <= bucket_bound_ns(number)
    assert number == 0 or time_ns >= bucket_bound_ns(number - 1) * (1 - 1e-9)


@given(st.lists(st.integers(1, 10**12), min_size=1), st.floats(0, 1))
def test_a_quantile_is_no_further_off_than_one_bucket(times_ns: list[int], part: float) -> None:
    meter = Meter()
    count(meter, *times_ns)
    exact = sorted(times_ns)[max(0, min(len(times_ns) - 1, round(part * len(times_ns)) - 1))]
    least, most = min(times_ns) / 1.5, max(times_ns) * 1.5
    assert least <= quantile_ns(meter.buckets, part) <= most
    if len(set(times_ns)) == 1:
        assert quantile_ns(meter.buckets, part) == pytest.approx(exact, rel=0.5)


def test_nothing_has_no_quantile() -> None:
    assert quantile_ns([0] * BUCKETS, 0.99) == 0


def test_requests_of_some_minutes_ago_are_not_recent() -> None:
    meter = Meter()
    count(meter, 10, 10)
    meter.a_minute_has_passed()
    count(meter, 1000)
    assert sum(meter.recent_buckets()) == 1
    for _ in range(MINUTES_KEPT):
        meter.a_minute_has_passed()
    assert sum(meter.recent_buckets()) == 0
    assert meter.count == 3


def test_requests_of_the_first_minute_are_recent() -> None:
    meter = Meter()
    count(meter, 10, 10)
    assert sum(meter.recent_buckets()) == 2


def test_each_version_has_a_meter_of_its_own() -> None:
    meters = Meters()
    key = ApiKey.HEARTBEAT << VERSION_BITS | 4
    meters[key].total_ns += 5
    assert api_and_version(key) == (ApiKey.HEARTBEAT, 4)
    assert meters[key].total_ns == 5
    assert meters[ApiKey.HEARTBEAT << VERSION_BITS | 3].total_ns == 0


def test_error_codes_are_found_wherever_a_message_has_one() -> None:
    commit = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name="a",
                partitions=[
                    OffsetCommitResponsePartition(partition_index=0, error_code=0),
                    OffsetCommitResponsePartition(partition_index=1, error_code=25),
                    OffsetCommitResponsePartition(partition_index=2, error_code=22),
                ],
            )
        ]
    )
    delete = DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id="g", error_code=68), DeletableGroupResult()]
    )
    assert list(error_finder(ApiKey.OFFSET_COMMIT)(commit)) == [25, 22]
    assert list(error_finder(ApiKey.DELETE_GROUPS)(delete)) == [68]
    assert list(error_finder(ApiKey.HEARTBEAT)(HeartbeatResponse(error_code=27))) == [27]
    assert list(error_finder(ApiKey.HEARTBEAT)(HeartbeatResponse())) == []


@pytest.mark.parametrize("api_key", list(API_BY_KEY), ids=lambda key: ApiKey(key).name)
def test_an_empty_answer_of_any_api_has_no_errors(api_key: int) -> None:
    assert list(error_finder(api_key)(API_BY_KEY[api_key].response())) == []


def test_errors_are_counted_by_api_and_code() -> None:
    meters = Meters()
    meters.count_errors(ApiKey.HEARTBEAT, [27, 27, 25])
    assert meters.errors == {(ApiKey.HEARTBEAT, 27): 2, (ApiKey.HEARTBEAT, 25): 1}
