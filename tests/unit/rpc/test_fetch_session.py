"""Fetch sessions: after each response, the broker's session has the fetcher's partitions."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from ottla.rpc.fetch_session import FetchSession, PartitionKey
from ottla.wire.messages.fetch import FetchPartition, FetchRequest

IDS = (b"i" * 16, b"o" * 16)
KEYS = [PartitionKey(topic_id, number, "t") for topic_id in IDS for number in range(3)]
ONE, TWO, *_ = KEYS
SESSION_ID = 77
keys = st.sampled_from(KEYS)


def entry(key: PartitionKey) -> FetchPartition:
    return FetchPartition(partition=key.partition)


def named(request: FetchRequest) -> list[PartitionKey]:
    return [
        PartitionKey(topic.topic_id, one.partition, topic.topic)
        for topic in request.topics
        for one in topic.partitions
    ]


def forgotten(request: FetchRequest) -> list[PartitionKey]:
    return [
        PartitionKey(topic.topic_id, number, topic.topic)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]


@dataclass
class Broker:
    """A broker's side of the session."""

    epoch: int = 0
    partitions: set[PartitionKey] = field(default_factory=set)

    def take(self, request: FetchRequest) -> None:
        if request.session_epoch == 0:
            assert (request.session_id, forgotten(request)) == (0, [])
            self.partitions.clear()
        else:
            assert (request.session_id, request.session_epoch) == (SESSION_ID, self.epoch)
        self.epoch = request.session_epoch + 1
        assert not set(named(request)) & set(forgotten(request))
        assert set(forgotten(request)) <= self.partitions, "it has never had them"
        self.partitions |= set(named(request))
        self.partitions -= set(forgotten(request))


operations = st.one_of(
    st.tuples(st.just("put"), keys),
    st.tuples(st.just("remove"), keys),
    st.tuples(st.sampled_from(["fetch", "reset", "no room"]), st.just(ONE)),
    st.tuples(st.just("fetch ahead of"), keys),
)


@given(st.lists(operations, max_size=40))
def test_the_broker_has_the_partitions_of_the_fetcher(work: list[tuple[str, PartitionKey]]) -> None:
    session, broker = FetchSession(), Broker()
    members: set[PartitionKey] = set()

    def fetch() -> FetchRequest:
        request = session.request(entry)
        broker.take(request)
        assert broker.partitions == members
        return request

    for name, key in work:
        if name == "put":
            session.put(key)
            members.add(key)
        elif name == "remove":
            session.remove(key)
            members.discard(key)
        elif name == "reset":
            session.reset()
        else:
            fetch()
            if name == "fetch ahead of" and session.is_open:
                session.put(key)
                members.add(key)
                broker.take(session.request(entry, ahead=[key]))
                assert key in broker.partitions
                session.skip()
            session.accept(0 if name == "no room" else SESSION_ID)
    fetch()
    session.accept(SESSION_ID)
    assert named(fetch()) == []


def test_only_changes_are_named() -> None:
    session = FetchSession()
    session.put(ONE)
    session.put(TWO)
    assert named(session.request(entry)) == [ONE, TWO]
    session.accept(SESSION_ID)
    session.put(TWO)
    session.remove(ONE)
    request = session.request(entry)
    assert (named(request), forgotten(request)) == ([TWO], [ONE])


def test_a_partition_that_returns_before_its_removal_is_sent_is_not_forgotten() -> None:
    session = FetchSession()
    session.put(ONE)
    session.request(entry)
    session.accept(SESSION_ID)
    session.remove(ONE)
    assert session.is_known(ONE)
    session.put(ONE)
    request = session.request(entry)
    assert (named(request), forgotten(request)) == ([ONE], [])


def test_a_fetch_sent_ahead_names_only_its_partitions_in_the_next_epoch() -> None:
    session = FetchSession()
    session.put(ONE)
    first = session.request(entry)
    session.accept(SESSION_ID)
    session.put(ONE)
    session.put(TWO)
    ahead = session.request(entry, ahead=[TWO])
    assert (first.session_epoch, ahead.session_epoch, named(ahead)) == (0, 2, [TWO])
    assert session.changed == [ONE]


def test_the_epoch_after_the_last_one_is_1_because_0_means_a_new_session() -> None:
    session = FetchSession()
    session.accept(SESSION_ID)
    session._epoch = 2**31 - 1
    session.accept(SESSION_ID)
    assert session.request(entry).session_epoch == 1
