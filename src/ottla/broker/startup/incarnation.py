"""One life of a broker in a cluster: from open logs without roles to the first own image.

The logs are opened before the broker registers, because recovery may take long. They get their
roles by the first image in which this incarnation is registered: an older image is about the former
incarnation.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from ottla.broker.hosting.metadata_applier import MetadataApplier
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.startup.lost_tail import LostTail
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord
from ottla.model.identifiers import BrokerId


class Incarnation:
    """Passes images on to the follower, from the first with this incarnation."""

    def __init__(
        self,
        node_id: BrokerId,
        broker_epoch: Callable[[], int],
        lost_tail: LostTail,
        threads: Executor,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._lost_tail = lost_tail
        self._threads = threads
        self._follower: MetadataApplier | None = None
        self._has_begun = False
        self.may_have_lost_tail = True
        """Whether the ends of logs may be missing, and the cluster does not know of it yet."""

    @property
    def follower(self) -> MetadataApplier:
        """The follower of the images, from `open_logs` on."""
        assert self._follower is not None
        return self._follower

    async def open_logs(self, follower: MetadataApplier, image: ClusterImage) -> None:
        """Open the logs of the topics that are known before the registration."""
        self._follower = follower
        self.may_have_lost_tail = self._lost_tail.may_be_lost()
        if not self.may_have_lost_tail:
            await self._note_boot()  # a broker that is killed while it opens logs loses nothing
        await follower.open_logs(image)

    def follow(self, store: MetadataStore) -> None:
        """Follow the images of a store from now on."""
        store.prepare_by(self._prepare)
        store.subscribe(self._on_change)

    async def registered(self) -> None:
        """Take note that the cluster has this incarnation in service, and knows of lost tails."""
        if self.may_have_lost_tail:
            await self._note_boot()
            self.may_have_lost_tail = False
        self.follower.registered()

    async def _prepare(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        if self._has_begun:
            await self.follower.prepare(image, records)
        elif self.is_known_to(image):
            self._has_begun = True
            await self.follower.begin_with(image)

    def _on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        if self._has_begun:
            self.follower.on_change(image, records)

    def is_known_to(self, image: ClusterImage) -> bool:
        """Return whether this incarnation is registered in an image."""
        own = image.brokers.get(self._node_id)
        return own is not None and own.broker_epoch == self._broker_epoch()

    async def _note_boot(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, self._lost_tail.note_known)
