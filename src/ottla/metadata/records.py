"""The facts that a controller writes, in the formats of Kafka's metadata log (KRaft).

All record kinds of Kafka 4.3 in all their versions. `record_frames.py` reads and writes them,
`metadata_version.py` says which version a cluster may write.
"""

from typing import Final

from ottla.metadata.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.model.identifiers import BrokerId, LeaderEpoch, ProducerId
from ottla.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)

NO_LEADER: Final = BrokerId(-1)
LEADER_UNCHANGED: Final = BrokerId(-2)
RECOVERY_STATE_UNCHANGED: Final = -1
UNASSIGNED_DIRECTORY: Final = bytes(15) + b"\x01"
"""The directory id of a replica before its broker has chosen a log directory."""
LOST_DIRECTORY: Final = bytes(15) + b"\x02"
"""The directory of a replica that its broker has lost, with the disk."""
FULL_DIRECTORY: Final = bytes(15) + b"\x63"
"""The directory of a replica that is intact on a full disk. Ottla's own: Kafka reserves the ids
below 100 (KIP-858) and uses the first three, so no directory of a broker has this id."""
DAMAGED_DIRECTORY: Final = bytes(15) + b"\x62"
"""The directory of a replica that lacks a range of offsets. Ottla's own, as FULL_DIRECTORY."""


class BrokerEndpoint(Struct):
    """Where a broker, or a controller, listens."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(Struct):
    """The levels of one feature that a broker, or a controller, can do."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(Message, versions=(0, 4), flexible_since=0):
    """A broker has come, or has come back."""

    broker_id: BrokerId = int32()
    is_migrating_zk_broker: bool = boolean(since=2)
    incarnation_id: bytes = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable_since=0)
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean(since=1)
    log_dirs: list[bytes] = array("uuid", since=3, tag=0)
    cordoned_log_dirs: list[bytes] | None = array(
        "uuid", default=None, since=4, nullable_since=4, tag=1
    )
    """The directories that get no new replicas (KIP-1066)."""


class TopicRecord(Message, versions=(0, 0), flexible_since=0):
    """A topic was created; its partitions follow."""

    name: str = string()
    topic_id: bytes = uuid()


class PartitionRecord(Message, versions=(0, 2), flexible_since=0):
    """All about one partition: it was created, or is written down anew."""

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[BrokerId] = array("int32")
    isr: list[BrokerId] = array("int32")
    removing_replicas: list[BrokerId] = array("int32")
    adding_replicas: list[BrokerId] = array("int32")
    leader: BrokerId = int32(default=NO_LEADER)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: LeaderEpoch = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array("uuid", since=1)
    eligible_leader_replicas: list[BrokerId] | None = array(
        "int32", default=None, since=2, nullable_since=2, tag=1
    )
    last_known_elr: list[BrokerId] | None = array(
        "int32", default=None, since=2, nullable_since=2, tag=2
    )


class ConfigRecord(Message, versions=(0, 0), flexible_since=0):
    """A setting of a resource has this value now, or null: it falls back to its default."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable_since=0)


class PartitionChangeRecord(Message, versions=(0, 2), flexible_since=0):
    """A change of a partition. The partition epoch rises by one, as does a new leader's epoch."""

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    isr: list[BrokerId] | None = array("int32", default=None, nullable_since=0, tag=0)
    leader: BrokerId = int32(default=LEADER_UNCHANGED, tag=1)
    replicas: list[BrokerId] | None = array("int32", default=None, nullable_since=0, tag=2)
    removing_replicas: list[BrokerId] | None = array("int32", default=None, nullable_since=0, tag=3)
    adding_replicas: list[BrokerId] | None = array("int32", default=None, nullable_since=0, tag=4)
    leader_recovery_state: int = int8(default=RECOVERY_STATE_UNCHANGED, tag=5)
    eligible_leader_replicas: list[BrokerId] | None = array(
        "int32", default=None, since=2, nullable_since=2, tag=6
    )
    last_known_elr: list[BrokerId] | None = array(
        "int32", default=None, since=2, nullable_since=2, tag=7
    )
    directories: list[bytes] | None = array("uuid", default=None, since=1, nullable_since=1, tag=8)


class RemoveTopicRecord(Message, versions=(0, 0), flexible_since=0):
    """A topic was deleted, with its partitions and settings."""

    topic_id: bytes = uuid()


class FeatureLevelRecord(Message, versions=(0, 0), flexible_since=0):
    """The cluster uses a feature at this level from now on; 0 is not at all."""

    name: str = string()
    feature_level: int = int16()


class UnregisterBrokerRecord(Message, versions=(0, 0), flexible_since=0):
    """A broker was removed from the cluster for good."""

    broker_id: BrokerId = int32()
    broker_epoch: int = int64()


class BrokerRegistrationChangeRecord(Message, versions=(0, 3), flexible_since=0):
    """A change of the broker that is registered with this epoch."""

    broker_id: BrokerId = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    """1 if the broker is fenced, -1 if it is unfenced, 0 if that does not change."""
    in_controlled_shutdown: int = int8(since=1, tag=1)
    """1 if it is about to stop, 0 if that stays."""
    log_dirs: list[bytes] = array("uuid", since=2, tag=2)
    """The directories that it still has; none if that stays."""
    cordoned_log_dirs: list[bytes] | None = array(
        "uuid", default=None, since=3, nullable_since=3, tag=3
    )
    """The directories that get no new replicas; None if that stays."""


class FenceBrokerRecord(Message, versions=(0, 0), flexible_since=0):
    """A broker is fenced. Only in logs of a metadata.version before 6."""

    id: BrokerId = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Message, versions=(0, 0), flexible_since=0):
    """A broker is unfenced. Only in logs of a metadata.version before 6."""

    id: BrokerId = int32()
    epoch: int = int64()


class RegisterControllerRecord(Message, versions=(0, 0), flexible_since=0):
    """A controller has started: its addresses and features (KIP-919)."""

    controller_id: BrokerId = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)


class ProducerIdsRecord(Message, versions=(0, 0), flexible_since=0):
    """A broker was assigned the producer ids below `next_producer_id`."""

    broker_id: BrokerId = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: ProducerId = int64()


class ClearElrRecord(Message, versions=(0, 0), flexible_since=0):
    """A topic, or every topic if the name is empty, has no eligible leader replicas any more."""

    topic_name: str = string()


class NoOpRecord(Message, versions=(0, 0), flexible_since=0):
    """Nothing happened: the end offset moves, so that replicas see that they keep up (KIP-835)."""


class ZkMigrationStateRecord(Message, versions=(0, 0), flexible_since=0):
    """The state of a migration from ZooKeeper; in Kafka 4 only 0 (none) and 3 (over)."""

    zk_migration_state: int = int8()


class BeginTransactionRecord(Message, versions=(0, 0), flexible_since=0):
    """The following records take effect together, or not at all (KIP-868)."""

    name: str | None = string(default=None, nullable_since=0, tag=0)


class EndTransactionRecord(Message, versions=(0, 0), flexible_since=0):
    """The records since the begin of the metadata transaction take effect."""


class AbortTransactionRecord(Message, versions=(0, 0), flexible_since=0):
    """The records since the begin of the metadata transaction have no effect."""

    reason: str | None = string(default=None, nullable_since=0, tag=0)


class UnknownRecord(Message, versions=(0, 0)):
    """Stands for a record of a kind that this release does not know; it is never written."""

    kind: int = int32()
    version: int = int32()


MetadataRecord = (
    RegisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | UnregisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RegisterControllerRecord
    | ClearElrRecord
    | NoOpRecord
    | ZkMigrationStateRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | ClientQuotaRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UnknownRecord
)

RECORD_BY_KIND: Final[dict[int, type[MetadataRecord]]] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
    28: ClearElrRecord,
}
