"""Apache Kafka on loopback, which tests start, stop and kill.

Its jars are not in the repository: `make interop` fetches them by name, into an ignored directory.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

JARS = Path(__file__).parents[2] / ".interop" / "libs"
CLUSTER_ID = "b3R0bGEtYW5kLWthZmthIQ"

START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 60
TOOL_SECONDS_MAX = 120

SMALL_JVM: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Starts fast and uses little memory; a long-running process is faster with other options."""
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}/logs
metadata.log.dir={directory}/metadata
auto.create.topics.enable=false
log.retention.ms=-1
log.initial.task.delay.ms=200
log.cleaner.backoff.ms=200
log.cleaner.dedupe.buffer.size=2097152
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
# Kafka logs irregularities found while loading a log, and the fate of markers, at INFO. The tests
# check these lines.
_LOGGING = """\
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%p %c{1}: %m%n%throwable
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
logger.storage.name=org.apache.kafka.storage.internals.log
logger.storage.level=INFO
logger.manager.name=kafka.log
logger.manager.level=INFO
logger.transactions.name=kafka.coordinator.transaction
logger.transactions.level=INFO
"""


def java_command(
    main_class: str,
    *arguments: str,
    options: tuple[str, ...] = (),
    jvm: tuple[str, ...] = SMALL_JVM,
    classes: Path | None = None,
) -> list[str]:
    """Return the command that runs a Kafka class; `classes` is a directory with more classes."""
    java = shutil.which("java")
    assert java is not None, "there is no Java here"
    assert JARS.is_dir(), f"Kafka's jars are not in {JARS}: `make interop` puts them there"
    path = f"{JARS}/*" if classes is None else f"{JARS}/*:{classes}"
    return [java, *jvm, *options, "-cp", path, main_class, *arguments]


def run_tool(
    main_class: str, *arguments: str, classes: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools to its end."""
    return subprocess.run(
        java_command(main_class, *arguments, classes=classes),
        check=False,
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS_MAX,
    )


class KafkaServer:
    """A Kafka process with its files below a directory: a broker, a controller, or both."""

    def __init__(
        self,
        directory: Path,
        properties: str,
        jvm: tuple[str, ...] = SMALL_JVM,
        *,
        classes: Path | None = None,
    ) -> None:
        """`classes` is a directory with plug-ins."""
        self.directory = directory
        self.properties = directory / "server.properties"
        self._jvm = jvm
        self._classes = classes
        self._process: subprocess.Popen[bytes] | None = None
        self._output = directory / "output.txt"
        self._logging = directory / "log4j2.properties"
        directory.mkdir(parents=True, exist_ok=True)
        self.properties.write_text(properties)
        self._logging.write_text(_LOGGING)

    @property
    def output(self) -> str:
        """The output since the last start."""
        return self._output.read_text()

    def format(self, *words: str) -> None:
        """Format its directories with `kafka-storage`."""
        arguments = ("format", "-t", CLUSTER_ID, "-c", str(self.properties), *words)
        done = run_tool("kafka.tools.StorageTool", *arguments, classes=self._classes)
        assert done.returncode == 0, done.stdout + done.stderr

    def launch(self) -> int:
        """Start the process, without waiting until it is ready, and return its id."""
        assert self._process is None, "it runs already"
        options = (f"-Dlog4j2.configurationFile={self._logging}",)
        command = java_command(
            "kafka.Kafka",
            str(self.properties),
            options=options,
            jvm=self._jvm,
            classes=self._classes,
        )
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        return self._process.pid

    def await_listener(self, port: int) -> None:
        """Wait until the process listens on a port."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            self.check_runs()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.2)
        raise AssertionError(f"nothing on port {port} in {START_SECONDS_MAX} s: {self.output}")

    def await_broker(self, port: int) -> None:
        """Wait until the broker on a port answers with metadata."""
        self.await_listener(port)
        deadline = time.monotonic() + START_SECONDS_MAX
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
        while time.monotonic() < deadline:
            try:
                if client.list_topics(timeout=5).brokers:
                    return
            except KafkaException:
                self.check_runs()
        raise AssertionError(f"no answer in {START_SECONDS_MAX} s: {self.output}")

    def check_runs(self) -> None:
        """Fail with the output if the process has ended."""
        assert self._process is not None, "it does not run"
        assert self._process.poll() is None, self.output

    def stop(self) -> None:
        """Shut it down cleanly, with every log closed."""
        process, self._process = self._process, None
        assert process is not None, "it does not run"
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        finally:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """End it without warning, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


class KafkaNode(KafkaServer):
    """A combined broker and controller, with its log dirs below a directory."""

    def __init__(
        self,
        directory: Path,
        jvm: tuple[str, ...] = SMALL_JVM,
        settings: Mapping[str, str] = NO_SETTINGS,
        *,
        without: str = "",
        disabled: tuple[str, ...] = (),
        classes: Path | None = None,
    ) -> None:
        self.logs = directory / "logs"
        self.port, controller_port = free_ports(2)
        text = _PROPERTIES.format(
            directory=directory, port=self.port, controller_port=controller_port
        )
        lines = text.splitlines(keepends=True)
        text = "".join(line for line in lines if line.partition("=")[0] != without)
        text += "".join(f"{name}={value}\n" for name, value in settings.items())
        super().__init__(directory, text, jvm, classes=classes)
        features = (word for name in disabled for word in ("--feature", f"{name}=0"))
        self.format("--standalone", *features)

    @property
    def bootstrap_server(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start the process and wait until it responds."""
        self.launch()
        self.await_broker(self.port)
        return self


@contextmanager
def kafka_node(
    directory: Path,
    jvm: tuple[str, ...] = SMALL_JVM,
    settings: Mapping[str, str] = NO_SETTINGS,
    *,
    without: str = "",
    disabled: tuple[str, ...] = (),
    classes: Path | None = None,
) -> Iterator[KafkaNode]:
    """Yield a formatted node that is not started yet; kill it at the end if it still runs.

    `without` names a default setting to leave out; `disabled` names features to set to level 0;
    `classes` is a directory with plug-ins.
    """
    node = KafkaNode(directory, jvm, settings, without=without, disabled=disabled, classes=classes)
    try:
        yield node
    finally:
        node.kill()


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
