"""Runs `ottla` in forks of a process that has loaded the modules of all commands.

A fork has its own arguments, environment, directory, streams and exit code, as a process of a
shell has. It need not load the modules, which is most of the CPU time of a command.
`test_cli_docs.py` and others run commands in processes that load only their own modules.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

from ottla.cli.main import MODULE_BY_COMMAND, main

STDIN_BYTES_MAX: Final = 1 << 16
"""The capacity of a pipe: `become` writes the input before anything reads it."""
STREAMS: Final = ("stdin", "stdout", "stderr")


class CliServer:
    """The process that forks, and its pipes. It ends with the test process."""

    def __init__(self) -> None:
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.cli_server", str(requests), str(replies)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(requests, replies),
        )
        os.close(requests)
        os.close(replies)
        atexit.register(self.close)

    def close(self) -> None:
        """End the process: its requests end."""
        os.close(self._requests)
        self._process.wait()
        os.close(self._replies)

    def run(
        self,
        arguments: Sequence[str],
        stdin: bytes,
        environment: Mapping[str, str],
        folder: Path | None,
        seconds_max: float,
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a command to its end, as `subprocess.run` does."""
        with TemporaryDirectory(prefix="ottla-cli-") as name:
            paths = [Path(name, stream) for stream in STREAMS]
            paths[0].write_bytes(stdin)
            request = {
                "arguments": arguments,
                "environment": dict(environment),
                "folder": str(folder or Path.cwd()),
                "streams": list(map(str, paths)),
            }
            os.write(self._requests, json.dumps(request).encode() + b"\n")
            process_id = self._reply(seconds_max)
            try:
                code = self._reply(seconds_max)
            except TimeoutError:
                os.kill(process_id, signal.SIGKILL)
                self._reply(seconds_max)
                raise
            said, told = (path.read_bytes() for path in paths[1:])
        return subprocess.CompletedProcess(arguments, code, said, told)

    def _reply(self, seconds_max: float) -> int:
        if not select([self._replies], [], [], seconds_max)[0]:
            raise TimeoutError(f"no end within {seconds_max} s")
        return int.from_bytes(os.read(self._replies, 4), signed=True)


def serve(requests: BinaryIO, replies: int) -> None:
    """Fork once for each request, until there are no more. Only a fork raises SystemExit."""
    for module, _ in MODULE_BY_COMMAND.values():
        import_module(module)
    for line in requests:
        process_id = os.fork()
        if not process_id:
            os.close(replies)
            request = json.loads(line)
            become(request["environment"], request["folder"], request["streams"])
            main(request["arguments"])
            sys.exit()
        os.write(replies, process_id.to_bytes(4, signed=True))
        _, status = os.waitpid(process_id, 0)
        os.write(replies, os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))


def become(environment: Mapping[str, str], folder: str, streams: Sequence[str]) -> None:
    """Take over the environment, the directory and the streams of a command."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    stdin, *outputs = streams
    reader, writer = os.pipe()
    os.write(writer, Path(stdin).read_bytes())
    os.close(writer)
    os.dup2(reader, 0)
    os.close(reader)
    for number, path in enumerate(outputs, start=1):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[1]), "rb") as stream:
        serve(stream, int(sys.argv[2]))
