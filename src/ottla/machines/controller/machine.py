"""The controller: the image of the metadata log, and what is decided by it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.machines.controller.brokers import register_broker
from ottla.machines.controller.configs import ConfigOutcome, decide_changes, decide_replacement
from ottla.machines.controller.partitions import create_partitions
from ottla.machines.controller.producer_ids import ProducerIdBlock, allocate_producer_ids
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.controller.topics import create_topics, delete_topics
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage, Endpoint
from ottla.metadata.records import FeatureLevelRecord, MetadataRecord
from ottla.metadata.replay import replay
from ottla.wire.messages import alter_configs, incremental_alter_configs
from ottla.wire.messages.create_partitions import (
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicResult
from ottla.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicState

METADATA_VERSION_FEATURE: Final = "metadata.version"
METADATA_VERSION: Final = 29
"""The level of Kafka 4.2: its records are those that we write."""


class Controller:
    """Decides by its image, which nothing but `replay` changes.

    Whoever runs it asks for one decision at a time, writes the records down, and replays them
    before it asks for the next. Names that come twice in one request, and whatever else concerns
    a single item, are in the results; an ApiError that is raised concerns the whole request.
    """

    def __init__(self, image: ClusterImage, settings: ControllerSettings) -> None:
        self.image = image
        self.settings = settings

    def replay(self, records: Iterable[MetadataRecord], end_offset: int) -> None:
        """Go on to the image that these records lead to, with which the log ends here."""
        self.image = replay(self.image, records, end_offset)

    def bootstrap(self) -> Decision[MetadataRecord, None]:
        """Decide on the first records of a log: which formats it is written in."""
        if METADATA_VERSION_FEATURE in self.image.level_by_feature:
            return Decision((), None)
        record = FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=METADATA_VERSION)
        return Decision((record,), None)

    def create_topics(
        self,
        topics: Sequence[CreatableTopic],
        *,
        topic_ids: Sequence[bytes],
        start: int,
        validate_only: bool = False,
    ) -> Decision[MetadataRecord, list[CreatableTopicResult]]:
        """Create topics; an id for each, and where placing begins, are drawn by the caller."""
        return create_topics(
            self.image, self.settings, topics, topic_ids, start, validate_only=validate_only
        )

    def delete_topics(
        self, wanted: Sequence[DeleteTopicState]
    ) -> Decision[MetadataRecord, list[DeletableTopicResult]]:
        """Delete topics, by name or by id."""
        return delete_topics(self.image, wanted)

    def create_partitions(
        self, topics: Sequence[CreatePartitionsTopic], *, start: int, validate_only: bool = False
    ) -> Decision[MetadataRecord, list[CreatePartitionsTopicResult]]:
        """Give topics more partitions; where placing begins is drawn by the caller."""
        return create_partitions(self.image, topics, start, validate_only=validate_only)

    def alter_configs(
        self,
        resources: Sequence[alter_configs.AlterConfigsResource],
        *,
        validate_only: bool = False,
    ) -> Decision[MetadataRecord, list[ConfigOutcome]]:
        """Replace all settings of resources; the outcomes are in the order of the request."""
        return decide_replacement(self.image, self.settings, resources, validate_only=validate_only)

    def incremental_alter_configs(
        self,
        resources: Sequence[incremental_alter_configs.AlterConfigsResource],
        *,
        validate_only: bool = False,
    ) -> Decision[MetadataRecord, list[ConfigOutcome]]:
        """Change single settings of resources; the outcomes are in the order of the request."""
        return decide_changes(self.image, self.settings, resources, validate_only=validate_only)

    def allocate_producer_ids(
        self, broker_id: int, broker_epoch: int
    ) -> Decision[MetadataRecord, ProducerIdBlock]:
        """Give a broker the next block of producer ids; ApiError STALE_BROKER_EPOCH."""
        return allocate_producer_ids(self.image, broker_id, broker_epoch)

    def register_broker(
        self,
        broker_id: int,
        incarnation_id: bytes,
        endpoints: Sequence[Endpoint],
        *,
        rack: str | None = None,
        log_dirs: Sequence[bytes] = (),
        levels_by_feature: Mapping[str, tuple[int, int]] | None = None,
    ) -> Decision[MetadataRecord, int]:
        """Admit a broker, and answer with its epoch."""
        return register_broker(
            self.image,
            broker_id,
            incarnation_id,
            endpoints,
            rack=rack,
            log_dirs=log_dirs,
            levels_by_feature=levels_by_feature,
        )
