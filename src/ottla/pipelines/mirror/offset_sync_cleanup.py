"""Deletes offset syncs of records that the target has deleted."""

from ottla.clients.admin.admin_offsets import OffsetAdmin, OffsetSpec
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.model.identifiers import TopicPartition
from ottla.pipelines.mirror.clusters import Clusters
from ottla.pipelines.mirror.offset_syncs import MirroredTopic, Runs, runs_note
from ottla.pipelines.mirror.offset_translation import OffsetMaps
from ottla.pipelines.mirror.options import MirrorOptions


async def tidy(
    options: MirrorOptions, clusters: Clusters, copies: list[MirroredTopic], maps: OffsetMaps
) -> int:
    """Delete the runs of deleted records' transactions; return their number.

    Tombstones are written, and compaction does the rest. The last note of a partition stays: it has
    the end of the copy.
    """
    copy_by_name = {
        TopicPartition(copy.name, number): copy
        for copy in copies
        for number in range(copy.partition_count)
    }
    earliest = dict.fromkeys(copy_by_name, OffsetSpec.EARLIEST)
    starts = await OffsetAdmin(clusters.target).find(earliest)
    gone = [
        Runs(copy.ident, name.partition, offset, ())
        for name, copy in copy_by_name.items()
        for offset in maps.of(copy.ident, name.partition).outdated(starts[name].offset)
    ]
    if gone:
        async with AsyncProducer(options.target, acks="all") as producer:
            for note in gone:
                key, _ = runs_note(note)
                await producer.send(clusters.notes_topic, None, key=key, partition=0)
            await producer.flush()
    return len(gone)
