"""Turns failures of a log's disk into errors, and takes the log offline."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.storage.indexes.sparse_index import CorruptIndexError
from ottla.storage.segments.segment_batches import CorruptSegmentError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_CORRUPT: Final = (CorruptSegmentError, CorruptIndexError)

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def is_full(error: OSError) -> bool:
    """Return whether a disk has no room; it has not failed then."""
    return error.errno in _FULL


def is_refusal(error: OSError) -> bool:
    """Return whether an operation may succeed later: the disk has not failed.

    The disk is full, or the process or the machine has no descriptor or memory left: the limit of
    open files, or of mappings (`vm.max_map_count`). The data on the disk is intact.
    """
    return error.errno in _FULL or error.errno in _EXHAUSTED


class OfflineOnErrors:
    """An object in one directory, which goes offline when its disk fails.

    Offline, every operation raises KAFKA_STORAGE_ERROR without any I/O, because a failed disk may
    report success. A full disk has not failed, and neither has one for which there is no
    descriptor: only that call is refused.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.has_room = True
        """False from a write that found the disk full until the log dir is known to have space."""
        self._failure: Exception | None = None
        self.suspect_paths: set[str] = set()
        """Segments in which a read has found unrecorded damage."""

    @property
    def is_offline(self) -> bool:
        """Whether the disk has failed under this."""
        return self._failure is not None

    def take_offline(self, failure: Exception) -> None:
        """Answer everything with KAFKA_STORAGE_ERROR from now on."""
        self._failure = self._failure or failure

    def _check_online(self) -> None:
        if self._failure is not None:
            raise self._storage_error(f"is offline: {self._failure}")

    @contextmanager
    def _irrevocably(self) -> Iterator[None]:
        """Go offline if this fails half-way, for any reason: neither state exists then."""
        try:
            yield
        except (OSError, *_CORRUPT) as error:
            self.take_offline(error)
            raise

    def _refused(self, error: OSError) -> ApiError:
        """Distinguish a refusal, after which the log continues, from a failed disk."""
        if is_full(error):
            self.has_room = False
        elif not is_refusal(error):
            self.take_offline(error)
        return self._storage_error(f"refuses: {error}")

    def _storage_error(self, detail: str) -> ApiError:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory} {detail}")


_Self = TypeVar("_Self", bound=OfflineOnErrors)


def on_disk(
    method: Callable[Concatenate[_Self, _Parameters], _Result],
) -> Callable[Concatenate[_Self, _Parameters], _Result]:
    """Run a method only while the disk works, and translate its failures.

    Damaged bytes fail only this call: they are no evidence against the rest of the disk.
    """

    @wraps(method)
    def run(self: _Self, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        if self._failure is not None:
            self._check_online()
        try:
            return method(self, *args, **kwargs)
        except OSError as error:
            raise self._refused(error) from error
        except _CORRUPT as error:
            if isinstance(error, CorruptSegmentError):
                self.suspect_paths.add(error.path)
            raise self._storage_error(f"is damaged: {error}") from error

    return run
