"""A small environment for metadata: manual time, deterministic dice, images and stores."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.environment.disk import Disk
from ottla.machines.controller.brokers import EPOCH_TO_BE_GIVEN
from ottla.machines.controller.machine import Controller
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import BrokerImage, ClusterImage, Endpoint
from ottla.metadata.records import MetadataRecord, RegisterBrokerRecord
from ottla.metadata.replay import replay
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

LOG_DIR = "/data"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
ENDPOINT = Endpoint("PLAINTEXT", "localhost", 9092, 0)
T = TypeVar("T")


@dataclass
class FixedClock:
    """A clock that only a test moves."""

    time_ms: int = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms


@dataclass
class CountingRandomness:
    """Ids 1, 2, 3 and so on, and always the same number."""

    number: int = 0
    drawn: int = field(default=0, init=False)

    def uuid(self) -> bytes:
        self.drawn += 1
        return uuid_of(self.drawn)

    def below(self, limit: int) -> int:
        return self.number % limit


class InlineExecutor(Executor):
    """Runs a submitted call at once, in the submitting thread."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - raised to the caller of `result`
            done.set_exception(error)
        return done


def uuid_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def broker_record(
    broker_id: int, rack: str | None = None, *, fenced: bool = False, log_dirs: Iterable[bytes] = ()
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=uuid_of(1000 + broker_id),
        broker_epoch=broker_id,
        rack=rack,
        fenced=fenced,
        log_dirs=list(log_dirs),
    )


def image_of(*records: MetadataRecord) -> ClusterImage:
    """Replay these records into an empty image."""
    return replay(ClusterImage(CLUSTER_ID), records, len(records))


def one_broker() -> ClusterImage:
    return image_of(broker_record(0))


def controller_of(image: ClusterImage, **settings: Any) -> Controller:
    return Controller(image, ControllerSettings(**{"broker_id": 0, **settings}))


def run(controller: Controller, decision: Decision[MetadataRecord, T]) -> T:
    """Replay a decision's records, as if they had been committed, and return the response."""
    controller.replay(decision.records, controller.image.end_offset + len(decision.records))
    return decision.response


def new_topic(
    name: str, partitions: int = 1, replication_factor: int = 1, **configs: Any
) -> CreatableTopic:
    """Build a topic of a CreateTopics request; settings are given with underscores."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def add_topics(controller: Controller, *topics: CreatableTopic, first_id: int = 1) -> None:
    """Create topics without errors, with consecutive ids after the first."""
    ids = [uuid_of(number) for number in range(first_id, first_id + len(topics))]
    results = run(controller, controller.create_topics(topics, topic_ids=ids, start=0))
    assert not any(result.error_code for result in results), results


def open_store(
    disk: Disk,
    log_dirs: Sequence[str] = (LOG_DIR,),
    *,
    threads: Executor | None = None,
    randomness: CountingRandomness | None = None,
    **settings: Any,
) -> EmbeddedMetadataStore:
    """Open a store that runs flushes at once, unless threads are given."""
    return EmbeddedMetadataStore.open(
        disk,
        log_dirs,
        ControllerSettings(**{"broker_id": 0, **settings}),
        clock=FixedClock(),
        randomness=randomness or CountingRandomness(),
        threads=threads or InlineExecutor(),
    )


def new_broker(
    broker_id: int, incarnation_id: bytes, *endpoints: Endpoint, rack: str | None = None
) -> BrokerImage:
    """Return a broker before its registration; the controller assigns its epoch."""
    return BrokerImage(broker_id, EPOCH_TO_BE_GIVEN, incarnation_id, endpoints, rack=rack)


async def register(store: EmbeddedMetadataStore, broker_id: int = 0) -> int:
    """Register the store's own broker, and return its epoch."""
    broker = new_broker(broker_id, uuid_of(999), ENDPOINT)
    return await store.execute(lambda controller: controller.register_broker(broker))


async def create(store: EmbeddedMetadataStore, topic: CreatableTopic, number: int) -> int:
    """Create a topic with the id of this number, and return the error code."""
    results = await store.execute(
        lambda controller: controller.create_topics([topic], topic_ids=[uuid_of(number)], start=0)
    )
    return results[0].error_code


async def settle() -> None:
    """Run all tasks that are not waiting for the disk."""
    for _ in range(20):
        await asyncio.sleep(0)


def tell(disk: Disk, story: Callable[[EmbeddedMetadataStore], Coroutine[Any, Any, None]]) -> None:
    """Open a store, register its broker, and run the story."""

    async def run() -> None:
        store = open_store(disk)
        await register(store)
        await story(store)

    asyncio.run(run())
