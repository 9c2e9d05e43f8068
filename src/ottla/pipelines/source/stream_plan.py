"""Plans a stream: the end of each micro-batch, and the ranges of its tasks."""

import logging
import time
from collections.abc import Collection, Mapping

from ottla.clients.tables.errors import DataLossError
from ottla.clients.tables.range_reader import split
from ottla.clients.tables.topic_cluster import TopicCluster, TopicShape
from ottla.model.identifiers import ZERO_UUID, TopicPartition
from ottla.model.isolation_level import EARLIEST, LATEST
from ottla.pipelines.source.errors import ADVICE_ON_LOSS
from ottla.pipelines.source.offset_resolution import (
    SourceOffsets,
    all_topics,
    find_topics,
    partitions_of,
    resolve,
)
from ottla.pipelines.source.options import SourceOptions
from ottla.pipelines.source.planning import TaskRange

_log = logging.getLogger(__name__)
_Offsets = Mapping[TopicPartition, int]


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], offsets_max: int
) -> dict[TopicPartition, int]:
    """Return ends such that all partitions together have at most `offsets_max` offsets.

    Shares are proportional to the waiting offsets, and at least one offset each if the limit
    allows it. Both maps have the same partitions; an end before its start stays as it is.
    """
    waiting = {name: end[name] - start[name] for name in end if end[name] > start[name]}
    total = sum(waiting.values())
    if total <= offsets_max:
        return dict(end)
    shares = {name: max(offsets_max * count // total, 1) for name, count in waiting.items()}
    over = sum(shares.values()) - offsets_max
    for name in sorted(shares, key=lambda name: -shares[name]):
        least = 0 if len(shares) > offsets_max else 1
        cut = max(min(over, shares[name] - least), 0)
        shares[name] -= cut
        over -= cut
    for name, count in waiting.items():  # distribute the remainder of the division
        more = min(-over, count - shares[name]) if over < 0 else 0
        shares[name] += more
        over += more
    return {name: start[name] + shares[name] if name in shares else end[name] for name in end}


class StreamPlan:
    """Plans micro-batches from the cluster's offsets. New topics and partitions start at earliest.

    If a topic or partition of the checkpoint is missing, or a topic was deleted and created again,
    data is lost: DataLossError, or a log line if failOnDataLoss is false.
    """

    def __init__(self, cluster: TopicCluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._target: _Offsets | None = None
        self._gone: set[str] = set()
        self._triggered_at = time.monotonic()
        self.newest: _Offsets = {}
        """The last known ends of the partitions."""

    def initial(self) -> SourceOffsets:
        """Return the start offsets of a query that has no checkpoint."""
        shapes = all_topics(self._cluster, self._options.topics)
        starts = resolve(
            self._cluster,
            self._options.starting,
            partitions_of(shapes),
            is_committed_only=self._options.fetching.is_committed_only,
            is_latest_where_time_is_missing=self._options.is_latest_where_time_is_missing,
        )
        return SourceOffsets(starts, _ids(shapes), is_initial=True)

    def stop_at_what_is_there(self) -> None:
        """Limit the stream to the records that exist now."""
        self._target = self._ends(partitions_of(find_topics(self._cluster, self._options.topics)))

    def latest(
        self, start: SourceOffsets, offsets_max: int | None, *, is_delay_allowed: bool = False
    ) -> SourceOffsets:
        """Return the end of the micro-batch after `start`; `start` itself if it is empty.

        It has at most `offsets_max` offsets. With `is_delay_allowed`, it stays empty while there
        are fewer than minOffsetsPerTrigger, until maxTriggerDelay has passed.
        """
        shapes = find_topics(self._cluster, self._options.topics, self._gone)
        self._check_topics(start, shapes)
        names = partitions_of(shapes)
        self.newest = ends = self._ends(names)
        begins = self._begins(start, SourceOffsets(ends, _ids(shapes)))
        self._check_ends(begins, ends)
        if self._target is not None:
            ends = {
                name: max(begins[name], min(end, self._target.get(name, begins[name])))
                for name, end in ends.items()
                if name in self._target or name in start.offset_by_partition
            }
            is_delay_allowed = False
        if is_delay_allowed and self._is_worth_waiting(begins, ends):
            return start
        if offsets_max is not None:
            ends = limited(begins, ends, offsets_max)
        if ends == start.offset_by_partition and _ids(shapes) == start.id_by_topic:
            return start
        self._triggered_at = time.monotonic()
        first = SourceOffsets(start.offset_by_partition, start.id_by_topic)
        return SourceOffsets(ends, _ids(shapes), begins_at=first if start.is_initial else None)

    def ranges(self, start: SourceOffsets, end: SourceOffsets) -> list[TaskRange]:
        """Return the ranges that the tasks of a micro-batch read."""
        if start.is_initial and end.begins_at is not None:
            start = end.begins_at
        begins = self._begins(start, end)
        return split(
            [
                TaskRange(
                    *name, begins[name], end_offset, end.id_by_topic.get(name.topic, ZERO_UUID)
                )
                for name, end_offset in end.offset_by_partition.items()
            ],
            min_partitions=self._options.min_partitions,
            records_per_partition_max=self._options.records_per_partition_max,
        )

    def _ends(self, names: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        is_committed_only = self._options.fetching.is_committed_only
        return self._cluster.find(dict.fromkeys(names, LATEST), is_committed_only=is_committed_only)

    def _begins(self, start: SourceOffsets, end: SourceOffsets) -> dict[TopicPartition, int]:
        """Return the start in each partition of the end; a new partition starts at its earliest."""
        known = {
            name: offset
            for name, offset in start.offset_by_partition.items()
            if name in end.offset_by_partition and start.has_same_topic(end, name.topic)
        }
        new = [name for name in end.offset_by_partition if name not in known]
        if not new:
            return known
        found = self._cluster.find(dict.fromkeys(new, EARLIEST), is_committed_only=False)
        topics_before = {name.topic for name in known}
        for name, offset in found.items():
            if offset > 0 and name.topic in topics_before:
                self._lose(f"{name} was added, and its offsets before {offset} are gone already")
        return known | found

    def _check_topics(self, start: SourceOffsets, shapes: Mapping[str, TopicShape]) -> None:
        there = set(partitions_of(shapes))
        now = SourceOffsets({}, _ids(shapes))
        for topic in dict.fromkeys(name.topic for name in start.offset_by_partition):
            if topic not in shapes:
                self._lose(f"topic {topic!r} was deleted, or is no longer subscribed to")
                self._gone.add(topic)
            elif not start.has_same_topic(now, topic):
                self._lose(
                    f"topic {topic!r} was deleted and made again since the checkpoint was written: "
                    "its offsets mean other records now"
                )
        for name in start.offset_by_partition:
            if name.topic in shapes and name not in there:
                self._lose(f"partition {name} is no longer there, or no longer assigned")

    def _check_ends(self, begins: _Offsets, ends: _Offsets) -> None:
        for name, end in ends.items():
            if end < begins[name]:
                self._lose(f"{name} ends at {end} now, and was read up to {begins[name]}")

    def _is_worth_waiting(self, begins: _Offsets, ends: _Offsets) -> bool:
        least = self._options.min_offsets_per_trigger
        if least is None or sum(max(ends[name] - begins[name], 0) for name in ends) >= least:
            return False
        waited_ms = (time.monotonic() - self._triggered_at) * 1000
        return waited_ms < self._options.trigger_delay_ms_max

    def _lose(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{what}; {ADVICE_ON_LOSS}")
        _log.warning("%s; failOnDataLoss is false: the query goes on", what)


def _ids(shapes: Mapping[str, TopicShape]) -> dict[str, bytes]:
    """Return the ids of topics; brokers before Kafka 2.8 have none."""
    return {
        topic: shape.topic_id
        for topic, shape in sorted(shapes.items())
        if shape.topic_id != ZERO_UUID
    }
