"""A part of a log, named and not read: the records in a Fetch response."""

from typing import Final, cast

from ottla.environment.disk import File


class LogSlice:
    """Some bytes of a file. The protocol needs only the length of record batches.

    As long as a slice is referenced the file stays open, even if retention removes it meanwhile.
    """

    __slots__ = ("file", "left_out_bytes", "position", "size_bytes")

    def __init__(self, file: File, position: int, size_bytes: int, left_out_bytes: int = 0) -> None:
        self.file: Final = file
        self.position: Final = position
        self.size_bytes: Final = size_bytes
        self.left_out_bytes: Final = left_out_bytes
        """The requested bytes of a batch that was left out because it would be incomplete."""

    def __len__(self) -> int:
        return self.size_bytes

    def __repr__(self) -> str:
        return f"<LogSlice of {self.size_bytes} bytes at {self.position}>"

    def read(self) -> bytes:
        """Read the bytes, where the kernel cannot send them by itself."""
        return self.file.read_at(self.position, self.size_bytes) if self.size_bytes else b""


NOTHING: Final = LogSlice(cast("File", None), 0, 0)
"""The empty slice at the end of a log: no file is opened for it."""
