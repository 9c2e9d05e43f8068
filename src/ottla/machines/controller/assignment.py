"""From brokers to the records of new partitions."""

from collections.abc import Sequence

from ottla.metadata.image import ClusterImage
from ottla.metadata.records import UNASSIGNED_DIRECTORY, PartitionRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, LeaderEpoch


def partition_records(
    image: ClusterImage, topic_id: bytes, first: int, placed: Sequence[Sequence[BrokerId]]
) -> list[PartitionRecord]:
    """Return the records of new partitions, numbered from the first, on these brokers each."""
    return [
        _partition_record(image, topic_id, number, replicas)
        for number, replicas in enumerate(placed, first)
    ]


def _partition_record(
    image: ClusterImage, topic_id: bytes, number: int, replicas: Sequence[BrokerId]
) -> PartitionRecord:
    in_sync = [broker_id for broker_id in replicas if image.brokers[broker_id].is_active]
    assert in_sync, f"partition {number} would have no leader"
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=in_sync,
        leader=in_sync[0],
        leader_epoch=LeaderEpoch(0),
        partition_epoch=0,
        directories=[_directory(image, broker_id) for broker_id in replicas],
    )


def _directory(image: ClusterImage, broker_id: BrokerId) -> bytes:
    """Return the log dir that a broker will choose, if it has only one."""
    log_dirs = image.brokers[broker_id].log_dirs
    return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED_DIRECTORY


def check_assignment(
    image: ClusterImage, number: int, replicas: Sequence[BrokerId], replication_factor: int
) -> None:
    """Raise ApiError INVALID_REPLICA_ASSIGNMENT unless a partition can be kept like this."""
    if not replicas:
        raise invalid_assignment(f"partition {number} has no replicas")
    if len(set(replicas)) != len(replicas):
        raise invalid_assignment(f"partition {number} has two replicas on one broker")
    for broker_id in replicas:
        if broker_id not in image.brokers:
            raise invalid_assignment(f"partition {number}: no broker {broker_id} is registered")
    if len(replicas) != replication_factor:
        raise invalid_assignment(
            f"partition {number} has {len(replicas)} replicas, others {replication_factor}"
        )
    if not any(image.brokers[broker_id].is_active for broker_id in replicas):
        raise invalid_assignment(f"partition {number}: none of its brokers is active")


def invalid_assignment(detail: str) -> ApiError:
    """Return the error to raise about brokers that a client has chosen."""
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
