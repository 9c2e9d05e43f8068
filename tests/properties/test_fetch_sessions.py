"""A client in a fetch session always has the same state as a client with full fetches."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.data.fetch_sessions import NO_SESSION, FetchedPartition, FetchSessions
from ottla.replication.partition import Fetched, Traffic
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.log_slice import LogSlice
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

PARTITIONS = range(5)
DISK = SimulatedDisk()
DISK.make_directory("/logs")
FILE = DISK.create_file("/logs/segment")

steps = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 3)),  # appended records
        st.sets(st.sampled_from(PARTITIONS)),  # named partitions, new or repeated
        st.sets(st.sampled_from(PARTITIONS)),  # forgotten partitions
    ),
    max_size=20,
)


class Dice:
    def below(self, limit: int) -> int:
        return 41

    def uuid(self) -> bytes:
        raise AssertionError("a session draws numbers, no ids")


def found(partition: FetchedPartition, ends: dict[int, int]) -> Fetched:
    """Read all records: a byte for each."""
    wanted = partition.wanted
    end = ends[wanted.partition]
    return Fetched(LogSlice(FILE, 0, end - wanted.fetch_offset), end, end, 0, Traffic())


@given(steps)
def test_what_a_session_leaves_out_is_what_its_client_knows(
    steps: list[tuple[dict[int, int], set[int], set[int]]],
) -> None:
    sessions = FetchSessions(Dice(), 1)
    ends = dict.fromkeys(PARTITIONS, 0)
    known: dict[int, int] = {}  # per fetched partition, the last end offset the client received
    position: dict[int, int] = {}  # the session's fetch offsets
    session_id, epoch = NO_SESSION, 0
    for appended, named, forgotten in steps:
        for index, count in appended.items():
            ends[index] += count
        known = {index: known.get(index, -1) for index in (known.keys() | named) - forgotten}
        wanted = [
            FetchPartition(partition=index, fetch_offset=max(end, 0))
            for index, end in known.items()
            if session_id == NO_SESSION or index in named or end != position.get(index)
        ]
        position = {index: max(end, 0) for index, end in known.items()}
        request = FetchRequest(
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic="letters", partitions=wanted)],
            forgotten_topics_data=[ForgottenTopic(topic="letters", partitions=list(forgotten))],
        )
        fetching = sessions.begin(request, by_id=False, is_privileged=False, now_ms=0)
        read_from = {p.wanted.partition: p.wanted.fetch_offset for p in fetching.partitions}
        assert read_from == position
        answer = fetching.conclude([(p, found(p, ends)) for p in fetching.partitions])
        for partition, told in answer.reads:
            assert isinstance(told, Fetched)
            known[partition.wanted.partition] = told.high_watermark
        assert known == {index: ends[index] for index in known}
        is_kept = answer.session_id != NO_SESSION
        session_id, epoch = answer.session_id, epoch + 1 if is_kept else 0
        assert sessions.partition_count == (len(known) if is_kept else 0)
