"""The page *From ZooKeeper to a quorum, without a stop*: its settings and its commands."""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ottla.testing.child_process import ProcessGroup, ReservedPort, wait_until
from ottla.testing.cluster import Cluster
from tests.clients.cli_calls import OTTLA, call, text

PAGE: Final = (Path(__file__).parents[2] / "docs" / "zookeeper-migration.md").read_text("utf-8")
NODES: Final = (1, 2, 3)
SECONDS_MAX: Final = 90
ZOOKEEPER: Final = "zoo.example.org:2181"


def blocks(heading: str, language: str) -> list[str]:
    """Return the blocks of a section."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def commands(heading: str) -> list[list[str]]:
    """Return the calls of `ottla` in a section, as words after the program."""
    return [shlex.split(line)[1:] for line in "".join(blocks(heading, "sh")).splitlines()]


class Page:
    """The machines of the page as directories and ports of this machine."""

    def __init__(self, folder: Path, zookeeper: str, group: ProcessGroup) -> None:
        self._folder = folder
        self._zookeeper = zookeeper
        self._group = group
        self._ports = {node: ReservedPort() for node in NODES}
        self.cluster_id = ""
        (properties,) = blocks("2 · Start three controllers", "properties")
        for node in NODES:
            own = properties.replace("node.id=101", f"node.id={100 + node}")
            own = own.replace("CONTROLLER://node-1.", f"CONTROLLER://node-{node}.")
            own += "ottla.admin.listener=\nottla.schema.registry.listener=\n"
            (folder / str(node)).mkdir()
            (folder / str(node) / "controller.properties").write_text(self.here(own, node))

    def here(self, line: str, node: int = 1) -> str:
        """Replace the names of the page by names of this machine."""
        for number, port in self._ports.items():
            line = line.replace(f"node-{number}.example.org:9093", f"127.0.0.1:{port.number}")
        line = line.replace(ZOOKEEPER, self._zookeeper).replace("CLUSTER-ID", self.cluster_id)
        for folder in ("/etc/ottla", "/var/lib/ottla"):
            line = line.replace(folder, str(self._folder / str(node)))
        return line

    def start_controllers(self) -> None:
        """Run the commands of step 2, the second and the third on each machine."""
        status, formatting, starting = commands("2 · Start three controllers")
        shown = text(*map(self.here, status))
        assert re.search(r"^PHASE +not begun$", shown, re.MULTILINE), shown
        found = re.search(r"^CLUSTER-ID +(\S+)$", shown, re.MULTILINE)
        assert found
        self.cluster_id = found[1]
        for node in NODES:
            words = [self.here(word, node) for word in formatting]
            call(*words)
            log = self._folder / f"controller-{node}.log"
            self._group.spawn([*OTTLA, *(self.here(word, node) for word in starting)], log)
        wait_until(
            lambda: "dual writes" in text(*map(self.here, status)),
            SECONDS_MAX,
            lambda: "\n".join(one.read_text() for one in self._folder.glob("controller-*.log")),
        )

    def broker_settings(self) -> dict[str, str]:
        """Return the settings of a broker in the quorum."""
        (properties,) = blocks("3 · Restart the brokers, one by one", "properties")
        rows = [line.partition("=") for line in self.here(properties).splitlines()]
        return {name: value for name, _, value in rows}

    def release(self) -> None:
        for port in self._ports.values():
            port.release()


@contextmanager
def page(folder: Path) -> Iterator[tuple[Page, Cluster]]:
    group = ProcessGroup()
    with Cluster(3, data_dir=folder / "brokers", zookeeper=True) as cluster:
        found = Page(folder, cluster.zookeeper_connect, group)
        try:
            yield found, cluster
        finally:
            group.close()
            found.release()


def test_the_steps_of_the_page_and_the_way_back(needs_zookeeper: None, tmp_path: Path) -> None:
    with page(tmp_path) as (found, cluster):
        call("topic", "create", "letters", brokers=cluster.bootstrap_servers)
        found.start_controllers()
        assert found.broker_settings()["process.roles"] == "broker"
        (finalize,) = commands("4 · Finalize")
        refused = call(*map(found.here, finalize), expect=1)
        assert b"the brokers 1, 2, 3 have their metadata in ZooKeeper" in refused.stderr
        (rollback,) = commands("The way back")
        call(*map(found.here, rollback))
        status = commands("2 · Start three controllers")[0]
        wait_until(
            lambda: bool(
                re.search(r"^CONTROLLER +[123]$", text(*map(found.here, status)), re.MULTILINE)
            ),
            SECONDS_MAX,
            lambda: text(*map(found.here, status)),
        )
        assert "letters" in text("topic", "list", brokers=cluster.bootstrap_servers)
