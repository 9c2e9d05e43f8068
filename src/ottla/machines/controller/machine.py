"""The controller: the image of the metadata log, and the decisions based on it."""

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.machines.controller.brokers import register_broker
from ottla.machines.controller.configs import ConfigOutcome, decide_changes, decide_replacement
from ottla.machines.controller.in_sync import alter_partition
from ottla.machines.controller.leadership import Leadership, elect_leaders
from ottla.machines.controller.lifecycle import (
    fence_broker,
    forget_tail,
    shut_down_broker,
    unfence_broker,
    unregister_broker,
)
from ottla.machines.controller.lost_replicas import lose_replicas
from ottla.machines.controller.producer_ids import ProducerIdBlock, allocate_producer_ids
from ottla.machines.controller.reassignment import reassign_partitions
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.controller.topics import create_partitions, create_topics, delete_topics
from ottla.machines.decision import Decision
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.records import FeatureLevelRecord, MetadataRecord
from ottla.metadata.replay import replay
from ottla.model.identifiers import BrokerId, Offset
from ottla.wire.messages import alter_configs, incremental_alter_configs
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from ottla.wire.messages.create_partitions import (
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicResult
from ottla.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicState
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ReplicaElectionResult

METADATA_VERSION_FEATURE: Final = "metadata.version"
METADATA_VERSION: Final = 29
"""The level of Kafka 4.2; our records have its format."""
TRANSACTION_VERSION_FEATURE: Final = "transaction.version"
TRANSACTION_VERSION: Final = 2
"""The level at which every transaction ends with a new epoch (KIP-890)."""
FIRST_LEVELS: Final = {
    METADATA_VERSION_FEATURE: METADATA_VERSION,
    TRANSACTION_VERSION_FEATURE: TRANSACTION_VERSION,
}
"""The levels that a new cluster begins with."""


class Controller:
    """Decides on the basis of its image, which only `replay` changes.

    The caller requests one decision at a time, appends its records, and replays them before it
    requests the next. Errors of single items, such as a name that occurs twice, are in the
    results; a raised ApiError concerns the whole request.
    """

    def __init__(self, image: ClusterImage, settings: ControllerSettings) -> None:
        self.image = image
        self.settings = settings

    def replay(self, records: Iterable[MetadataRecord], end_offset: Offset) -> None:
        """Go on to the image that these records lead to, with which the log ends here."""
        self.image = replay(self.image, records, end_offset)

    def bootstrap(self) -> Decision[MetadataRecord, None]:
        """Decide on the first records of a log: which formats it is written in.

        A log that has begun is left as it is, and so are the features that it has not.
        """
        if METADATA_VERSION_FEATURE in self.image.level_by_feature:
            return Decision((), None)
        levels = FIRST_LEVELS.items()
        records = [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels]
        return Decision(tuple(records), None)

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
        self, broker_id: BrokerId, broker_epoch: int
    ) -> Decision[MetadataRecord, ProducerIdBlock]:
        """Give a broker the next block of producer ids; ApiError STALE_BROKER_EPOCH."""
        return allocate_producer_ids(self.image, broker_id, broker_epoch)

    def register_broker(self, broker: BrokerImage) -> Decision[MetadataRecord, int]:
        """Register a broker, and return its epoch."""
        return register_broker(self.image, broker)

    # -- brokers and the partitions they keep ---------------------------------------------------

    def forget_tail(self, broker_id: BrokerId) -> Decision[MetadataRecord, None]:
        """Revoke the eligibility of a broker that has lost its unsynced tail."""
        return forget_tail(self.image, self.settings, broker_id)

    def fence_broker(
        self, broker_id: BrokerId, gone: frozenset[int] = frozenset()
    ) -> Decision[MetadataRecord, None]:
        """Take a broker out of service, and let none of those lead that are gone, too.

        ApiError BROKER_ID_NOT_REGISTERED.
        """
        return fence_broker(self.image, self.settings, broker_id, gone)

    def unfence_broker(self, broker_id: BrokerId) -> Decision[MetadataRecord, None]:
        """Put a broker into service; ApiError BROKER_ID_NOT_REGISTERED."""
        return unfence_broker(self.image, self.settings, broker_id)

    def shut_down_broker(self, broker_id: BrokerId) -> Decision[MetadataRecord, int]:
        """Move leadership away from a broker; return how many partitions it has to keep."""
        return shut_down_broker(self.image, self.settings, broker_id)

    def unregister_broker(self, broker_id: BrokerId) -> Decision[MetadataRecord, None]:
        """Remove a broker for good; ApiError BROKER_ID_NOT_REGISTERED."""
        return unregister_broker(self.image, self.settings, broker_id)

    def alter_partition(
        self, request: AlterPartitionRequest
    ) -> Decision[MetadataRecord, AlterPartitionResponse]:
        """Decide on the ISRs that a leader proposes; ApiError STALE_BROKER_EPOCH."""
        return alter_partition(self.image, self.settings, request)

    def lose_replicas(
        self, request: AssignReplicasToDirsRequest
    ) -> Decision[MetadataRecord, AssignReplicasToDirsResponse]:
        """Hear from a broker which of its replicas are lost; ApiError STALE_BROKER_EPOCH."""
        return lose_replicas(self.image, self.settings, request)

    def elect_leaders(
        self, request: ElectLeadersRequest
    ) -> Decision[MetadataRecord, list[ReplicaElectionResult]]:
        """Hold requested elections; ApiError INVALID_REQUEST."""
        return elect_leaders(self.image, self.settings, request)

    def prefer_leaders(self, percentage: int = 0) -> Decision[MetadataRecord, None]:
        """Elect the preferred replica, wherever it is in sync and does not lead.

        A broker is skipped if others lead at most this percentage of its preferred partitions.
        """
        return Decision(tuple(Leadership(self.image, self.settings).prefer(percentage)), None)

    def reassign_partitions(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Decision[MetadataRecord, AlterPartitionReassignmentsResponse]:
        """Begin moves of partitions, or end them."""
        return reassign_partitions(self.image, self.settings, request)
