"""Publishes images one after the other, each after its preparation."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

OnChange = Callable[[ClusterImage, Sequence[MetadataRecord]], None]
"""Told of each decision once it is durable: the new image, and the records that led to it."""
Prepare = Callable[[ClusterImage, Sequence[MetadataRecord]], Awaitable[None]]
"""Slow work for a durable decision, before it is published."""
_log = logging.getLogger(__name__)


class PublishedChange(NamedTuple):
    """A decision of the controller: the next image, and the records that lead to it."""

    image: ClusterImage
    records: tuple[MetadataRecord, ...]


class _Unpublished(NamedTuple):
    image: ClusterImage
    records: tuple[MetadataRecord, ...]
    outcome: "asyncio.Future[ApiError | None]"


class ImagePublisher:
    """Publishes images in the order of the calls. Belongs to one event loop.

    Preparations and listeners must not raise: the change has happened. If one does, nothing is
    published any more, and every caller gets UNKNOWN_SERVER_ERROR.
    """

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        """The published metadata: the only image that handlers may use."""
        self.latest = image
        """The image that will be published last."""
        self._failure: ApiError | None = None
        self._has_failed = asyncio.Event()
        self._listeners: list[OnChange] = []
        self._preparations: list[Prepare] = []
        self._waiting: deque[_Unpublished] = deque()
        self._publishing: asyncio.Task[None] | None = None

    def subscribe(self, on_change: OnChange) -> None:
        """Call a listener for every image from now on."""
        self._listeners.append(on_change)

    def prepare_by(self, prepare: Prepare) -> None:
        """Call a function before each publication from now on."""
        self._preparations.append(prepare)

    def publish(
        self, image: ClusterImage, records: Sequence[MetadataRecord]
    ) -> "asyncio.Future[ApiError | None]":
        """Queue an image, and return a future that completes when it is published.

        Its result is None, or the reason of a failure. It need not be awaited.
        """
        outcome: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        self.latest = image
        self._waiting.append(_Unpublished(image, tuple(records), outcome))
        if self._publishing is None:
            self._publishing = asyncio.ensure_future(self._publish_all())
        return outcome

    async def published(self) -> None:
        """Return when everything queued so far is published; ApiError if that has failed."""
        if self._waiting:
            # Shielded: a cancelled caller must not end the future of the others.
            await asyncio.shield(self._waiting[-1].outcome)
        self.check()

    def check(self) -> None:
        """Raise ApiError if something could not be published."""
        if self._failure is not None:
            raise ApiError(self._failure.code, self._failure.detail)

    async def wait_for_failure(self) -> None:
        """Wait until something could not be published, and raise the ApiError that says why."""
        await self._has_failed.wait()
        self.check()

    async def close(self) -> None:
        """Wait until all that has its place is published."""
        if self._publishing is not None:
            await asyncio.wait([self._publishing])

    async def _publish_all(self) -> None:
        while self._waiting:
            if self._failure is None:
                await self._publish_one(self._waiting[0])
            outcome = self._waiting.popleft().outcome
            if not outcome.done():  # the waiting caller may have been cancelled
                outcome.set_result(self._failure)
        self._publishing = None

    async def _publish_one(self, next_one: _Unpublished) -> None:
        try:
            for prepare in self._preparations:
                await prepare(next_one.image, next_one.records)
            self.image = next_one.image
            for on_change in self._listeners:
                on_change(next_one.image, next_one.records)
        except Exception as error:  # noqa: BLE001 - nothing is published after it
            _log.exception("metadata cannot be published any more")
            self._failure = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"metadata: {error!r}")
            self._has_failed.set()
