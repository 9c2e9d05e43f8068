"""Large requests on the broker's port: refused, or handled in slices, with bounded memory.

`python -m benchmarks hostile` measures the effect on other clients.
"""

import re
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ottla.broker.requests.request_limits import limits_of
from ottla.model.topic_names import CONSUMER_OFFSETS_TOPIC
from ottla.wire.api_key import ApiKey
from ottla.wire.apis import API_BY_KEY
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.clients import attacks
from tests.clients.attacks import SECONDS_MAX, crowd, flood, frame_of, largest_request
from tests.clients.raw_requests import RawConnection
from tests.clients.test_hostile_process import Process

MEMORY_BYTES_MAX = 512 << 20
LAG_SECONDS_MAX = 6.0
"""Far above the measured lag, since the machine may be busy. Without limits it was 12 to 24."""
FLOOD_ANSWERS = 20
MakeFrame = Callable[[], bytes]
CHANGING = frozenset({ApiKey.UNREGISTER_BROKER, ApiKey.CONTROLLER_REGISTRATION})


class WatchedProcess(Process):
    """A broker with a watch on its event loop and its memory."""

    settings = ("-X", "max.connections.per.ip=20000", "-X", "max.connections=20000")

    @property
    def servers(self) -> str:
        return "{}:{}".format(*self.address)

    def lag_seconds(self) -> float:
        """Return how late the loop came at most in the last minutes."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/metrics") as response:
            text = response.read().decode()
        found = re.search(r"^ottla_loop_lag_seconds_max\S* (\S+)", text, re.MULTILINE)
        assert found is not None
        return float(found[1])


@pytest.fixture
def process(tmp_path: Path) -> Iterator[WatchedProcess]:
    """Start a broker for each attack: the limit of memory is that of one attack."""
    running = WatchedProcess(tmp_path)
    with RawConnection(running.servers) as connection:
        for name in (attacks.TOPIC, "crowded", CONSUMER_OFFSETS_TOPIC):
            make_topic(connection, name)
    yield running
    running.stop()


@pytest.fixture
def calm(process: WatchedProcess) -> Iterator[WatchedProcess]:
    """The broker; fails the test if its event loop is blocked or its memory exceeds the limit."""
    peak = 0
    is_over = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_over.wait(0.05):
            peak = max(peak, process.memory_bytes())

    watching = threading.Thread(target=watch)
    watching.start()
    yield process
    assert process.serves()
    is_over.set()
    watching.join()
    assert peak < MEMORY_BYTES_MAX
    assert process.lag_seconds() < LAG_SECONDS_MAX


def make_topic(connection: RawConnection, name: str) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    while connection.ask(ApiKey.METADATA, 9, request).topics[0].error_code:
        time.sleep(0.05)


def answer_bytes(process: WatchedProcess, frame: bytes) -> int | None:
    """Send a frame, and return the size of the response; None if the broker disconnects."""
    with socket.create_connection(process.address, timeout=SECONDS_MAX) as client:
        try:
            client.sendall(frame)
            head = client.recv(4, socket.MSG_WAITALL)
        except OSError:
            return None
        if len(head) < 4:
            return None
        (size_bytes,) = struct.unpack(">i", head)
        left = size_bytes
        while left:
            left -= len(client.recv(min(left, 1 << 20)))
        return int(size_bytes)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(partial(attacks.list_offsets, 2_000_000), id="34-megabytes-of-partitions"),
        pytest.param(partial(attacks.list_offsets, 300_000), id="300000-partitions"),
        pytest.param(partial(attacks.metadata, 1_000_000), id="a-million-topics"),
        pytest.param(partial(attacks.offset_fetch, 1_000_000), id="a-million-numbers"),
        pytest.param(partial(attacks.produce, 300_000), id="300000-times-no-records"),
        pytest.param(partial(attacks.fetch, 300_000), id="300000-fetched-partitions"),
        pytest.param(partial(attacks.tagged_list_offsets, 1, 300_000), id="300000-tagged-fields"),
        pytest.param(
            partial(attacks.tagged_list_offsets, 10_000, 60), id="tagged-fields-of-each-partition"
        ),
    ],
)
def test_a_request_beyond_its_limit_ends_the_connection(
    make: MakeFrame, calm: WatchedProcess
) -> None:
    with crowd(calm.address, 8) as sockets:
        assert flood(sockets, make(), is_over=lambda: False) == 8


@pytest.mark.parametrize("key", [ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.OFFSET_FETCH])
def test_100_000_partitions_in_one_request_are_answered(key: ApiKey, calm: WatchedProcess) -> None:
    attack = {
        ApiKey.LIST_OFFSETS: attacks.list_offsets,
        ApiKey.METADATA: attacks.metadata,
        ApiKey.OFFSET_FETCH: attacks.offset_fetch,
    }
    size_bytes = answer_bytes(calm, attack[key](100_000))
    assert size_bytes is not None
    assert size_bytes > 1_000_000


def test_the_largest_request_of_every_api_delays_no_client(calm: WatchedProcess) -> None:
    with RawConnection(calm.servers) as connection:
        asked = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        offered = connection.ask(ApiKey.API_VERSIONS, 3, asked).api_keys
    answered = 0
    for row in offered:
        key, items = ApiKey(row.api_key), limits_of(row.api_key).items_max - 10
        if key in CHANGING or largest_request(key, 1) is None:
            continue
        while items > 100:  # those with small items end at the limit of memory before
            request = largest_request(key, items)
            assert request is not None
            if answer_bytes(calm, frame_of(key, row.max_version, request)) is not None:
                answered += 1
                break
            items //= 2
    assert answered > len(API_BY_KEY) // 3


@pytest.mark.parametrize(
    ("make", "connections", "pipelined"),
    [
        pytest.param(partial(attacks.list_offsets, 249_000), 8, 1, id="long-lists"),
        pytest.param(partial(attacks.offset_commit, 19_900), 8, 1, id="large-commits"),
        pytest.param(
            partial(attacks.list_offsets, 1_000),
            50,
            32,
            id="pipelined-lists",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(partial(attacks.fetch, 240), 50, 32, id="pipelined-fetches"),
    ],
)
def test_a_flood_of_allowed_requests_leaves_the_loop_to_others(
    make: MakeFrame, connections: int, pipelined: int, calm: WatchedProcess
) -> None:
    frame = make()
    with RawConnection(calm.servers) as other, crowd(calm.address, connections) as sockets:
        # Without its topic, a coordinator refuses all commits and has no work with them.
        lookup = FindCoordinatorRequest(key=attacks.GROUP)
        while other.ask(ApiKey.FIND_COORDINATOR, 3, lookup).error_code:
            pass
        questions = 0

        def ask() -> bool:
            nonlocal questions
            make_topic(other, attacks.TOPIC)
            questions += 1
            return questions == FLOOD_ANSWERS

        assert flood(sockets, frame, is_over=ask, pipelined=pipelined) == 0


def test_clients_that_never_read_long_answers_are_hung_up_on(calm: WatchedProcess) -> None:
    frame = attacks.list_offsets(100_000)
    with crowd(calm.address, 40, receive_bytes=4096) as sockets:
        # Until the queued responses use too much memory. Without that limit, an unread response is
        # dropped after a minute.
        assert flood(sockets, frame, is_over=lambda: False, reads=False, lost_max=1) >= 1


def test_48_000_waiting_fetches_are_woken_some_at_a_time(calm: WatchedProcess) -> None:
    frames = attacks.fetch(1, wait_ms=60_000) * attacks.WAITING_EACH
    with (
        RawConnection(calm.servers) as other,
        crowd(calm.address, attacks.WAITING_CONNECTIONS) as sockets,
    ):
        for one in sockets:
            one.sendall(frames)
        for _ in range(FLOOD_ANSWERS):
            make_topic(other, attacks.TOPIC)
        wake_all(other, "crowded")
        (size,) = struct.unpack(">i", sockets[-1].recv(4, socket.MSG_WAITALL))
        assert size > 0


def wake_all(connection: RawConnection, topic: str) -> None:
    """Delete a topic with waiting requests: each of them gets a response."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=60_000)
    assert connection.ask(ApiKey.DELETE_TOPICS, 6, request).responses[0].error_code == 0


def test_a_refused_request_leaves_a_line_with_its_limit(tmp_path: Path) -> None:
    log = tmp_path / "stderr"
    with log.open("wb") as stderr:
        running = Process(tmp_path, stderr=stderr)
        with crowd(running.address, 1) as sockets:
            flood(sockets, attacks.list_offsets(2_000_000), is_over=lambda: False)
        running.stop()
    lines = [line for line in log.read_text().splitlines() if "the limit is" in line]
    assert len(lines) == 1
    assert "34000036 bytes: the limit is 16777216" in lines[0]
