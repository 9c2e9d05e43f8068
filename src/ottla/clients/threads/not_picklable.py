"""A mixin for objects that belong to one process, and can be neither copied nor pickled."""

from typing import NoReturn, SupportsIndex


class NotPicklable:
    """A client: its connections, threads and tasks stay where they are."""

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be copied or pickled: a client has connections and "
            "threads of its process. Make one where it is used, from the same settings"
        )
