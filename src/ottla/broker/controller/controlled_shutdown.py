"""Brokers that are about to stop: the controller lets others lead before they go."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.broker.metadata_store.store import MetadataStore
from ottla.machines.controller.brokers import check_broker_epoch
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.records import MetadataRecord


class _Departure(NamedTuple):
    broker_epoch: int
    end_offset: int
    """A broker that has applied the metadata up to this offset knows the new leaders."""


class _Decided(NamedTuple):
    end_offset: int
    has_moved: bool
    """Whether others lead by this very decision."""
    others: list[int]
    """The brokers that must learn of it."""


class ControlledShutdown:
    """The controller's state of controlled shutdowns. Belongs to one event loop."""

    def __init__(
        self, broker_id: int, store: MetadataStore, fetched: Callable[[], Mapping[int, int]]
    ) -> None:
        self._broker_id = broker_id
        self._store = store
        self._fetched = fetched
        self._controlled_shutdown: dict[int, _Departure] = {}

    async def grant(self, broker_id: int, broker_epoch: int) -> bool:
        """Move a broker's leaderships; return whether all brokers know, so that it may stop.

        ApiError STALE_BROKER_EPOCH, NOT_CONTROLLER.
        """

        def decide(controller: Controller) -> Decision[MetadataRecord, _Decided]:
            check_broker_epoch(controller.image, broker_id, broker_epoch)
            records = controller.shut_down_broker(broker_id).records
            end_offset = controller.image.end_offset + len(records)
            others = [
                one.broker_id
                for one in controller.image.brokers.values()
                if one.is_active and one.broker_id not in {broker_id, self._broker_id}
            ]
            return Decision(records, _Decided(end_offset, bool(records), others))

        decided = await self._store.execute(decide)
        departure = self._controlled_shutdown.get(broker_id)
        if departure is None or departure.broker_epoch != broker_epoch or decided.has_moved:
            departure = _Departure(broker_epoch, decided.end_offset)
            self._controlled_shutdown[broker_id] = departure
        fetched = self._fetched()
        return all(fetched.get(one, 0) >= departure.end_offset for one in decided.others)
