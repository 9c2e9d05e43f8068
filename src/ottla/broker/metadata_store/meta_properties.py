"""The owner of log dirs: `meta.properties` names the cluster and the broker in each."""

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from ottla.environment.disk import Disk
from ottla.environment.randomness import Randomness
from ottla.model.identifiers import BrokerId, uuid_to_text
from ottla.storage.files.checkpoints import (
    META_PROPERTIES_FILE,
    CorruptCheckpointError,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from ottla.storage.log.offline_on_error import is_refusal


class ForeignLogDirError(Exception):
    """A log dir belongs to another broker or cluster, or its meta.properties is unreadable."""


OnFailed: TypeAlias = Callable[[str, OSError], None]
"""Called with an unusable log dir, and the reason."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Identity:
    """This broker's cluster id and node id, and the ids of its log dirs, in their order."""

    cluster_id: str
    node_id: BrokerId
    directory_ids: tuple[bytes, ...]


def fail_all(_path: str, error: OSError) -> None:
    """Raise, so that an unusable log dir keeps the broker from starting."""
    raise error


def claim_log_dirs(
    disk: Disk,
    paths: Sequence[str],
    node_id: BrokerId,
    randomness: Randomness,
    cluster_id: str | None = None,
    on_failed: OnFailed = fail_all,
) -> Identity:
    """Create missing log dirs, and write meta.properties where it is missing.

    Raises ForeignLogDirError, and changes nothing, unless all files agree with each other, with the
    node id and with the cluster id, if that is known. If it is not known, a broker without any
    meta.properties creates a new cluster.

    A log dir with an unreadable or unwritable file is passed to `on_failed`, which may raise, and
    left out of the result. OSError if no log dir is left, or if a disk is full.
    """
    mark_by_path = read_owners(disk, paths, node_id, cluster_id, on_failed)
    paths, found = list(mark_by_path), list(mark_by_path.values())
    marked = _agreed_cluster_id(paths, found)
    cluster_id = marked or cluster_id or uuid_to_text(randomness.uuid())
    marks = [
        MetaProperties(cluster_id, node_id, (mark and mark.directory_id) or randomness.uuid())
        for mark in found
    ]
    old_and_new = dict(zip(paths, zip(found, marks, strict=True), strict=True))

    def write(path: str) -> bytes:
        old, new = old_and_new[path]
        if new != old:
            _write(disk, path, new)
        return new.directory_id or b""

    return Identity(cluster_id, node_id, tuple(_usable(paths, write, on_failed).values()))


def read_owners(
    disk: Disk,
    paths: Sequence[str],
    node_id: BrokerId,
    cluster_id: str | None = None,
    on_failed: OnFailed = fail_all,
) -> dict[str, MetaProperties | None]:
    """Return the mark of each log dir, None where meta.properties or the log dir is missing.

    ForeignLogDirError unless all files agree with each other, with the node id and with the cluster
    id, if that is known. Unreadable log dirs are passed to `on_failed`, as in `claim_log_dirs`.
    """
    mark_by_path = _usable(paths, lambda path: _read(disk, path), on_failed)
    paths, found = list(mark_by_path), list(mark_by_path.values())
    marked = _agreed_cluster_id(paths, found)
    if marked is not None and cluster_id not in {None, marked}:
        raise ForeignLogDirError(
            f"{', '.join(paths)} belong to cluster {marked}, not to {cluster_id}"
        )
    for path, mark in zip(paths, found, strict=True):
        if mark is not None and mark.node_id not in {None, node_id}:
            raise ForeignLogDirError(f"{path} belongs to node {mark.node_id}, not to {node_id}")
    known = [mark.directory_id for mark in found if mark and mark.directory_id]
    if len(set(known)) != len(known):
        raise ForeignLogDirError(f"two of {', '.join(paths)} have the same directory.id")
    return mark_by_path


def _usable(paths: Sequence[str], use: Callable[[str], T], on_failed: OnFailed) -> dict[str, T]:
    """Call a function for each log dir; return the results where the disk does not fail."""
    found: dict[str, T] = {}
    failures: list[OSError] = []
    for path in paths:
        try:
            found[path] = use(path)
        except OSError as error:
            if is_refusal(error):
                raise
            on_failed(path, error)
            failures.append(error)
    if failures and not found:
        raise failures[0]
    return found


def _agreed_cluster_id(paths: Sequence[str], found: Sequence[MetaProperties | None]) -> str | None:
    path_by_cluster = {
        mark.cluster_id: path
        for path, mark in zip(paths, found, strict=True)
        if mark is not None and mark.cluster_id is not None
    }
    if len(path_by_cluster) > 1:
        told = ", ".join(f"{path} to {cluster}" for cluster, path in path_by_cluster.items())
        raise ForeignLogDirError(f"the folders belong to different clusters: {told}")
    return next(iter(path_by_cluster), None)


def _read(disk: Disk, path: str) -> MetaProperties | None:
    try:
        return read_meta_properties(disk, posixpath.join(path, META_PROPERTIES_FILE))
    except CorruptCheckpointError as error:
        raise ForeignLogDirError(f"the owner of this log dir cannot be read: {error}") from error


def _write(disk: Disk, path: str, mark: MetaProperties) -> None:
    if not disk.exists(path):
        disk.make_directory(path)
        disk.sync_directory(posixpath.dirname(path) or ".")
    write_meta_properties(disk, posixpath.join(path, META_PROPERTIES_FILE), mark)
