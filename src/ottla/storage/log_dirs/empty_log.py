"""The log of a new partition: a directory, the topic's id and one empty segment."""

import posixpath
from collections.abc import Callable

from ottla.model.settings.topic_config import TopicConfig
from ottla.storage.files.checkpoints import PARTITION_METADATA_FILE, write_topic_id
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.leader_epochs import LEADER_EPOCH_FILE, LeaderEpochs
from ottla.storage.log.log import LogState, PartitionLog
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.segments.segment import Segment


def begin_log(
    files: OpenFiles,
    directory: str,
    topic_id: bytes,
    config: TopicConfig,
    now_ms: int,
    on_recovery_point_lowered: Callable[[int], None],
) -> PartitionLog:
    """Begin a log in a directory that is not there yet; all but its name is durable then."""
    files.disk.make_directory(directory)
    path = posixpath.join(directory, PARTITION_METADATA_FILE)
    write_topic_id(files.disk, path, topic_id, sync_name=False)
    segment = Segment.create(files, directory, 0, config, now_ms)
    files.disk.sync_directory(directory)
    epochs = LeaderEpochs(files.disk, posixpath.join(directory, LEADER_EPOCH_FILE))
    producers = ProducerStates(files.disk, directory)
    state = LogState([segment], epochs, producers, 0, 0, 0, is_durable=True)
    return PartitionLog(files, directory, config, state, on_recovery_point_lowered)
