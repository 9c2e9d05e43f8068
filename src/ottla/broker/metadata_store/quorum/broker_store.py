"""The metadata as the broker of a node sees it: prepared, and a little later than the node.

The controller of a node answers other brokers as soon as a decision is committed. Its own broker
first creates and deletes partitions, which may take long, and then has the image.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.broker.metadata_store.image_publisher import ImagePublisher, OnChange, Prepare
from ottla.broker.metadata_store.store import MetadataStore
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord

T = TypeVar("T")


class BrokerMetadataStore:
    """Publishes the images of a node's store to its broker. Belongs to one event loop."""

    def __init__(self, node: MetadataStore) -> None:
        self._node = node
        self._publisher = ImagePublisher(node.image)
        node.subscribe(self._take)

    @property
    def image(self) -> ClusterImage:
        """The published metadata: the only image that handlers may use."""
        return self._publisher.image

    def subscribe(self, on_change: OnChange) -> None:
        """Call a listener for every image from now on, in order; it must not raise."""
        self._publisher.subscribe(on_change)

    def prepare_by(self, prepare: Prepare) -> None:
        """Call a function before each publication from now on; it must not raise either."""
        self._publisher.prepare_by(prepare)

    async def execute(self, decide: Callable[[Controller], Decision[MetadataRecord, T]]) -> T:
        """Decide as the node's store does, and return when the broker has the image, too."""
        response = await self._node.execute(decide)
        await self._publisher.published()
        return response

    async def wait_for_failure(self) -> None:
        """Wait until an image could not be published, and raise the ApiError that says why."""
        await self._publisher.wait_for_failure()

    async def close(self) -> None:
        """Publish everything that the node has published; its store is closed by its owner."""
        await self._publisher.close()

    def _take(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        self._publisher.publish(image, records)
