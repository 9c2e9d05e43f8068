"""`ottla.testing.Broker`: several at once, forks, restarts, and no leftovers."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.model.settings.settings import InvalidSettingsError
from ottla.storage.files.checkpoints import CLEAN_SHUTDOWN_FILE
from ottla.testing import Broker

SECONDS_MAX = 240


def produce(broker: Broker, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("letters", value)
    assert producer.flush(SECONDS_MAX) == 0


def values(broker: Broker, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})
    consumer.assign([TopicPartition("letters", 0, 0)])
    found = consumer.consume(count, SECONDS_MAX)
    consumer.close()
    return [message.value() for message in found]


def test_brokers_live_beside_each_other_and_know_nothing_of_it() -> None:
    with Broker() as one, Broker() as two:
        assert one.port != two.port
        produce(one, b"one")
        produce(two, b"two")
        assert (values(one, 1), values(two, 1)) == ([b"one"], [b"two"])


def test_brokers_can_be_started_from_many_threads_at_once() -> None:
    ports: list[int] = []

    def run() -> None:
        with Broker() as broker:
            ports.append(broker.port)
            barrier.wait(SECONDS_MAX)

    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ports)) == 4


def test_a_restart_keeps_the_port_and_the_data() -> None:
    with Broker() as broker:
        port = broker.port
        produce(broker, b"before")
        broker.restart()
        assert broker.port == port
        produce(broker, b"after")
        assert values(broker, 2) == [b"before", b"after"]


def test_a_folder_of_ones_own_is_used_again(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        produce(broker, b"kept")
    with Broker(data_dir=tmp_path) as broker:
        assert values(broker, 1) == [b"kept"]
    assert tmp_path.exists()


def test_nothing_is_left_behind() -> None:
    before = set(threading.enumerate())
    with Broker() as broker:
        folder = Path(broker.data_dir)
        assert folder.exists()
        port = broker.port
    assert not folder.exists()
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_broker_can_be_started_and_stopped_by_hand() -> None:
    broker = Broker()
    broker.start()
    produce(broker, b"by hand")
    broker.stop()
    broker.stop()
    folder = Path(broker.data_dir)
    del broker
    assert not folder.exists(), "the folder goes with the last who knew it"


def test_a_start_that_fails_raises_its_reason() -> None:
    with pytest.raises(InvalidSettingsError, match=r"num\.partitions"):
        Broker({"num.partitions": "none"}).start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on PLAINTEXT://127.0.0.1:{port}"):
            Broker(port=port).start()
        with pytest.raises(OSError, match=f"cannot listen on ADMIN://127.0.0.1:{port}"):
            Broker({"ottla.admin.listener": f"127.0.0.1:{port}"}).start()


def test_a_start_that_fails_closes_what_it_has_opened(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path)
    with broker:
        produce(broker, b"kept")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listeners = f"A://127.0.0.1:{broker.port},B://127.0.0.1:{port}"
        names = {
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            "inter.broker.listener.name": "A",
        }
        failing = Broker({"listeners": listeners, **names}, data_dir=tmp_path)
        with pytest.raises(OSError, match=f"cannot listen on B://127.0.0.1:{port}") as refusal:
            failing.start()
    assert "\n" not in str(refusal.value)
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists(), "nothing is to be recovered"
    with broker:
        assert values(broker, 1) == [b"kept"]


FORKING = """
import os, socket, sys
from ottla.testing import Broker

with Broker() as broker:
    child = os.fork()
    if child == 0:
        with socket.create_connection(("127.0.0.1", broker.port)) as connection:
            connection.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
            assert connection.recv(4)
        sys.exit(0)  # leaves the block, and runs what is to be run at an exit
    assert os.waitpid(child, 0)[1] == 0
    assert os.path.exists(broker.data_dir)
    broker.restart()
print("done")
"""


def test_a_forked_process_talks_to_the_broker_and_does_not_take_it_along() -> None:
    ran = subprocess.run(
        # Newer Pythons warn of any fork in a process that has threads.
        [sys.executable, "-W", "error", "-W", "ignore:This process", "-c", FORKING],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ},
        check=False,
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("done\n", "", 0)
