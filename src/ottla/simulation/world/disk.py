"""A disk in memory that loses, tears and refuses data as a real one may. Twin of `runtime.disk`.

`crash` is a power cut, `kill` the death of the process alone; both invalidate every open file.
`faults` plans earlier failures. `disk_nodes` defines the state after a power cut.
"""

import errno
import posixpath
from collections.abc import Callable
from weakref import WeakValueDictionary

from ottla.environment.disk import Buffer
from ottla.simulation.world.disk_nodes import (
    Dice,
    DirectoryNode,
    DiskFaults,
    FileNode,
    Keep,
    Node,
    OperationKind,
    os_error,
)

FREE_BYTES_UNLIMITED = 2**50


class SimulatedDisk:
    """Directories and files, at first an empty `/`.

    With `capacity_bytes` the disk fills up: a write that does not fit writes a part, then fails. A
    hole takes as much room as data, an open removed file takes none. Random are `crash("random")`
    and the part that a failing write leaves; without a source of randomness that is one half.
    `now_ms` gives modification times, which survive every power cut.
    """

    def __init__(
        self,
        dice: Dice | None = None,
        *,
        capacity_bytes: int | None = None,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.faults = DiskFaults()
        self.capacity_bytes = capacity_bytes
        self.now_ms = now_ms
        self._dice = dice
        self._root = DirectoryNode()
        self._life = 0
        self._locked: WeakValueDictionary[str, SimulatedFile] = WeakValueDictionary()

    def crash(self, keep: Keep = "lose_all") -> None:
        """Cut the power and restart: this much of the unsynced data survives."""
        self._root.cut_power(keep, self._dice)
        self.kill()

    def kill(self) -> None:
        """End the process and let another begin: the page cache is still there."""
        self._life += 1
        self.faults.restart()

    def is_alive(self, life: int) -> bool:
        """Return whether the process of this incarnation is the running one."""
        self.faults.check_up()
        return life == self._life

    def open_file(self, path: str) -> "SimulatedFile":
        """Open a file that is there."""
        self.faults.read(_canonical(path))
        return SimulatedFile(self, self._life, _canonical(path), self._file(path))

    def create_file(self, path: str) -> "SimulatedFile":
        """Open a file, made if missing."""
        directory, name = self._place(path)
        if name not in directory.entries:
            self._change(OperationKind.CREATE, path, directory, {name: FileNode(self.now_ms())})
        return self.open_file(path)

    def lock_file(self, path: str) -> "SimulatedFile":
        """Open a file with an exclusive lock."""
        holder = self._locked.get(_canonical(path))
        if holder is not None and holder.is_open:
            raise os_error(errno.EAGAIN, path)
        file = self._locked[_canonical(path)] = self.create_file(path)
        return file

    def map_file(self, path: str) -> memoryview:
        """Return a copy of the file as it is now."""
        self.faults.read(_canonical(path))
        return memoryview(bytes(self._file(path).content))

    def exists(self, path: str) -> bool:
        """Tell whether the path leads to something."""
        self.faults.read(_canonical(path))
        try:
            self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_directory(self, path: str) -> bool:
        """Tell whether the path leads to a directory."""
        return self.exists(path) and isinstance(self._node(path), DirectoryNode)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in it, sorted."""
        self.faults.read(_canonical(path))
        return sorted(self._directory(path).entries)

    def make_directory(self, path: str) -> None:
        """Make it and the parents it lacks, one operation each."""
        self.faults.read(_canonical(path))
        names = _names(path)
        directory = self._root
        for count, name in enumerate(names, start=1):
            if name not in directory.entries:
                made = "/" + "/".join(names[:count])
                self._change(OperationKind.MAKE_DIRECTORY, made, directory, {name: DirectoryNode()})
            node = directory.entries[name]
            if isinstance(node, FileNode):
                raise os_error(errno.EEXIST, path)
            directory = node

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory within its directory, and replace an existing one."""
        assert posixpath.dirname(old) == posixpath.dirname(new), f"{old} to {new}"
        node = self._node(old)
        directory, new_name = self._place(new)
        replaced = directory.entries.get(new_name)
        if replaced is node:
            return
        if replaced is not None:
            _check_replaceable(replaced, node, new)
        old_name = posixpath.basename(old)
        self._change(OperationKind.RENAME, old, directory, {old_name: None, new_name: node})

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._file(path)
        directory, name = self._place(path)
        self._change(OperationKind.REMOVE, path, directory, {name: None})

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        if self._directory(path).entries:
            raise os_error(errno.ENOTEMPTY, path)
        directory, name = self._place(path)
        self._change(OperationKind.REMOVE_DIRECTORY, path, directory, {name: None})

    def sync_directory(self, path: str) -> None:
        """Make the names in it durable."""
        directory = self._directory(path)
        self.faults.perform(
            OperationKind.SYNC_DIRECTORY,
            _canonical(path),
            directory.sync,
            fail=directory.forget_dirty,
        )

    def free_bytes(self, path: str) -> int:
        """Return the free bytes; a large number if there is no capacity."""
        self.faults.read(_canonical(path))
        self._node(path)
        return self._room_bytes()

    def total_bytes(self, path: str) -> int:
        """Return the capacity; a lot, where there is none."""
        self.faults.read(_canonical(path))
        self._node(path)
        return FREE_BYTES_UNLIMITED if self.capacity_bytes is None else self.capacity_bytes

    def write(self, node: FileNode, path: str, position: int, content: bytes) -> None:
        """Write as much as there is room for; raise ENOSPC if that is not all."""
        growth = position + len(content) - len(node.content)
        missing = max(0, growth - self._room_bytes())
        node.write(position, content[: max(0, len(content) - missing)])
        node.modified_ms = self.now_ms()
        if missing:
            raise os_error(errno.ENOSPC, path)

    def torn(self, content: bytes) -> bytes:
        """Return the part that a torn write leaves."""
        size_bytes = len(content)
        kept = size_bytes // 2 if self._dice is None else self._dice.randrange(size_bytes + 1)
        return content[:kept]

    def corrupt(self, path: str, position: int, content: bytes) -> None:
        """Replace bytes that are there: the medium rots, or a write went to the wrong place."""
        self._file(path).corrupt(position, content)

    def flip_bit(self, path: str, byte: int, bit: int) -> None:
        """Turn one bit of a file over."""
        self.corrupt(path, byte, bytes([self._file(path).content[byte] ^ (1 << bit)]))

    def _change(
        self,
        kind: OperationKind,
        path: str,
        directory: DirectoryNode,
        entries: dict[str, Node | None],
    ) -> None:
        self.faults.perform(kind, _canonical(path), lambda: directory.change(entries))

    def _room_bytes(self) -> int:
        if self.capacity_bytes is None:
            return FREE_BYTES_UNLIMITED
        return max(0, self.capacity_bytes - _used_bytes(self._root))

    def _node(self, path: str) -> Node:
        self.faults.check_up()
        node: Node = self._root
        for name in _names(path):
            if isinstance(node, FileNode):
                raise os_error(errno.ENOTDIR, path)
            if name not in node.entries:
                raise os_error(errno.ENOENT, path)
            node = node.entries[name]
        return node

    def _file(self, path: str) -> FileNode:
        node = self._node(path)
        if isinstance(node, DirectoryNode):
            raise os_error(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._node(path)
        if isinstance(node, FileNode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def _place(self, path: str) -> tuple[DirectoryNode, str]:
        return self._directory(posixpath.dirname(path)), posixpath.basename(path)


class SimulatedFile:
    """A file of a simulated disk, open until it is closed or the process or the machine dies."""

    __slots__ = ("__weakref__", "_disk", "_life", "_node", "_path")

    def __init__(self, disk: SimulatedDisk, life: int, path: str, node: FileNode) -> None:
        self._disk = disk
        self._life = life
        self._path = path
        self._node: FileNode | None = node

    @property
    def is_open(self) -> bool:
        """Whether it is not closed, and its process is alive."""
        return self._node is not None and self._disk.is_alive(self._life)

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of it, or raise `OSError` and have written some."""
        node = self._open_node()
        content = bytes(data)
        self._disk.faults.perform(
            OperationKind.WRITE,
            self._path,
            lambda: self._disk.write(node, self._path, position, content),
            fail=lambda: node.write(position, self._disk.torn(content)),
        )

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Return these bytes, fewer only where the file ends."""
        node = self._open_node()
        self._disk.faults.read(self._path)
        return bytes(node.content[position : position + size_bytes])

    def size_bytes(self) -> int:
        """Return the position after the last byte."""
        return len(self._open_node().content)

    def modified_ms(self) -> int:
        """Return when it was last written to or cut."""
        return self._open_node().modified_ms

    def set_modified_ms(self, time_ms: int) -> None:
        """Say that it was modified then."""
        self._open_node().modified_ms = time_ms

    def truncate(self, size_bytes: int) -> None:
        """Cut the file, or let it grow with zeros, to this size."""
        node = self._open_node()
        node.modified_ms = self._disk.now_ms()
        self._disk.faults.perform(
            OperationKind.TRUNCATE, self._path, lambda: node.truncate(size_bytes)
        )

    def sync(self) -> None:
        """Make everything durable; after a failure, dirty data never will be."""
        node = self._open_node()
        self._disk.faults.perform(OperationKind.SYNC, self._path, node.sync, fail=node.forget_dirty)

    def close(self) -> None:
        """Close it; fine if it is closed."""
        self._node = None

    def fileno(self) -> int:
        """Raise `OSError`: there is no descriptor to send from."""
        raise os_error(errno.EOPNOTSUPP, self._path)

    def _open_node(self) -> FileNode:
        if not self._disk.is_alive(self._life) or self._node is None:
            raise os_error(errno.EBADF, self._path)
        return self._node


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _canonical(path: str) -> str:
    return "/" + "/".join(_names(path))


def _check_replaceable(replaced: Node, node: Node, path: str) -> None:
    if isinstance(replaced, FileNode):
        if isinstance(node, DirectoryNode):
            raise os_error(errno.ENOTDIR, path)
    elif isinstance(node, FileNode):
        raise os_error(errno.EISDIR, path)
    elif replaced.entries:
        raise os_error(errno.ENOTEMPTY, path)


def _used_bytes(node: Node) -> int:
    if isinstance(node, FileNode):
        return len(node.content)
    return sum(_used_bytes(child) for child in node.entries.values())
