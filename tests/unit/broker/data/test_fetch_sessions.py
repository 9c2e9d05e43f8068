import pytest

from ottla.broker.data.fetch_sessions import EVICTION_MS, NO_SESSION, Answer, FetchSessions, Read
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.replication.partition import Fetched, Traffic
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.log_slice import LogSlice
from ottla.storage.log.leader_epochs import EpochEnd
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

TOPIC_ID = b"sixteen bytes id"
DISK = SimulatedDisk()
DISK.make_directory("/logs")
FILE = DISK.create_file("/logs/segment")
UNKNOWN = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class CountingDice:
    """Consecutive ids, which tests can predict."""

    def __init__(self) -> None:
        self.rolled = 0

    def below(self, limit: int) -> int:
        self.rolled += 1
        return self.rolled - 1

    def uuid(self) -> bytes:
        raise AssertionError("a session draws numbers, no ids")


def found(size_bytes: int = 0, high_watermark: int = 0, log_start_offset: int = 0) -> Fetched:
    records = LogSlice(FILE, 0, size_bytes)
    return Fetched(records, high_watermark, high_watermark, log_start_offset, Traffic())


def fetch(*partitions: int, session_id: int = 0, epoch: int = 0, offset: int = 0) -> FetchRequest:
    wanted = [FetchPartition(partition=index, fetch_offset=offset) for index in partitions]
    topics = [FetchTopic(topic="letters", topic_id=TOPIC_ID, partitions=wanted)] if wanted else []
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics)


class Client:
    """A fetching client; every partition has the same result unless the test sets another."""

    def __init__(self, sessions: FetchSessions, *, by_id: bool = False) -> None:
        self.sessions = sessions
        self.by_id = by_id
        self.found_by_partition: dict[int, Fetched | ApiError] = {}

    def ask(self, request: FetchRequest, *, now_ms: int = 0, is_privileged: bool = False) -> Answer:
        fetching = self.sessions.begin(
            request, by_id=self.by_id, is_privileged=is_privileged, now_ms=now_ms
        )
        return fetching.conclude(
            [
                (partition, self.found_by_partition.get(partition.wanted.partition, found()))
                for partition in fetching.partitions
            ]
        )


def numbers(reads: list[Read]) -> list[int]:
    return [partition.wanted.partition for partition, _ in reads]


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(CountingDice(), 2)


@pytest.fixture
def client(sessions: FetchSessions) -> Client:
    return Client(sessions)


def test_a_fetch_of_epoch_minus_one_begins_no_session(client: Client) -> None:
    answer = client.ask(fetch(0, 1, epoch=-1))
    assert answer.session_id == NO_SESSION
    assert numbers(answer.reads) == [0, 1]
    assert len(client.sessions) == 0


def test_a_full_fetch_begins_a_session_and_is_told_everything(client: Client) -> None:
    answer = client.ask(fetch(0, 1))
    assert answer.session_id != NO_SESSION
    assert numbers(answer.reads) == [0, 1]
    assert len(client.sessions) == 1
    assert client.sessions.partition_count == 2


def test_a_session_gets_only_changed_partitions(client: Client) -> None:
    session_id = client.ask(fetch(0, 1, 2, 3, 4)).session_id
    client.found_by_partition = {
        1: found(size_bytes=10),
        2: found(high_watermark=7),
        3: found(log_start_offset=3),
        4: UNKNOWN,
    }
    answer = client.ask(fetch(session_id=session_id, epoch=1))
    assert numbers(answer.reads) == [1, 2, 3, 4]
    assert answer.session_id == session_id
    client.found_by_partition[1] = found()
    answer = client.ask(fetch(session_id=session_id, epoch=2))
    assert numbers(answer.reads) == [4], "an error is told every time, everything else once"
    client.found_by_partition[4] = found()
    assert numbers(client.ask(fetch(session_id=session_id, epoch=3)).reads) == [4]
    assert numbers(client.ask(fetch(session_id=session_id, epoch=4)).reads) == []


def test_a_diverging_epoch_is_told_every_time(client: Client) -> None:
    session_id = client.ask(fetch(0)).session_id
    client.found_by_partition[0] = found()._replace(diverging=EpochEnd(1, 5))
    for epoch in (1, 2):
        assert numbers(client.ask(fetch(session_id=session_id, epoch=epoch)).reads) == [0]


def test_a_partition_that_gave_records_is_read_last_next_time(client: Client) -> None:
    session_id = client.ask(fetch(0, 1, 2)).session_id
    client.found_by_partition = {index: found(size_bytes=10) for index in (0, 2)}
    assert numbers(client.ask(fetch(session_id=session_id, epoch=1)).reads) == [0, 2]
    client.found_by_partition = {index: found(size_bytes=10) for index in range(3)}
    assert numbers(client.ask(fetch(session_id=session_id, epoch=2)).reads) == [1, 0, 2]


def test_partitions_change_come_and_are_forgotten(client: Client) -> None:
    session_id = client.ask(fetch(0, 1)).session_id
    request = fetch(1, 2, session_id=session_id, epoch=1, offset=9)
    request.forgotten_topics_data = [ForgottenTopic(topic="letters", partitions=[0, 77])]
    client.found_by_partition = {index: found(size_bytes=10) for index in range(3)}
    answer = client.ask(request)
    assert numbers(answer.reads) == [1, 2]
    assert [partition.wanted.fetch_offset for partition, _ in answer.reads] == [9, 9]
    assert client.sessions.partition_count == 2


def test_a_session_that_has_nothing_left_ends(client: Client) -> None:
    session_id = client.ask(fetch(0)).session_id
    request = fetch(session_id=session_id, epoch=1)
    request.forgotten_topics_data = [ForgottenTopic(topic="letters", partitions=[0])]
    assert client.ask(request) == (NO_SESSION, [])
    assert len(client.sessions) == client.sessions.partition_count == 0


def code_of(client: Client, request: FetchRequest) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        client.ask(request)
    return refused.value.code


def test_a_session_that_is_not_there_is_not_found(client: Client) -> None:
    assert code_of(client, fetch(session_id=9, epoch=1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, -2, 1 << 30])
def test_another_epoch_is_refused_and_the_session_goes_on(client: Client, epoch: int) -> None:
    session_id = client.ask(fetch(0)).session_id
    wrong = fetch(session_id=session_id, epoch=epoch)
    assert code_of(client, wrong) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert client.ask(fetch(session_id=session_id, epoch=1)).session_id == session_id


def test_names_and_ids_are_not_mixed_in_one_session(sessions: FetchSessions) -> None:
    session_id = Client(sessions).ask(fetch(0)).session_id
    other = Client(sessions, by_id=True)
    code = code_of(other, fetch(session_id=session_id, epoch=1))
    assert code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_by_id_forgets_by_id(sessions: FetchSessions) -> None:
    client = Client(sessions, by_id=True)
    session_id = client.ask(fetch(0, 1)).session_id
    client.found_by_partition = {index: found(size_bytes=1) for index in (0, 1)}
    request = fetch(session_id=session_id, epoch=1)
    request.forgotten_topics_data = [ForgottenTopic(topic_id=TOPIC_ID, partitions=[1])]
    assert numbers(client.ask(request).reads) == [0]


def test_a_request_overtaken_by_its_successor_is_refused(client: Client) -> None:
    session_id = client.ask(fetch(0)).session_id
    first = client.sessions.begin(
        fetch(session_id=session_id, epoch=1), by_id=False, is_privileged=False, now_ms=0
    )
    client.ask(fetch(session_id=session_id, epoch=2))
    with pytest.raises(ApiError, match="INVALID_FETCH_SESSION_EPOCH"):
        first.conclude([])


def test_after_the_last_epoch_comes_the_first(client: Client) -> None:
    session_id = client.ask(fetch(0)).session_id
    last = 2**31 - 1
    client.sessions._sessions[session_id].epoch = last
    client.ask(fetch(session_id=session_id, epoch=last))
    assert client.ask(fetch(session_id=session_id, epoch=1)).session_id == session_id


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_ends_the_session_that_it_names(client: Client, epoch: int) -> None:
    session_id = client.ask(fetch(0)).session_id
    client.ask(fetch(0, session_id=session_id, epoch=epoch))
    again = fetch(session_id=session_id, epoch=1)
    assert code_of(client, again) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_without_slots_there_are_no_sessions() -> None:
    client = Client(FetchSessions(CountingDice(), 0))
    assert client.ask(fetch(0)).session_id == NO_SESSION


def test_a_young_session_keeps_its_slot_and_the_newcomer_gets_none(client: Client) -> None:
    first, second = (client.ask(fetch(0)).session_id for _ in range(2))
    assert client.ask(fetch(0, 1, 2)).session_id == NO_SESSION
    for session_id in (first, second):
        client.ask(fetch(session_id=session_id, epoch=1))


def test_the_session_that_is_idle_longest_goes_when_that_is_long_enough(client: Client) -> None:
    idle = client.ask(fetch(0, 1, 2)).session_id
    used = client.ask(fetch(0)).session_id
    client.ask(fetch(session_id=used, epoch=1), now_ms=1000)
    assert client.ask(fetch(0), now_ms=EVICTION_MS + 1).session_id != NO_SESSION
    gone = fetch(session_id=idle, epoch=1)
    assert code_of(client, gone) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.sessions.eviction_count == 1
    assert client.sessions.partition_count == 2


def test_a_larger_session_takes_the_slot_of_a_smaller_old_one(client: Client) -> None:
    small, large = client.ask(fetch(0)).session_id, client.ask(fetch(0, 1)).session_id
    for session_id in (small, large):
        client.ask(fetch(session_id=session_id, epoch=1), now_ms=EVICTION_MS + 1)
    now_ms = EVICTION_MS + 2
    assert client.ask(fetch(5), now_ms=now_ms).session_id == NO_SESSION, "it is no larger"
    assert client.ask(fetch(5, 6), now_ms=now_ms).session_id != NO_SESSION
    gone = fetch(session_id=small, epoch=2)
    assert code_of(client, gone) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    client.ask(fetch(session_id=large, epoch=2), now_ms=now_ms)


def test_a_follower_takes_the_slot_of_a_client_and_not_of_a_follower(client: Client) -> None:
    client.ask(fetch(0, 1, 2))
    client.ask(fetch(0, 1, 2))
    followers = [client.ask(fetch(0), is_privileged=True).session_id for _ in range(2)]
    assert NO_SESSION not in followers
    assert client.ask(fetch(0), is_privileged=True).session_id == NO_SESSION
    assert client.ask(fetch(*range(9)), now_ms=1).session_id == NO_SESSION
    for session_id in followers:
        client.ask(fetch(session_id=session_id, epoch=1))


def test_the_partitions_of_all_sessions_are_limited() -> None:
    client = Client(FetchSessions(CountingDice(), 10, partitions_max=4))
    session_id = client.ask(fetch(0, 1, 2)).session_id
    assert client.ask(fetch(0, 1)).session_id == NO_SESSION
    client.ask(fetch(3, session_id=session_id, epoch=1))
    grown = fetch(4, session_id=session_id, epoch=2)
    assert code_of(client, grown) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.sessions.partition_count == len(client.sessions) == 0


def test_a_partition_that_is_named_twice_is_fetched_once(client: Client) -> None:
    request = fetch(0, 0, epoch=-1)
    request.topics[0].partitions[1].fetch_offset = 8
    (read,) = client.ask(request).reads
    assert read[0].wanted.fetch_offset == 8
