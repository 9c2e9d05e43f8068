r"""The small files beside the logs, each replaced atomically: a crash leaves the old or the new.

    recovery-point-offset-checkpoint   per log dir, "0\n<count>\n" and then that many lines
    log-start-offset-checkpoint        "<topic> <partition> <offset>\n"
    replication-offset-checkpoint      (the high watermarks)
    partition.metadata                 per partition: the topic's id
    meta.properties                    per log dir: its cluster and node id; a Java properties file
    .kafka_cleanshutdown               JSON; exists between a clean shutdown and the next start
                                       (see also `log_dirs/log_dir.py`)

A missing file reads as None, or as no offsets. A damaged file raises CorruptCheckpointError; the
caller decides whether it can continue without the file.
"""

import json
import posixpath
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from itertools import count

from ottla.environment.disk import Disk
from ottla.model.identifiers import (
    ZERO_UUID,
    BrokerId,
    Offset,
    TopicPartition,
    uuid_from_text,
    uuid_to_text,
)
from ottla.model.settings.properties import PropertiesError, escaped_property, read_properties

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"

TABLE_BYTES_MAX = 64 << 20
"""No table is longer: it has one line per partition, of less than 300 bytes."""
SMALL_FILE_BYTES_MAX = 64 << 10
"""No other file here is longer; most have less than a hundred bytes."""
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
NO_BROKER_EPOCH = -1
"""The broker stopped before it had a broker epoch, or its version of Kafka did not record it."""

_NUMBER = re.compile(r"[0-9]{1,19}")

Write = Callable[[], None]
"""Writes a file, on any thread. After an `OSError` it is not written."""


class CorruptCheckpointError(Exception):
    """A checkpoint file has invalid content."""

    def __init__(self, path: str, detail: str, line: int = 0) -> None:
        super().__init__(f"{path}, line {line}: {detail}" if line else f"{path}: {detail}")


# -- whole files ----------------------------------------------------------------------------------


def write_atomically(
    disk: Disk, path: str, content: bytes, *, suffix: str = ".tmp", sync_name: bool = True
) -> None:
    """Replace the file durably: a crash at any moment leaves the old content or the new.

    Two that may be doing so at the same time need different suffixes. Without `sync_name` the new
    content is durable once the caller has synced the directory.
    """
    temporary_path = path + suffix
    try:
        with closing(disk.create_file(temporary_path)) as file:
            file.truncate(0)
            file.write_at(0, content)
            file.sync()
    except OSError:
        # After a failed sync the file cannot be trusted: the next attempt writes another file.
        with suppress(OSError):
            disk.remove(temporary_path)
        raise
    disk.rename(temporary_path, path)
    if sync_name:
        disk.sync_directory(posixpath.dirname(path))


def remove_durably(disk: Disk, path: str) -> None:
    """Remove the file, if it exists, so that no crash brings it back."""
    with suppress(FileNotFoundError):
        disk.remove(path)
    disk.sync_directory(posixpath.dirname(path))


def remove_tree(disk: Disk, directory: str) -> None:
    """Remove a directory and the files in it."""
    for name in disk.list_directory(directory):
        disk.remove(posixpath.join(directory, name))
    disk.remove_directory(directory)


def _read(disk: Disk, path: str, bytes_max: int) -> bytes | None:
    try:
        file = disk.open_file(path)
    except FileNotFoundError:
        return None
    with closing(file):
        size_bytes = file.size_bytes()
        if size_bytes > bytes_max:
            raise CorruptCheckpointError(path, f"{size_bytes} bytes are too many")
        return file.read_at(0, size_bytes)


def read_text(disk: Disk, path: str, bytes_max: int) -> str | None:
    """Read a small file, or None if it is not there.

    Raises CorruptCheckpointError if it is too large, or no text.
    """
    content = _read(disk, path, bytes_max)
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(path, str(error)) from None


# -- tables: a version, a count, and as many lines of words ---------------------------------------


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """One line of a table, and where it stands."""

    path: str
    line: int
    words: list[str]

    def number(self, index: int, most: int) -> int:
        """Read a word as a number from 0 to most."""
        number = _number(self.words[index], most)
        if number is None:
            raise self.error(f"needs a number from 0 to {most} as word {index + 1}")
        return number

    def error(self, detail: str) -> CorruptCheckpointError:
        """Return the error to raise about this line."""
        return CorruptCheckpointError(
            self.path, f"{_shown(' '.join(self.words))} {detail}", self.line
        )


def read_table(disk: Disk, path: str, *, words_per_line: int) -> list[CheckpointLine]:
    """Read the lines of a checkpoint; none if it is missing, or still empty as Kafka makes it."""
    text = read_text(disk, path, TABLE_BYTES_MAX)
    if not text:
        return []
    # Kafka ends every line: a last line without an end is truncated.
    if not text.endswith("\n"):
        raise CorruptCheckpointError(path, "the last line has no end")
    texts = text[:-1].split("\n")
    if texts[0] != "0":
        raise CorruptCheckpointError(path, f"{_shown(texts[0])} is not a known version", 1)
    count = max(len(texts) - 2, 0)
    if texts[1:2] != [str(count)]:
        raise CorruptCheckpointError(path, f"{count} entries, not as many as it says", 2)
    lines = [CheckpointLine(path, at, line.split()) for at, line in enumerate(texts[2:], 3)]
    for line in lines:
        if len(line.words) != words_per_line:
            raise line.error(f"has {len(line.words)} words instead of {words_per_line}")
    return lines


def write_table(disk: Disk, path: str, lines: Collection[str]) -> None:
    """Replace a checkpoint by one with these lines."""
    write_atomically(disk, path, encode_table(lines))


def encode_table(lines: Collection[str]) -> bytes:
    """Return the content of a checkpoint with these lines."""
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    """Read a checkpoint of one offset per partition."""
    offset_by_partition: dict[TopicPartition, Offset] = {}
    for line in read_table(disk, path, words_per_line=3):
        partition = TopicPartition(line.words[0], line.number(1, INT32_MAX))
        if partition in offset_by_partition:
            raise line.error("is the partition's second offset")
        offset_by_partition[partition] = Offset(line.number(2, INT64_MAX))
    return offset_by_partition


def write_offsets(
    disk: Disk, path: str, offset_by_partition: Mapping[TopicPartition, Offset]
) -> None:
    """Replace a checkpoint by one with these offsets."""
    entries = offset_by_partition.items()
    write_table(disk, path, [f"{topic} {index} {offset}" for (topic, index), offset in entries])


class OffsetCheckpoint:
    """One checkpoint file, collected on the loop and written on threads.

    `guard` keeps threads apart that write; one thread needs none. Older offsets never replace newer
    ones: an offset that was lowered does not come back.
    """

    __slots__ = ("_disk", "_guard", "_numbers", "_path", "_written_number")

    def __init__(self, disk: Disk, path: str, guard: AbstractContextManager[object]) -> None:
        self._disk = disk
        self._path = path
        self._guard = guard
        self._numbers = count(1)
        self._written_number = 0

    def told(self, offset_by_partition: Mapping[TopicPartition, Offset]) -> Write:
        """Return the function that writes these offsets, unless newer ones were given by then."""
        number = next(self._numbers)
        offsets = dict(offset_by_partition)

        def write() -> None:
            with self._guard:
                if number > self._written_number:
                    write_offsets(self._disk, self._path, offsets)
                    self._written_number = number

        return write


# -- partition.metadata ---------------------------------------------------------------------------


def read_topic_id(disk: Disk, path: str) -> bytes | None:
    """Read a partition's topic id, which later versions of the file will have there as well."""
    text = read_text(disk, path, SMALL_FILE_BYTES_MAX)
    if text is None:
        return None
    match = re.match(r"version:\s+[0-9]+\s*\n(topic_id:\s+(\S+))?", text)
    if match is None or match[2] is None:
        raise CorruptCheckpointError(path, f"{_shown(text)} begins otherwise than it should")
    return _uuid(path, match[2])


def write_topic_id(disk: Disk, path: str, topic_id: bytes, *, sync_name: bool = True) -> None:
    """Replace the file by one with this id; `sync_name` as in `write_atomically`."""
    assert topic_id != ZERO_UUID, "a partition of no topic"
    # Kafka does not end the second line either.
    content = f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()
    write_atomically(disk, path, content, sync_name=sync_name)


# -- .kafka_cleanshutdown -------------------------------------------------------------------------


def read_clean_shutdown(disk: Disk, path: str) -> int | None:
    """Read the epoch of the broker that stopped properly, or None if none did.

    The file that Kafka left before version 3.7 is empty: NO_BROKER_EPOCH.
    """
    text = read_text(disk, path, SMALL_FILE_BYTES_MAX)
    if not text:
        return None if text is None else NO_BROKER_EPOCH
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    if type(epoch) is not int or not NO_BROKER_EPOCH <= epoch <= INT64_MAX:
        raise CorruptCheckpointError(path, f"{_shown(text)} tells no broker epoch")
    return epoch


def write_clean_shutdown(disk: Disk, path: str, broker_epoch: int) -> None:
    """Leave the mark of a broker that stops properly, once all its logs are durable."""
    write_atomically(disk, path, f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode())


# -- meta.properties ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The owner of a log dir. Only version 0, from Kafka with ZooKeeper, may lack the first two.

    Version 0 is only read.
    """

    cluster_id: str | None
    node_id: BrokerId | None
    directory_id: bytes | None = None


def read_meta_properties(disk: Disk, path: str) -> MetaProperties | None:
    """Read version 1, or version 0, where the node id is called broker.id."""
    content = _read(disk, path, SMALL_FILE_BYTES_MAX)
    if content is None:
        return None
    try:
        value_by_key = read_properties(content.decode("latin-1"))
    except PropertiesError as error:
        raise CorruptCheckpointError(path, error.detail, error.line) from None
    version = value_by_key.get("version", "0").strip()
    if version not in {"0", "1"} or not value_by_key:
        raise CorruptCheckpointError(path, f"version {_shown(version)} of nothing known")
    cluster_id = value_by_key.get("cluster.id")
    node_id = value_by_key.get("broker.id" if version == "0" else "node.id")
    directory_id = value_by_key.get("directory.id")
    if version == "1" and (cluster_id is None or node_id is None):
        raise CorruptCheckpointError(path, "version 1 needs a cluster.id and a node.id")
    return MetaProperties(
        cluster_id,
        None if node_id is None else _node_id(path, node_id),
        None if directory_id is None else _uuid(path, directory_id),
    )


def write_meta_properties(disk: Disk, path: str, properties: MetaProperties) -> None:
    """Replace the file by one in version 1."""
    assert properties.cluster_id is not None, "a directory of no cluster"
    assert properties.node_id is not None, "a directory of no node"
    lines = ["#", f"cluster.id={escaped_property(properties.cluster_id)}"]
    if properties.directory_id is not None:
        lines.append(f"directory.id={uuid_to_text(properties.directory_id)}")
    lines += [f"node.id={properties.node_id}", "version=1", ""]
    write_atomically(disk, path, "\n".join(lines).encode("ascii"))


# -- words ----------------------------------------------------------------------------------------


def _number(word: str, most: int) -> int | None:
    if _NUMBER.fullmatch(word) is None or int(word) > most:
        return None
    return int(word)


def _node_id(path: str, text: str) -> BrokerId:
    number = _number(text, INT32_MAX)
    if number is None:
        raise CorruptCheckpointError(path, f"{_shown(text)} is not the id of a node")
    return BrokerId(number)


def _uuid(path: str, text: str) -> bytes:
    try:
        raw = uuid_from_text(text)
    except ValueError as error:
        raise CorruptCheckpointError(path, str(error)) from None
    if raw == ZERO_UUID:
        raise CorruptCheckpointError(path, "the id is the reserved zero id")
    return raw


def _shown(text: str) -> str:
    return repr(text[:80])
