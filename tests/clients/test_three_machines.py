"""The page *A cluster on three machines*: its settings, its unit and its commands, in order."""

import configparser
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.testing.child_process import ProcessGroup, ReservedPort, wait_until
from tests.clients.cli_calls import OTTLA, call, rows

if TYPE_CHECKING:
    import subprocess

PAGE: Final = (Path(__file__).parents[2] / "docs" / "three-machines.md").read_text("utf-8")
PROGRAM: Final = "/opt/ottla/bin/ottla"
SECONDS_MAX: Final = 240
NODES: Final = (1, 2, 3)


def blocks(heading: str, language: str) -> list[str]:
    """Return the blocks of a section."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def commands(heading: str) -> list[list[str]]:
    """Return the calls of `ottla` in a section, as words after the program."""
    lines = "".join(blocks(heading, "sh")).splitlines()
    return [
        shlex.split(line.partition("ottla ")[2])
        for line in (one.removeprefix(f"sudo -u ottla {PROGRAM[: -len('ottla')]}") for one in lines)
        if line.startswith("ottla ")
    ]


class Machines:
    """Three machines of the page as directories and ports of this machine."""

    def __init__(self, folder: Path) -> None:
        self._group = ProcessGroup()
        self._folder = folder
        self._ports = {
            f"node-{node}.example.org:{port}": ReservedPort()
            for node in NODES
            for port in (9092, 9093)
        }
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        (properties,) = blocks("Settings", "properties")
        for node in NODES:
            (folder / str(node)).mkdir()
            own = properties.replace("node.id=1", f"node.id={node}")
            own = own.replace("=PLAINTEXT://node-1.", f"=PLAINTEXT://node-{node}.")
            own = own.replace("CONTROLLER://node-1.", f"CONTROLLER://node-{node}.")
            own = own.replace("://:", f"://node-{node}.example.org:")
            extra = "ottla.admin.listener=\nottla.schema.registry.listener=\n"
            (folder / str(node) / "server.properties").write_text(self.here(own, node) + extra)

    def here(self, text: str, node: int) -> str:
        """Replace the addresses and the directories of the page by others on this machine."""
        for address, port in self._ports.items():
            text = text.replace(address, f"127.0.0.1:{port.number}")
        text = text.replace("/etc/ottla", str(self._folder / str(node)))
        return text.replace("/var/lib/ottla", str(self._folder / str(node)))

    def run(self, words: list[str], node: int = 1) -> None:
        """Run a command of the page on a machine."""
        call(*(self.here(word, node) for word in words), brokers=self.brokers)

    @property
    def brokers(self) -> str:
        """The value of OTTLA_BROKERS on the page."""
        found = re.search(r"^export OTTLA_BROKERS=(.*)$", PAGE, re.MULTILINE)
        assert found
        return self.here(found[1], 1)

    def start(self, node: int) -> None:
        """Start a node as its unit does."""
        (text,) = blocks("Start", "ini")
        unit = configparser.ConfigParser()
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(text)
        words = shlex.split(self.here(unit["Service"]["ExecStart"], node))
        assert words[0] == PROGRAM
        ready = ["--ready-file", str(self._ready_file(node))]
        log = self._folder / f"{node}.log"
        self.processes[node] = self._group.spawn([*OTTLA, *words[1:], *ready], log)

    def wait_until_up(self) -> None:
        """Return when clients can connect to all nodes."""
        files = list(map(self._ready_file, NODES))
        wait_until(
            lambda: all(file.exists() for file in files),
            SECONDS_MAX,
            lambda: "\n".join(file.read_text() for file in self._folder.glob("*.log")),
        )

    def _ready_file(self, node: int) -> Path:
        return self._folder / f"{node}.ready"

    def data_dir(self, node: int) -> Path:
        """The log dir of a node."""
        return self._folder / str(node) / "data"

    def replicas(self) -> dict[str, tuple[int, str, int | None]]:
        """Return the node, the role and the lag of each directory in the quorum."""
        status = rows("quorum", "status", brokers=self.brokers)
        return {
            row["directory_id"]: (row["node"], row["role"], row["lag"])
            for row in status["replicas"]
        }

    def voters(self) -> list[int]:
        """Return the nodes that vote."""
        found = self.replicas().values()
        return sorted(node for node, role, _ in found if role in {"leader", "voter"})

    def directory_id(self, node: int) -> str:
        """Return the id of the directory that a node has now."""
        properties = self._folder / str(node) / "server.properties"
        (row,) = rows("storage", "info", "--config", properties)
        return str(row["directory_id"])

    def close(self) -> None:
        """Kill all nodes and release the ports."""
        self._group.close()
        for port in self._ports.values():
            port.release()


@contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    with ExitStack() as stack:
        made = Machines(folder)
        stack.callback(made.close)
        yield made


def test_the_page_leads_from_nothing_to_a_cluster_that_survives_a_lost_disk(tmp_path: Path) -> None:
    (drawing,) = [words for words in commands("Format") if "random-uuid" in words]
    formatting = [words for words in commands("Format") if words != drawing]
    assert len(formatting) == 2
    with machines(tmp_path) as site:
        site.run(drawing)
        for node in NODES:
            for words in formatting:
                site.run(words, node)
            site.start(node)

        def all_in_sync() -> bool:
            found = call("cluster", "describe", "--format", "json", brokers=site.brokers)
            return b'"health": "ok"' in found.stdout and found.stdout.count(b'"host": "127') == 3

        site.wait_until_up()
        call("topic", "create", "first", "--partitions", "3", brokers=site.brokers)
        wait_until(all_in_sync, SECONDS_MAX, lambda: "the cluster is not ready")
        looking = commands("Check")
        assert len(looking) == 5  # without the line that reads from a pipe
        for words in looking:
            if words[0] == "consume":
                call("produce", "letters", stdin=b"Dearest Ottla\n", brokers=site.brokers)
            site.run(words)
        _lose_a_disk(site)


def _lose_a_disk(site: Machines) -> None:
    """Node 3 loses its disk, and the section about that is followed."""
    removing, formatting, adding = commands("Replace a machine")
    site.processes[3].kill()
    site.processes[3].wait()
    site.data_dir(3).rename(site.data_dir(3).with_name("lost"))
    site.run(removing)
    assert site.voters() == [1, 2]
    site.run(formatting, 3)
    site.start(3)
    new = site.directory_id(3)

    def has_caught_up() -> bool:
        return site.replicas().get(new) == (3, "observer", 0)

    wait_until(has_caught_up, SECONDS_MAX, lambda: str(site.replicas()))
    site.run(adding, 3)
    assert site.voters() == [1, 2, 3]
