"""The controller: the image of the metadata log, and the decisions based on it."""

from collections.abc import Iterable, Sequence

from ottla.machines.controller.broker_sessions import BrokerSessions
from ottla.machines.controller.brokers import (
    register,
    register_broker,
    register_controller,
)
from ottla.machines.controller.configs import ConfigOutcome, decide_changes, decide_replacement
from ottla.machines.controller.features import (
    FeatureUpdate,
    bootstrap,
    bootstrap_quorum,
    update_features,
)
from ottla.machines.controller.in_sync import alter_partition
from ottla.machines.controller.leadership import Leadership, elect_leaders
from ottla.machines.controller.lifecycle import (
    fence_broker,
    fence_expired,
    forget_tail,
    heartbeat,
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
from ottla.metadata.records import MetadataRecord
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
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest
from ottla.wire.messages.controller_registration import ControllerRegistrationRequest
from ottla.wire.messages.create_partitions import (
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicResult
from ottla.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicState
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ReplicaElectionResult


class Controller:
    """Decides on the basis of its image, which only `replay` changes.

    The caller requests one decision at a time, appends its records, and replays them before it
    requests the next. Errors of single items, such as a name that occurs twice, are in the
    results; a raised ApiError concerns the whole request.
    """

    def __init__(self, image: ClusterImage, settings: ControllerSettings) -> None:
        self.image = image
        self.settings = settings
        self.sessions = BrokerSessions(settings.broker_session_timeout_ms)
        """Only of use for the active controller of a quorum."""

    def replay(self, records: Iterable[MetadataRecord], end_offset: Offset) -> None:
        """Go on to the image that these records lead to, with which the log ends here."""
        self.image = replay(self.image, records, end_offset)

    def bootstrap(
        self, records: Sequence[MetadataRecord] | None = None
    ) -> Decision[MetadataRecord, None]:
        """Decide on the first records of a log: the levels of its features.

        A log that has begun is left as it is. A quorum gives the records that its directory was
        formatted with, and gets a metadata transaction.
        """
        if records is None:
            return bootstrap(self.image)
        return bootstrap_quorum(self.image, self.settings, records)

    def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        *,
        validate_only: bool = False,
        kraft_version: int | None = None,
        voters: Iterable[int] = (),
    ) -> Decision[MetadataRecord, None]:
        """Change levels of features, all or none; ApiError INVALID_UPDATE_VERSION.

        `kraft_version` and `voters` come from the quorum, if there is any. The quorum itself
        changes kraft.version; a change of it is only checked here.
        """
        decision = update_features(
            self.image, self.settings, updates, kraft_version=kraft_version, voters=voters
        )
        return Decision((), None) if validate_only else decision

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

    # -- brokers and controllers of a quorum ----------------------------------------------------

    def take_office(self, now_ms: int) -> None:
        """Begin as the active controller: each broker in service has a whole session."""
        self.sessions.begin(self.image, now_ms)

    def register(
        self, request: BrokerRegistrationRequest, now_ms: int, kraft_version: int
    ) -> Decision[MetadataRecord, int]:
        """Register a broker, and return its epoch; see `brokers.register` for its ApiErrors."""
        return register(self.image, self.settings, self.sessions, request, kraft_version, now_ms)

    def heartbeat(
        self, request: BrokerHeartbeatRequest, now_ms: int
    ) -> Decision[MetadataRecord, BrokerHeartbeatResponse]:
        """Decide on the next state of a broker; ApiError STALE_BROKER_EPOCH."""
        return heartbeat(self.image, self.settings, self.sessions, request, now_ms)

    def fence_expired(self, now_ms: int) -> Decision[MetadataRecord, BrokerId | None]:
        """Fence a broker with an expired session, and return it; call again until it is None."""
        return fence_expired(self.image, self.settings, self.sessions, now_ms)

    def register_controller(
        self, request: ControllerRegistrationRequest
    ) -> Decision[MetadataRecord, None]:
        """Take note of a controller's addresses and features; ApiError UNSUPPORTED_VERSION."""
        return register_controller(self.image, request)

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
