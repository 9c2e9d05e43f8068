"""The lag of copies, partition by partition."""

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.clients.admin.admin_offsets import OffsetAdmin, OffsetSpec
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model.identifiers import TopicPartition
from ottla.pipelines.mirror.clusters import Clusters
from ottla.pipelines.mirror.offset_syncs import KnownCopies, MirroredTopic, OffsetSyncsReader
from ottla.pipelines.mirror.options import MirrorError, MirrorOptions
from ottla.pipelines.topics.committed_topic_reader import CommittedTopicReader


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The position and the lag of one partition."""

    source: TopicPartition
    target: TopicPartition
    end_offset: int
    """The last stable offset of the source."""
    offset: int
    """The end of the copied offsets; the start of the log, if nothing was copied."""
    records: int
    bytes: int

    @property
    def lag(self) -> int:
        """The number of uncopied offsets."""
        return max(self.end_offset - self.offset, 0)


async def lags(
    source: ClusterView, copies: Iterable[MirroredTopic], known: KnownCopies
) -> list[PartitionLag]:
    """Look up the ends of partitions, and their positions in the notes."""
    wanted = [
        (copy, TopicPartition(copy.source_name, number))
        for copy in copies
        for number in range(copy.partition_count)
    ]
    names = [name for _, name in wanted]
    admin = OffsetAdmin(source)
    ends = await admin.find(dict.fromkeys(names, OffsetSpec.LATEST), is_committed_only=True)
    starts = await admin.find(dict.fromkeys(names, OffsetSpec.EARLIEST))
    found = []
    for copy, name in wanted:
        position = known.positions.get((copy.ident, name.partition))
        found.append(
            PartitionLag(
                name,
                TopicPartition(copy.name, name.partition),
                ends[name].offset,
                starts[name].offset if position is None else position.offset,
                0 if position is None else position.records,
                0 if position is None else position.bytes,
            )
        )
    return found


async def status(options: MirrorOptions) -> list[PartitionLag]:
    """Return the lag of all copies that mirrors with these options have made."""
    async with Clusters(options) as clusters:
        topics = {topic.name for topic in await clusters.target.refresh(None)}
        if clusters.notes_topic not in topics:
            raise MirrorError("nothing was mirrored from there to here yet")
        known = await OffsetSyncsReader(CommittedTopicReader(clusters.notes_topic)).read_on(
            clusters.target
        )
        copies = await clusters.alive(filter(options.is_fed, known.topics.values()))
        return await lags(clusters.source, copies, known)
