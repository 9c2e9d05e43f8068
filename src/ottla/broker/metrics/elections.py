"""Counts the elections that this broker has decided on, while it is the controller."""

from collections.abc import Callable, Sequence

from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord, PartitionChangeRecord


class Elections:
    """Follows the metadata. Decisions of other controllers do not count."""

    def __init__(self, image: ClusterImage, is_controller: Callable[[], bool]) -> None:
        self.is_controller = is_controller
        self.count = 0
        self.unclean_count = 0
        """Elections of a leader that was neither in sync nor eligible."""
        self._image = image

    def on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Count the elections in a decision."""
        before, self._image = self._image, image
        if not self.is_controller():
            return
        for record in records:
            if isinstance(record, PartitionChangeRecord) and record.leader >= 0:
                self._elected(before, record)

    def _elected(self, before: ClusterImage, record: PartitionChangeRecord) -> None:
        topic = before.topics_by_id.get(record.topic_id)
        partition = None if topic is None else topic.partition(record.partition_id)
        if partition is None:
            return
        self.count += 1
        trusted = (*partition.isr, *partition.eligible_leader_replicas)
        self.unclean_count += record.leader not in trusted
