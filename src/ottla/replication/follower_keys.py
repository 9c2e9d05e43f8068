"""The keys that a leader notifies for the fetches of its followers.

There is one key per following broker and kind of news. An append notifies the replicas of its
partition only, and a fetch waits for one or two keys, however many partitions it names.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

FollowerKey = tuple[str, int]
"""A kind of news, and the broker that follows."""


def log_end_key(broker_id: int) -> FollowerKey:
    """Return the key that is notified of an append to any log that this broker follows."""
    return "end", broker_id


def committed_key(broker_id: int) -> FollowerKey:
    """Return the key that is notified when the high watermark of such a log rises."""
    return "committed", broker_id


class FollowerKeys(NamedTuple):
    """The keys of all followers of one partition."""

    end: tuple[FollowerKey, ...] = ()
    committed: tuple[FollowerKey, ...] = ()

    @classmethod
    def of(cls, leader: int, replicas: Iterable[int]) -> "FollowerKeys":
        """Return the keys of all replicas but the leader."""
        ids = tuple(one for one in replicas if one != leader)
        return cls(tuple(map(log_end_key, ids)), tuple(map(committed_key, ids)))

    def notify_changed(self, former: "FollowerKeys", notify: Callable[[Hashable], None]) -> None:
        """Notify all followers, and replicas that have just lost their place or their leader."""
        for key in dict.fromkeys((*former.end, *self.end)):
            notify(key)
