"""A broker with a blocked event loop, and all other threads running, loses its leaderships."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import ottla
from ottla.broker.startup.assembly import Broker
from ottla.broker.startup.system_environment import this_machine
from ottla.model.error_code import ErrorCode
from ottla.model.settings.broker_config import BrokerConfig
from ottla.testing.cluster import Cluster
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import RequestHeader
from tests.clients.cli_calls import call
from tests.clients.plain_socket import batch, produce_request
from tests.clients.raw_requests import RawConnection
from tests.cluster.load import say
from tests.cluster.modes import IN_BOTH_MODES
from tests.cluster.watching import Watcher, settings_of

HUNG = 9
PRODUCE_VERSION = 9


class BrokerInThread:
    """A broker in a thread of this process, so that a test can block its event loop."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        settings = {
            **settings_of(zookeeper=not cluster.has_quorum),
            "node.id": str(HUNG),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "ottla.admin.listener": "",
            "ottla.schema.registry.listener": "",
            "log.dirs": str(folder),
        }
        if cluster.has_quorum:
            del settings["controller.quorum.auto.join.enable"]  # It is a setting of controllers.
            settings |= in_quorum(cluster, settings)
        else:
            settings["zookeeper.connect"] = cluster.zookeeper_connect
        self._config = BrokerConfig.parse(settings)
        self._is_up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.released = threading.Event()
        self.port = 0

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        broker = await Broker.start(self._config, this_machine())
        self.port = broker.endpoints.advertised("PLAINTEXT").port
        self._is_up.set()
        await broker.serve_until(self._stopping)
        await broker.stop()

    def start(self) -> None:
        self._thread.start()
        assert self._is_up.wait(60)

    def hang(self) -> None:
        """Block the event loop until `released` is set, without holding the GIL."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.released.wait)

    def stop(self) -> None:
        assert self._loop is not None
        assert self._stopping is not None
        self.released.set()
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()


def in_quorum(cluster: Cluster, settings: Mapping[str, str]) -> dict[str, str]:
    """Format a broker's directory for the cluster, and return its settings of the quorum."""
    with ottla.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        cluster_id = admin.cluster.describe().cluster_id
        voters = admin.cluster.quorum().endpoints_by_voter.values()
    of_quorum = {
        "process.roles": "broker",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(
            f"{one.host}:{one.port}" for endpoints in voters for one in endpoints
        ),
    }
    every = {**settings, **of_quorum}
    options = [word for name, text in every.items() for word in ("-X", f"{name}={text}")]
    call("storage", "format", "--cluster-id", cluster_id, *options)
    return of_quorum


@contextmanager
def broker_in_thread(cluster: Cluster, folder: Path) -> Iterator[BrokerInThread]:
    running = BrokerInThread(cluster, folder)
    running.start()
    try:
        yield running
    finally:
        running.stop()


@IN_BOTH_MODES
def test_another_broker_leads_while_the_loop_of_the_leader_hangs(
    cluster: Cluster, watcher: Watcher, tmp_path: Path
) -> None:
    name = "led-by-a-hung-broker"
    with (
        broker_in_thread(cluster, tmp_path / "hung") as broker,
        RawConnection(f"127.0.0.1:{broker.port}") as client,
    ):
        watcher.create_topic(name, [[HUNG, 1, 2]])
        watcher.wait_until(lambda: produced(client, name) == ErrorCode.NONE)
        broker.hang()
        ask_to_append(client, name)
        seconds = watcher.wait_until(lambda: watcher.leader(name) in {1, 2})
        say(f"led by another broker after {seconds:.2f} s")
        broker.released.set()
        assert answered(client) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        watcher.wait_until(lambda: watcher.in_sync(name) == {HUNG, 1, 2})
        # It rejoins in a new session, and has the new leader's records.
        watcher.delete_topics()


def produced(client: RawConnection, topic: str) -> int:
    ask_to_append(client, topic)
    return answered(client)


def ask_to_append(client: RawConnection, topic: str) -> None:
    """Send a Produce request with acks=1: only the leader has to acknowledge it."""
    header = RequestHeader(ApiKey.PRODUCE, PRODUCE_VERSION, 1, "client")
    request = produce_request(topic, batch(b"x"), acks=1)
    client.send_frames(b"".join(encode_request(header, request)))


def answered(client: RawConnection) -> int:
    frame = memoryview(client.receive_frame())
    response = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, frame)[1]
    code: int = response.responses[0].partition_responses[0].error_code  # type: ignore[attr-defined]
    return code
