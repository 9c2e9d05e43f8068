"""Counts bytes that were read from disks before they could be sent."""

from threading import Lock

from ottla.broker.transport.response_writer import ColdReads
from ottla.environment.disk import File


class CountedColdReads:
    """Cold reads that are counted. Fetching happens on several threads, hence the lock."""

    def __init__(self, counted: ColdReads) -> None:
        self.needs_thread = counted.needs_thread
        self.read_hot = counted.read_hot
        self.give_back = counted.give_back
        self._fetch = counted.fetch
        self._lock = Lock()
        self.count = 0
        self.size_bytes = 0

    def fetch(self, file: File, position: int, size_bytes: int) -> None:
        """Make it hot; called on a thread."""
        with self._lock:
            self.count += 1
            self.size_bytes += size_bytes
        self._fetch(file, position, size_bytes)
