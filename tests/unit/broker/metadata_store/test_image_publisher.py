"""Images are published in order, each only after its preparation is complete."""

import asyncio
from collections.abc import Sequence

import pytest

from ottla.broker.metadata_store.image_publisher import ImagePublisher
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from tests.metadata_building import CLUSTER_ID, settle


def image(offset: int) -> ClusterImage:
    return ClusterImage(CLUSTER_ID, end_offset=offset)


def test_an_image_is_seen_when_it_is_prepared_for_and_in_its_turn() -> None:
    async def story() -> None:
        publisher = ImagePublisher(image(0))
        prepared: list[int] = []
        seen: list[int] = []
        may_go_on = asyncio.Event()

        async def prepare(one: ClusterImage, _: Sequence[MetadataRecord]) -> None:
            prepared.append(one.end_offset)
            await may_go_on.wait()

        publisher.prepare_by(prepare)
        publisher.subscribe(lambda one, _: seen.append(one.end_offset))
        first, second = publisher.publish(image(1), []), publisher.publish(image(2), [])
        await settle()
        assert (prepared, seen) == ([1], [])
        assert publisher.image == image(0)
        assert publisher.latest == image(2)
        assert not first.done()
        may_go_on.set()
        assert await second is None
        assert first.done()
        assert (prepared, seen) == ([1, 2], [1, 2])
        assert publisher.image == image(2)

    asyncio.run(story())


def test_a_cancelled_wait_takes_nothing_back() -> None:
    async def story() -> None:
        publisher = ImagePublisher(image(0))
        publisher.publish(image(1), []).cancel()
        await publisher.close()
        assert publisher.image == image(1)
        assert await publisher.publish(image(2), []) is None

    asyncio.run(story())


def test_a_failed_listener_ends_publishing_and_fails_all_waiters() -> None:
    async def story() -> None:
        publisher = ImagePublisher(image(0))

        def fail(*_: object) -> None:
            raise OSError("no room")

        publisher.subscribe(fail)
        for outcome in [publisher.publish(image(1), []), publisher.publish(image(2), [])]:
            error = await outcome
            assert error is not None
            assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert publisher.image == image(1)
        with pytest.raises(ApiError, match="no room"):
            await publisher.wait_for_failure()

    asyncio.run(story())
