"""Requests for offsets: by time, and by leader epoch."""

from collections.abc import Mapping
from typing import Final

from ottla.model.identifiers import TopicPartition, partitions_by_topic
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_CONSUMER: Final = -1


def list_offsets_request(
    time_by_partition: Mapping[TopicPartition, int],
    epoch_by_partition: Mapping[TopicPartition, int],
    *,
    is_committed_only: bool,
    timeout_ms: int,
) -> ListOffsetsRequest:
    """Ask for the first offsets at or after these times, with the known leader epochs."""
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=int(is_committed_only),
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=name.partition,
                        current_leader_epoch=epoch_by_partition[name],
                        timestamp=time_by_partition[name],
                    )
                    for name in names
                ],
            )
            for topic, names in partitions_by_topic(time_by_partition).items()
        ],
        timeout_ms=timeout_ms,
    )


def offset_for_leader_epoch_request(
    epoch_by_partition: Mapping[TopicPartition, int],
    current_epoch_by_partition: Mapping[TopicPartition, int],
) -> OffsetForLeaderEpochRequest:
    """Ask for the end offsets of these epochs in the current leaders' logs."""
    return OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER,
        topics=[
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=name.partition,
                        current_leader_epoch=current_epoch_by_partition[name],
                        leader_epoch=epoch_by_partition[name],
                    )
                    for name in names
                ],
            )
            for topic, names in partitions_by_topic(epoch_by_partition).items()
        ],
    )
