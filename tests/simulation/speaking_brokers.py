"""Brokers without records in one world: their stores over a simulated ZooKeeper, and all parts
that talk to the controller over the network."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ottla.broker.controller.cluster_membership import Cluster
from ottla.broker.controller.metadata_log_client import ControllerMetadata
from ottla.broker.controller.request_forwarding import Forwarding
from ottla.broker.controller.topic_creation import TopicCreation
from ottla.broker.coordinators.producer_id_allocator import ProducerIds
from ottla.broker.data.fetch_sessions import FetchSessions
from ottla.broker.data.message_format_conversion import MessageFormatConversion
from ottla.broker.data.preferred_replicas import PreferredReplicas
from ottla.broker.describing.metadata_view import CurrentLeaders
from ottla.broker.dispatch import Dispatch
from ottla.broker.handlers import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    fetch,
    incremental_alter_configs,
    init_producer_id,
    update_features,
)
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.metadata_store.zookeeper.store import ZooKeeperMetadataStore
from ottla.broker.peers.broker_clients import connect_to_broker
from ottla.broker.replication.replication_quotas import Throttles
from ottla.broker.requests.request_metrics import Meters
from ottla.broker.requests.routes import Route
from ottla.broker.startup.controller_routes import routes_for_brokers
from ottla.broker.startup.route_table import controller_routes, replica_routes
from ottla.broker.transport.connection_limits import ConnectionLimits
from ottla.broker.transport.server import Server
from ottla.concurrency.notifier import Notifier
from ottla.concurrency.yield_budget import TimeSlices
from ottla.machines.controller.settings import ControllerSettings
from ottla.metadata.image import ClusterImage
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.listeners import Listener
from ottla.simulation.world import cold_reads
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from ottla.simulation.world.zookeeper import SimulatedZooKeeper
from ottla.wire.api_key import ApiKey
from ottla.wire.apis import API_BY_KEY
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.schema import Message
from tests.metadata_building import new_topic
from tests.simulation.stores import new_broker

LISTENER, PORT = "PLAINTEXT", 9092
SESSION_SECONDS = 6.0
CLIENT = "client"
ANSWER_MS = 60_000
KEY_BY_REQUEST = {api.request: key for key, api in API_BY_KEY.items()}
T = TypeVar("T")


@dataclass
class Speaker:
    """One incarnation of a broker."""

    store: ZooKeeperMetadataStore
    source: ControllerMetadata
    cluster: Cluster
    creation: TopicCreation
    producer_ids: ProducerIds
    here: dict[int, Route]
    images: list[ClusterImage] = field(default_factory=list)
    """All images that this incarnation has published."""


class Speakers:
    """The world and the brokers in it."""

    def __init__(self, count: int = 3, seed: int = 1) -> None:
        self.world = World(seed)
        self.zookeeper = SimulatedZooKeeper(self.world.loop, self.world.network)
        self.ids = list(range(count))
        self.by_id: dict[int, Speaker] = {}

    # -- brokers --------------------------------------------------------------------------------

    def machine(self, broker_id: int) -> Machine:
        return self.world.machine(f"b{broker_id}")

    def start(self, broker_id: int) -> None:
        self.machine(broker_id).start(lambda machine: self._serve(broker_id, machine))

    def kill(self, broker_id: int) -> None:
        del self.by_id[broker_id]
        self.machine(broker_id).kill()

    async def _serve(self, broker_id: int, machine: Machine) -> None:
        network, clock, notifier = machine.network, machine.clock, Notifier(machine.clock)
        source = ControllerMetadata(broker_id, lambda: store.broker_epoch, LISTENER, network)
        store = await ZooKeeperMetadataStore.open(
            self._connect,
            ControllerSettings(broker_id=broker_id),
            source,
            clock=clock,
            randomness=machine.randomness,
            session_timeout_ms=int(SESSION_SECONDS * 1000),
            rebalance_seconds=math.inf,
        )
        cluster = Cluster.of(broker_id, store, source, network, clock, notifier, None)
        meters = Meters()
        routes: dict[int, Route] = {}
        slices = TimeSlices(clock)
        dispatch = Dispatch.of(routes, clock, meters, slices)
        server = Server(dispatch, slices, ConnectionLimits(), clock, cold_reads, None, network)
        await server.bind(Listener(LISTENER, machine.name, PORT))
        speaker = _speaker(broker_id, machine, store, source, cluster, notifier, meters, slices)
        routes.update(Forwarding(cluster.controller).routes(speaker.here))
        server.start()
        store.subscribe(lambda image, _: speaker.images.append(image))
        self.by_id[broker_id] = speaker
        await store.run(new_broker(broker_id), has_lost_tail=False)

    async def _connect(self) -> Any:
        return self.zookeeper.connect(SESSION_SECONDS)

    # -- actions of a test ----------------------------------------------------------------------

    @property
    def controller(self) -> int:
        """The broker that considers itself the controller; there must be exactly one."""
        (found,) = [one for one, speaker in self.by_id.items() if speaker.store.term is not None]
        return found

    @property
    def others(self) -> list[int]:
        return [one for one in self.by_id if one != self.controller]

    def image(self, broker_id: int) -> Any:
        return self.by_id[broker_id].store.image

    async def within(self, broker_id: int, work: Awaitable[T]) -> T:
        """Run a coroutine in the process of a broker."""
        process = self.machine(broker_id).process
        assert process is not None
        return await process.context.run(self.world.loop.create_task, _awaited(work))

    async def ask(
        self, broker_id: int, version: int, request: Message, client: str = CLIENT
    ) -> Any:
        """Send a request to a broker, and return the response."""
        key = KEY_BY_REQUEST[type(request)]

        async def asking(machine: Machine) -> Any:
            try:
                connection = await connect_to_broker(
                    machine.network, f"b{broker_id}", PORT, client_id=CLIENT, timeout_ms=ANSWER_MS
                )
                answer = API_BY_KEY[key].response
                answered = await connection.ask(
                    request, answer, version_max=version, timeout_ms=ANSWER_MS
                )
            except OSError as error:
                return error
            connection.close()
            return answered

        answered = await self.world.machine(client).start(asking)
        if isinstance(answered, OSError):
            raise answered
        return answered

    async def create(
        self,
        broker_id: int,
        name: str,
        partitions: int = 1,
        replicas: int = 1,
        client: str = CLIENT,
    ) -> int:
        """Ask a broker for a topic, and return the error code."""
        request = CreateTopicsRequest(topics=[new_topic(name, partitions, replicas)])
        (result,) = (await self.ask(broker_id, 7, request, client)).topics
        return int(result.error_code)

    async def until(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        for _ in range(int(seconds * 100)):
            if holds():
                return
            await self.world.elapse(0.01)
        raise AssertionError(f"not within {seconds} s")

    async def until_settled(self) -> None:
        """Wait until there is one controller, and all running brokers have the same image."""
        await self.until(self._is_settled)

    def _is_settled(self) -> bool:
        running = [one for one in self.ids if self.machine(one).is_running]
        terms = [speaker for speaker in self.by_id.values() if speaker.store.term is not None]
        if len(self.by_id) < len(running) or len(terms) != 1:
            return False
        images = [self.image(one) for one in running]
        serving = [one.broker_id for one in images[0].brokers.values() if not one.is_fenced]
        return all(image == images[0] for image in images) and sorted(serving) == running


def tell(story: Callable[[Speakers], Awaitable[None]], count: int = 3) -> None:
    """Run a story with started brokers."""
    speakers = Speakers(count)

    async def whole() -> None:
        for broker_id in speakers.ids:
            speakers.start(broker_id)
        await speakers.until_settled()
        await story(speakers)

    speakers.world.run(whole())


async def _awaited(work: Awaitable[T]) -> T:
    return await work


def _speaker(
    broker_id: int,
    machine: Machine,
    store: Any,
    source: ControllerMetadata,
    cluster: Cluster,
    notifier: Notifier,
    meters: Meters,
    slices: TimeSlices,
) -> Speaker:
    creation = TopicCreation(store, machine.randomness, True, cluster.controller)
    producer_ids = ProducerIds(cluster.controller.allocate_producer_ids)
    fetching = fetch.FetchHandler(
        HostedPartitions(),
        notifier,
        FetchSessions(machine.randomness, 10),
        CurrentLeaders(lambda: store.image),
        MessageFormatConversion(None),  # type: ignore[arg-type]
        1 << 20,
        meters,
        PreferredReplicas(lambda: store.image, False),
        Throttles(BrokerConfig(), machine.clock).leader,
        slices,
        cluster.metadata_fetch,
    )
    spread = cluster.spread
    handlers = {
        ApiKey.CREATE_TOPICS: (create_topics, create_topics.CreateTopicsHandler(creation, spread)),
        ApiKey.DELETE_TOPICS: (
            delete_topics,
            delete_topics.DeleteTopicsHandler(store, spread=spread),
        ),
        ApiKey.CREATE_PARTITIONS: (
            create_partitions,
            create_partitions.CreatePartitionsHandler(store, machine.randomness, spread),
        ),
        ApiKey.ALTER_CONFIGS: (alter_configs, alter_configs.AlterConfigsHandler(store)),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (
            incremental_alter_configs,
            incremental_alter_configs.IncrementalAlterConfigsHandler(store, broker_id),
        ),
        ApiKey.UPDATE_FEATURES: (update_features, update_features.UpdateFeaturesHandler(store)),
    }
    # No client here has a transactional id.
    init = init_producer_id.InitProducerIdHandler(producer_ids, None)  # type: ignore[arg-type]
    here: dict[int, Route] = {
        key: Route(module.VERSIONS, handler.handle, is_for_controller=True)  # type: ignore[attr-defined]
        for key, (module, handler) in handlers.items()
    }
    here |= replica_routes(store) | {
        ApiKey.FETCH: Route(fetch.VERSIONS, fetching.handle),
        ApiKey.INIT_PRODUCER_ID: Route(init_producer_id.VERSIONS, init.handle),
    }
    here |= controller_routes(store)
    here |= routes_for_brokers(store, cluster, LISTENER, lambda: here)
    return Speaker(store, source, cluster, creation, producer_ids, here)
