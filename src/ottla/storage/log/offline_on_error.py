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
    """Tell an operation that may succeed later from a disk that has failed.

    The disk is full, or the process or the machine has no descriptor or memory left: the limit of
    open files, or of mappings (`vm.max_map_count`). Nothing is wrong with what is on the disk then.
    """
    return error.errno in _FULL or error.errno in _EXHAUSTED


class DiskBound:
    """An object in one directory, which is offline from the moment that its disk fails.

    Offline, everything is KAFKA_STORAGE_ERROR, and the disk is not asked again: it might say that
    all is well. A full disk has not failed, and neither has one for which there is no descriptor:
    the call is refused, and that is all.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.has_room = True
        """False from a write that found the disk full until the folder is known to have room."""
        self._failure: Exception | None = None
        self.suspect_paths: set[str] = set()
        """Segments in which a read has met damage that is not noted yet."""

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
        """Tell a refusal, after which the log goes on, from a disk that has failed."""
        if is_full(error):
            self.has_room = False
        elif not is_refusal(error):
            self.take_offline(error)
        return self._storage_error(f"refuses: {error}")

    def _storage_error(self, detail: str) -> ApiError:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory} {detail}")


_Self = TypeVar("_Self", bound=DiskBound)


def on_disk(
    method: Callable[Concatenate[_Self, _Parameters], _Result],
) -> Callable[Concatenate[_Self, _Parameters], _Result]:
    """Run a method only while the disk works, and translate its failures.

    Damaged bytes fail this one call: they prove nothing about others.
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
