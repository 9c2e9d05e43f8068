"""A controller that never fails; its three brokers get metadata late, in order, or not at all.

It replaces the metadata store in tests of replication. Its state machine is the real one
(`machines/controller`). Brokers reach it through links of the simulated network, as if it were a
machine named `sky`: a fault that cuts them off from it cuts them off from the metadata, and a
broker that sends no heartbeats for a while is fenced.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from ottla.broker.metadata_store.image_publisher import ImagePublisher
from ottla.broker.metadata_store.meta_properties import claim_log_dirs
from ottla.machines.controller.machine import Controller
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import BrokerImage, ClusterImage, TopicImage
from ottla.metadata.records import MetadataRecord
from ottla.model.settings.topic_config import TopicConfig
from ottla.simulation.stories.broker_program import DATA
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.randomness import dice
from ottla.simulation.world.world import World

SKY = "sky"
SESSION_SECONDS = 1.5
LOOK_SECONDS = 0.1
NO_ANSWER_SECONDS = 1.0
T = TypeVar("T")


class Decided(NamedTuple):
    image: ClusterImage
    records: tuple[MetadataRecord, ...]


class Sky:
    """Decides at once, and keeps the whole history."""

    def __init__(self, world: World, replicas: int, min_isr: int) -> None:
        self.world = world
        world.machine(SKY)
        defaults = TopicConfig(min_insync_replicas=min_isr)
        settings = ControllerSettings(-1, 1, replicas, defaults)
        self.controller = Controller(ClusterImage("sky"), settings)
        self.decided: list[Decided] = []
        self.heard_at: dict[int, float] = {}
        self._stream = dice(world.seed, "sky")
        self.commit(self.controller.bootstrap())

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def commit(self, decision: Decision[MetadataRecord, T]) -> T:
        if decision.records:
            end_offset = self.image.end_offset + len(decision.records)
            self.controller.replay(decision.records, end_offset)
            self.decided.append(Decided(self.image, decision.records))
        return decision.response

    def register(self, broker: BrokerImage) -> int:
        """Register a broker's new incarnation after fencing the previous one."""
        known = self.image.brokers.get(broker.broker_id)
        if known is not None and not known.is_fenced:
            self.commit(self.controller.fence_broker(broker.broker_id))
        epoch = self.commit(self.controller.register_broker(replace(broker, is_fenced=True)))
        self.heard_at[broker.broker_id] = self.world.loop.time()
        self.commit(self.controller.unfence_broker(broker.broker_id))
        return epoch

    def can_reach(self, source: str, target: str) -> bool:
        link = self.world.network.link(source, target)
        return not link.is_blocked and self._stream.random() >= link.loss

    async def travel(self) -> None:
        await self.world.loop.elapse(self._stream.expovariate(1 / 0.002))

    async def look_after_brokers(self) -> None:
        """Fence brokers without heartbeats, and unfence returned ones; run forever."""
        while True:
            await self.world.elapse(LOOK_SECONDS)
            for broker_id, broker in list(self.image.brokers.items()):
                is_there = self.world.loop.time() - self.heard_at[broker_id] < SESSION_SECONDS
                if is_there and broker.is_fenced:
                    self.commit(self.controller.unfence_broker(broker_id))
                elif not is_there and not broker.is_fenced:
                    self.commit(self.controller.fence_broker(broker_id))


class SkyTruth:
    """The committed metadata, for checks of brokers against it."""

    def __init__(self, sky: Sky) -> None:
        self._sky = sky

    @property
    def revision(self) -> object:
        return self._sky.image.end_offset

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        return self._sky.image.topics

    def broker_epoch(self, broker_id: int) -> int:
        return self._sky.image.brokers[broker_id].broker_epoch


class _Registrar:
    """The controller's interface for a registering broker."""

    def __init__(self, sky: Sky) -> None:
        self._sky = sky

    def register_broker(self, broker: BrokerImage) -> Decision[MetadataRecord, int]:
        return Decision((), self._sky.register(broker))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sky.controller, name)


class SkyStore(ImagePublisher):
    """The metadata store of one incarnation of a broker."""

    def __init__(self, sky: Sky, broker_id: int, machine: Machine) -> None:
        super().__init__(sky.image)
        self.identity = claim_log_dirs(machine.disk, [DATA], broker_id, machine.randomness)
        self._sky = sky
        self._broker_id = broker_id
        self._name = machine.name
        self._position = len(sky.decided)

    async def execute(self, decide: Callable[[Any], Decision[MetadataRecord, T]]) -> T:
        """Send a request; after a `TimeoutError` it may or may not have been executed."""
        sky = self._sky
        await sky.travel()
        if not sky.can_reach(self._name, SKY):
            await sky.world.loop.elapse(NO_ANSWER_SECONDS)
            raise TimeoutError("the sky is silent")
        response = sky.commit(decide(_Registrar(sky)))
        if not sky.can_reach(SKY, self._name):
            await sky.world.loop.elapse(NO_ANSWER_SECONDS)
            raise TimeoutError("the sky is silent")
        await sky.travel()
        return response

    async def follow(self) -> None:
        """Publish committed metadata as it arrives, and send heartbeats."""
        sky = self._sky
        while True:
            await sky.travel()
            await sky.travel()
            if sky.can_reach(self._name, SKY):
                sky.heard_at[self._broker_id] = sky.world.loop.time()
                if sky.can_reach(SKY, self._name) and self._position < len(sky.decided):
                    image, records = sky.decided[self._position]
                    self._position += 1
                    failure = await self.publish(image, records)
                    assert failure is None, failure
