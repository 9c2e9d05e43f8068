"""Request limits, one row for each API."""

import pytest

from ottla.broker.dispatch import LARGE_REQUESTS_BYTES_MAX
from ottla.broker.requests.request_limits import (
    DECODED_MULTIPLE,
    LIMITS_BY_API,
    LIST_ITEMS_MAX,
    WAITING_BYTES,
    counted_bytes,
    limits_of,
)
from ottla.wire.api_key import ApiKey
from ottla.wire.apis import API_BY_KEY
from ottla.wire.codec import carries_batches

PARTITIONS = 100_000


def test_only_requests_with_records_may_be_as_large_as_the_setting_says() -> None:
    unlimited = {key for key in API_BY_KEY if limits_of(key).frame_bytes_max is None}
    assert unlimited == {ApiKey.PRODUCE}
    assert carries_batches(API_BY_KEY[ApiKey.PRODUCE].request)


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH])
def test_a_client_may_ask_for_100_000_partitions_each_in_a_topic_of_its_own(key: ApiKey) -> None:
    assert limits_of(key).items_max >= 2 * PARTITIONS


def test_the_largest_request_fits_into_the_memory_of_all_and_leaves_room() -> None:
    largest = max(limits.decoded_bytes_max for limits in LIMITS_BY_API.values())
    assert largest < LARGE_REQUESTS_BYTES_MAX


def test_no_request_is_read_in_one_piece_beyond_its_limit() -> None:
    for limits in LIMITS_BY_API.values():
        assert limits.short_items_max <= limits.items_max <= LIST_ITEMS_MAX


def test_records_are_counted_once_and_other_requests_with_their_objects() -> None:
    assert counted_bytes(memoryview(b"\0\0" + bytes(98))) == 100
    decoded_bytes = 100 * DECODED_MULTIPLE
    assert counted_bytes(memoryview(b"\0\3" + bytes(98))) == 100 + decoded_bytes + WAITING_BYTES
    assert counted_bytes(memoryview(b"")) == 0
