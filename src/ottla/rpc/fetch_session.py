"""A fetcher's side of an incremental fetch session (KIP-227): a request names only changes.

    put     changed  --request-->  known  --remove-->  gone  --request-->  (nothing)
               ^--------- put ------+         <---- put ----'

A broker closes sessions as it needs memory, and after every failure the two sides may disagree.
Then `reset` starts anew: the next request has epoch 0, and names every partition.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ottla.model.error_code import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

BY_NAME_VERSION_MAX: Final = 12
"""Later versions of Fetch identify topics by id only."""
SESSION_LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""After these codes of a response, `reset` and fetch again at once."""
_NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_EPOCH_MAX: Final = 2**31 - 1


class PartitionKey(NamedTuple):
    """A partition of a session. A topic that is created again has another id, so another key."""

    topic_id: bytes
    partition: int
    topic: str = ""
    """Its name, for versions without topic ids."""


class FetchSession:
    """The partitions that are fetched from one broker, and the broker's knowledge of them."""

    def __init__(self) -> None:
        self._session_id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        # Dicts in place of sets, for their order. `gone` is disjoint with the two others.
        self._changed: dict[PartitionKey, None] = {}
        self._known: dict[PartitionKey, None] = {}
        self._gone: dict[PartitionKey, None] = {}

    @property
    def is_open(self) -> bool:
        """Whether the broker has a session."""
        return self._session_id != _NO_SESSION

    @property
    def changed(self) -> list[PartitionKey]:
        """The partitions that the next request names."""
        return list(self._changed)

    def is_known(self, key: PartitionKey) -> bool:
        """Return whether the broker's session has a partition, perhaps one to be removed."""
        return key in self._known or key in self._gone

    def put(self, key: PartitionKey) -> None:
        """Name a partition in the next request: it is new, or its position has changed."""
        # A broker removes forgotten partitions last: a partition in both lists gets no response.
        if key in self._gone:
            del self._gone[key]
            self._known[key] = None
        self._changed[key] = None

    def remove(self, key: PartitionKey) -> None:
        """Fetch a partition no more."""
        self._changed.pop(key, None)
        if key in self._known:
            del self._known[key]
            self._gone[key] = None

    def request(
        self,
        entry_of: Callable[[PartitionKey], FetchPartition],
        ahead: Iterable[PartitionKey] | None = None,
    ) -> FetchRequest:
        """Return the next request, without limits.

        With `ahead`, it names only these partitions, and follows a request that has no response
        yet.
        """
        keys = self.changed if ahead is None else list(ahead)
        request = FetchRequest(
            session_id=self._session_id,
            session_epoch=self._epoch if ahead is None else _after(self._epoch),
            topics=_by_topic(keys, entry_of),
            forgotten_topics_data=_forgotten(self._gone),
        )
        for key in keys:
            del self._changed[key]
            self._known[key] = None
        self._gone.clear()
        return request

    def accept(self, session_id: int) -> None:
        """Go on after a response; without a session if the id is 0, as the broker has no room."""
        if session_id == _NO_SESSION:
            self.reset()
        else:
            self._session_id = session_id
            self._epoch = _after(self._epoch)

    def skip(self) -> None:
        """Go on without the response to a request: the broker has seen the next request."""
        self._epoch = _after(self._epoch)

    def reset(self) -> None:
        """Forget the session: the next request names all partitions."""
        self._session_id, self._epoch = _NO_SESSION, _FIRST_EPOCH
        self._changed.update(self._known)
        self._known.clear()
        self._gone.clear()


def _after(epoch: int) -> int:
    return 1 if epoch == _EPOCH_MAX else epoch + 1


def _by_topic(
    keys: Iterable[PartitionKey], entry_of: Callable[[PartitionKey], FetchPartition]
) -> list[FetchTopic]:
    topics: dict[tuple[bytes, str], FetchTopic] = {}
    for key in keys:
        topic_id, _, name = key
        topic = topics.get((topic_id, name))
        if topic is None:
            topic = FetchTopic(topic=name, topic_id=topic_id, partitions=[])
            topics[topic_id, name] = topic
        topic.partitions.append(entry_of(key))
    return list(topics.values())


def _forgotten(keys: Iterable[PartitionKey]) -> list[ForgottenTopic]:
    topics: dict[tuple[bytes, str], ForgottenTopic] = {}
    for topic_id, partition, name in keys:
        topic = topics.get((topic_id, name))
        if topic is None:
            topic = ForgottenTopic(topic=name, topic_id=topic_id, partitions=[])
            topics[topic_id, name] = topic
        topic.partitions.append(partition)
    return list(topics.values())
