"""A real ZooKeeper on loopback, of the jars that come with PySpark, for tests that have Java."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TICK_MS = 200
"""Sessions last between two and twenty of these."""
START_SECONDS_MAX = 60
_JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_OPTIONS = ["-Dzookeeper.admin.enableServer=false", "-Dzookeeper.4lw.commands.whitelist=ruok"]


def jars() -> Path | None:
    """Return the folder of PySpark's jars; ZOOKEEPER_JARS can name another one."""
    named = os.environ.get("ZOOKEEPER_JARS")
    if named:
        return Path(named)
    spec = importlib.util.find_spec("pyspark")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "jars"


def why_not() -> str:
    """Return what is missing for a real ZooKeeper; nothing if it can be started."""
    folder = jars()
    if shutil.which("java") is None:
        return "there is no Java here"
    if folder is None or not list(folder.glob("zookeeper-*.jar")):
        return (
            "there are no jars of ZooKeeper: PySpark has them (pip install pyspark),"
            " or name a folder in ZOOKEEPER_JARS"
        )
    return ""


class ZooKeeperServer:
    """A server that runs."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        self._process = process
        self.port = port
        self.hosts = f"127.0.0.1:{port}"

    def freeze(self) -> None:
        """Let it answer nobody."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # until it has stopped indeed

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def is_up(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connected:
                connected.sendall(b"ruok")
                return connected.recv(4) == b"imok"
        except OSError:
            return False


@contextmanager
def running(folder: Path) -> Iterator[ZooKeeperServer]:
    """Run a server with its data in a folder."""
    java, port = shutil.which("java"), _free_port()
    assert java is not None
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    command = [java, *_JVM, *_OPTIONS, "-cp", f"{jars()}/*", main]
    with (folder / "zookeeper.out").open("wb") as output:
        process = subprocess.Popen(
            [*command, str(port), str(folder / "data"), str(TICK_MS)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        server = ZooKeeperServer(process, port)
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while not server.is_up():
                assert process.poll() is None, (folder / "zookeeper.out").read_text()
                assert time.monotonic() < deadline, "ZooKeeper does not start"
                time.sleep(0.05)
            yield server
        finally:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])
