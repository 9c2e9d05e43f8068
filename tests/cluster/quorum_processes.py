"""Three replicas of the metadata log in processes of their own, and the lines that they print."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.interop.kafka_node import free_ports

PATIENCE_SECONDS: Final = 240
FOLDER: Final = "__cluster_metadata-0"


class Line(NamedTuple):
    """A line of one process."""

    node_id: int
    time_ms: float
    words: tuple[str, ...]


class QuorumProcesses:
    """Starts, kills and pauses replicas by their ids."""

    def __init__(self, folder: Path, environ: dict[str, str] | None = None, count: int = 3) -> None:
        self.folder = folder
        self.ports = free_ports(count)
        self.ids = range(1, count + 1)
        self.lines: list[Line] = []
        self._environ = os.environ | (environ or {})
        self._news = threading.Condition()
        self._process_by_id: dict[int, subprocess.Popen[str]] = {}
        self._readers: list[threading.Thread] = []

    def data(self, node_id: int) -> Path:
        return self.folder / str(node_id)

    def start(self, *ids: int) -> None:
        for node_id in ids or self.ids:
            command = [sys.executable, "-m", "tests.cluster.quorum_process", "--id", str(node_id)]
            command += ["--ports", ",".join(map(str, self.ports))]
            command += ["--folder", str(self.data(node_id))]
            with (self.folder / f"{node_id}.log").open("a") as log:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    bufsize=1,
                    env=self._environ,
                )
            self._process_by_id[node_id] = process
            reader = threading.Thread(target=self._read, args=(node_id, process), daemon=True)
            reader.start()
            self._readers.append(reader)

    def _read(self, node_id: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as stdout:
            for text in stdout:
                if not text.endswith("\n"):
                    break  # The process was killed in the middle of a line.
                time_ms, *words = text.split()
                with self._news:
                    self.lines.append(Line(node_id, float(time_ms), tuple(words)))
                    self._news.notify_all()

    def tell(self, command: str, *ids: int) -> None:
        for node_id in ids or self.running:
            stdin = self._process_by_id[node_id].stdin
            assert stdin is not None
            stdin.write(command + "\n")
            stdin.flush()

    @property
    def running(self) -> list[int]:
        return list(self._process_by_id)

    # -- lines ------------------------------------------------------------------------------------

    def wait_for(self, *words: str, after: int = 0, nodes: tuple[int, ...] = ()) -> Line:
        """Return the first line from a number on that begins with these words."""

        def find() -> Line | None:
            for line in self.lines[after:]:
                if line.words[: len(words)] == words and (not nodes or line.node_id in nodes):
                    return line
            return None

        with self._news:
            found = find()
            while found is None:
                assert self._news.wait(PATIENCE_SECONDS), f"no {words}: {self.lines[-20:]}"
                found = find()
            return found

    def mark(self) -> int:
        """Return the number of the next line."""
        return len(self.lines)

    def leader(self) -> int:
        """Return the leader of the greatest epoch; wait until there is one."""
        self.wait_for("leader")
        lines = [line for line in self.lines if line.words[0] == "leader"]
        return max(lines, key=lambda line: int(line.words[1])).node_id

    def acknowledged(self) -> list[tuple[int, str]]:
        """Return the offsets and values of all committed records, in the order of the lines."""
        found = [line.words for line in self.lines if line.words[0] == "acked"]
        return [(int(offset), value) for _, _, offset, value in found]

    def leaders_by_epoch(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for line in self.lines:
            if line.words[0] == "leader":
                found.setdefault(int(line.words[1]), set()).add(line.node_id)
        return found

    def values(self, node_id: int) -> list[str]:
        """Return all committed values of a node."""
        mark = self.mark()
        self.tell("dump", node_id)
        return list(self.wait_for("values", after=mark, nodes=(node_id,)).words[1:])

    # -- ends -------------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        self._process_by_id[node_id].kill()
        self.ended(node_id)

    def terminate(self, node_id: int) -> None:
        self._process_by_id[node_id].terminate()
        assert self.ended(node_id) == 0

    def ended(self, node_id: int) -> int:
        """Wait for the end of a process, and return its exit status."""
        process = self._process_by_id.pop(node_id)
        status = process.wait(PATIENCE_SECONDS)
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        return status

    def send(self, node_id: int, number: signal.Signals) -> None:
        self._process_by_id[node_id].send_signal(number)

    def pause(self, node_id: int) -> None:
        self.send(node_id, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self.send(node_id, signal.SIGCONT)

    def wipe(self, node_id: int) -> None:
        shutil.rmtree(self.data(node_id))

    def close(self) -> None:
        for node_id in self.running:
            self.resume(node_id)
            self.kill(node_id)
        for reader in self._readers:
            reader.join()
