"""Reports unusable replicas of this broker to the controller, so that others lead.

Their disk has failed, now or at the last start; or it was too full to create them. The report is
repeated until the metadata no longer expects the replicas to work. Fetches for them stop before the
first report: otherwise the leader would consider them in sync again.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final

from ottla.broker.controller.controller_client import LeaveIsr, ReplicaName
from ottla.broker.hosting.hosted_partitions import Partitions
from ottla.machines.controller.lost_replicas import is_counted_on
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import LOST_DIRECTORY
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition

LOOK_MS: Final = 500
"""The interval of checks for lost replicas."""
_log = logging.getLogger(__name__)


class LostReplicas:
    """Finds and reports them. Belongs to one event loop."""

    def __init__(
        self,
        broker_id: int,
        image: Callable[[], ClusterImage],
        partitions: Partitions,
        leave_isr: LeaveIsr,
        unfollow: Callable[[Partition], None],
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._partitions = partitions
        self._leave_isr = leave_isr
        self._unfollow = unfollow

    async def tell(self) -> None:
        """Stop fetching offline replicas, and report those that are still leader or in an ISR."""
        failed = [one for one in self._partitions if one.log.is_offline]
        for partition in failed:
            self._unfollow(partition)
        unusable = [*self._partitions.offline, *(one.name for one in failed)]
        lost = list(self._counted_on(unusable))
        if not lost:
            return
        try:
            await self._leave_isr(lost, LOST_DIRECTORY)
        except ApiError as error:
            _log.warning("others do not lead yet what is lost here: %s", error)

    def _counted_on(self, unusable: list[TopicPartition]) -> Iterator[ReplicaName]:
        image = self._image()
        for name in unusable:
            topic = image.topics.get(name.topic)
            state = None if topic is None else topic.partition(name.partition)
            if topic is None or state is None:
                continue
            if is_counted_on(state, self._broker_id):
                yield topic.topic_id, name.partition
