"""Tells the log which topics are created and deleted."""

import logging
from collections.abc import Sequence

from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord, RemoveTopicRecord, TopicRecord

_log = logging.getLogger(__name__)


class TopicNotices:
    """Follows the metadata. A topic's name must be looked up before it is gone."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Go on to the next image."""
        for record in records:
            if isinstance(record, TopicRecord) and record.name in image.topics:
                count = len(image.topics[record.name].partitions)
                extra = {"topic": record.name}
                _log.info("topic %s is created: %d partitions", record.name, count, extra=extra)
            elif isinstance(record, RemoveTopicRecord):
                topic = self._image.topics_by_id.get(record.topic_id)
                if topic is not None:
                    _log.info("topic %s is deleted", topic.name, extra={"topic": topic.name})
        self._image = image
