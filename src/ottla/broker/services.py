"""What the handlers of one broker are made from."""

from dataclasses import dataclass

from ottla.broker.endpoints import Endpoints
from ottla.broker.flushing import Flushing
from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.metadata_store.embedded import EmbeddedMetadataStore
from ottla.broker.partitions import Partitions
from ottla.broker.progress import Bells
from ottla.broker.topic_creation import TopicCreation
from ottla.environment.clock import Clock
from ottla.environment.randomness import Randomness
from ottla.model.broker_config import BrokerConfig
from ottla.storage.log_dirs import LogDirs


@dataclass(frozen=True, slots=True)
class Services:
    """One of each, made by the assembly and shared by all handlers."""

    config: BrokerConfig
    clock: Clock
    randomness: Randomness
    broker_epoch: int
    store: EmbeddedMetadataStore
    log_dirs: LogDirs
    partitions: Partitions
    endpoints: Endpoints
    bells: Bells
    flushing: Flushing
    creation: TopicCreation
    coordinator: GroupCoordinator
