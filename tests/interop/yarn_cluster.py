"""YARN on loopback: a resource manager and a node manager, as processes from Hadoop's own jars."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen
from xml.etree.ElementTree import Element, SubElement, tostring

import pyspark

from ottla.pipelines.spark.java import find_java
from tests.interop.kafka_node import SMALL_JVM
from tests.pipelines.sink.processes import kill_tree
from tests.pipelines.sink.reading import wait_for
from tests.pipelines.sink.tripwire import free_port

JARS = Path(__file__).parents[2] / ".interop" / "yarn"
SPARK_JARS = Path(pyspark.__file__).parent / "jars"
_SERVER = "org.apache.hadoop.yarn.server"
_SCHEDULERS = f"{_SERVER}.resourcemanager.scheduler"
_ADDRESSES = {
    "yarn.resourcemanager.address",
    "yarn.resourcemanager.admin.address",
    "yarn.resourcemanager.resource-tracker.address",
    "yarn.resourcemanager.scheduler.address",
    "yarn.resourcemanager.webapp.address",
}
_SETTINGS = {
    "yarn.nodemanager.address": "127.0.0.1:0",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.hostname": "127.0.0.1",
    "yarn.nodemanager.localizer.address": "127.0.0.1:0",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.nodemanager.resource.memory-mb": "6144",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.webapp.address": "127.0.0.1:0",
    "yarn.resourcemanager.hostname": "127.0.0.1",
    "yarn.resourcemanager.scheduler.class": f"{_SCHEDULERS}.fifo.FifoScheduler",
    "yarn.scheduler.minimum-allocation-mb": "256",
}


@contextmanager
def yarn_cluster(folder: Path) -> Iterator[Path]:
    """Run YARN below a directory; give the directory of its settings, HADOOP_CONF_DIR."""
    assert JARS.is_dir(), f"YARN is not in {JARS}: `make interop` puts it there"
    settings = folder / "conf"
    settings.mkdir(parents=True)
    addresses = {name: f"127.0.0.1:{free_port()}" for name in _ADDRESSES}
    folders = {
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "logs"),
    }
    _write(settings / "yarn-site.xml", _SETTINGS | addresses | folders)
    _write(settings / "core-site.xml", {"hadoop.tmp.dir": str(folder / "tmp")})
    with ExitStack() as processes:
        for program in ("resourcemanager.ResourceManager", "nodemanager.NodeManager"):
            processes.enter_context(_running(program, folder, settings))
        nodes = f"http://{addresses['yarn.resourcemanager.webapp.address']}/ws/v1/cluster/nodes"
        wait_for(lambda: _has_nodes(nodes), "a node of YARN")
        yield settings


@contextmanager
def _running(program: str, folder: Path, settings: Path) -> Iterator[None]:
    logging = [*SPARK_JARS.glob("log4j-*.jar"), *SPARK_JARS.glob("slf4j-api-*.jar")]
    class_path = os.pathsep.join(map(str, [settings, *JARS.glob("*.jar"), *logging]))
    java = find_java()
    command = [str(java.executable), *SMALL_JVM, "--add-opens=java.base/java.lang=ALL-UNNAMED"]
    command += ["-cp", class_path, f"{_SERVER}.{program}"]
    environment = os.environ | {"HADOOP_HOME": str(folder), "JAVA_HOME": str(java.home)}
    with (folder / f"{program}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
    try:
        yield
    finally:
        kill_tree(process.pid)
        process.wait()


def _has_nodes(address: str) -> bool:
    try:
        with urlopen(address, timeout=5) as response:
            found = json.load(response)
    except OSError:
        return False
    return any(node["state"] == "RUNNING" for node in (found["nodes"] or {}).get("node", ()))


def _write(path: Path, settings: Mapping[str, str]) -> None:
    top = Element("configuration")
    for name, value in settings.items():
        row = SubElement(top, "property")
        SubElement(row, "name").text, SubElement(row, "value").text = name, value
    path.write_bytes(tostring(top))
