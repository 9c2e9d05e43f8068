"""The interface of metadata stores for their broker."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from ottla.broker.metadata_store.image_publisher import OnChange, Prepare
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord

T = TypeVar("T")


class MetadataStore(Protocol):
    """Publishes the cluster's metadata to its broker; decides on it, if it is the controller's."""

    @property
    def image(self) -> ClusterImage:
        """The published metadata: the only image that handlers may use."""
        ...

    def subscribe(self, on_change: OnChange) -> None:
        """Call a listener for every image from now on, in order; it must not raise."""
        ...

    def prepare_by(self, prepare: Prepare) -> None:
        """Call a function before each publication from now on; it must not raise either."""
        ...

    async def execute(self, decide: Callable[[Controller], Decision[MetadataRecord, T]]) -> T:
        """Decide, make it durable, call the listeners, and return the decision's response.

        ApiErrors of `decide` come through. NOT_CONTROLLER means that this broker is not the
        controller, or that the outcome of the decision is unknown.
        """
        ...

    async def close(self) -> None:
        """Refuse further decisions, and release all resources."""
        ...
