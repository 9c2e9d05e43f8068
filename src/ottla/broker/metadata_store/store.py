"""What every metadata store is to the broker that it belongs to."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from ottla.broker.metadata_store.embedded.store import OnChange, Prepare
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord

T = TypeVar("T")


class MetadataStore(Protocol):
    """Publishes the cluster's metadata to its broker; decides on it, if it is the controller's."""

    @property
    def image(self) -> ClusterImage:
        """What is published: all that handlers may look at."""
        ...

    def subscribe(self, on_change: OnChange) -> None:
        """Tell someone of every image from now on, in order; it must not raise."""
        ...

    def prepare_by(self, prepare: Prepare) -> None:
        """Have something done before each publication from now on; it must not raise either."""
        ...

    async def execute(self, decide: Callable[[Controller], Decision[MetadataRecord, T]]) -> T:
        """Decide, make it durable, tell the listeners, and return the decision's response.

        ApiErrors of `decide` come through. NOT_CONTROLLER says that this broker is not the
        controller, or that nobody knows whether the decision stands.
        """
        ...

    async def close(self) -> None:
        """Decide nothing any more, and give back what the store holds."""
        ...
