"""Calls `ottla` in a process of its own, as a shell does."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.clients.cli_server import STDIN_BYTES_MAX, CliServer

OTTLA = [sys.executable, "-m", "ottla.cli.main"]
SECONDS_MAX = 240


def call(
    *arguments: str | Path,
    brokers: str = "",
    stdin: bytes = b"",
    expect: int = 0,
    registry: str = "",
    folder: Path | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command, and check that it ends with the expected code and without a traceback."""
    environment = {**os.environ, "COLUMNS": "200"}
    for name, address in (("BROKERS", brokers), ("SCHEMA_REGISTRY_URL", registry)):
        environment.pop(f"OTTLA_{name}", None)
        if address:
            environment[f"OTTLA_{name}"] = address
    assert len(stdin) <= STDIN_BYTES_MAX
    words = list(map(str, arguments))
    done = server().run(words, stdin, environment, folder, SECONDS_MAX)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert done.returncode == expect, (done.stdout, done.stderr)
    return done


@cache
def server() -> CliServer:
    """Start the process that runs all commands of these tests."""
    return CliServer()


def text(*arguments: str | Path, **how: Any) -> str:
    """Return the stdout of a command."""
    return call(*arguments, **how).stdout.decode()


def rows(*arguments: str | Path, **how: Any) -> Any:
    """Return the JSON output of a command, parsed."""
    return json.loads(text(*arguments, "--format", "json", **how))


def lines_of_json(content: str) -> list[Any]:
    """Read one JSON object per line."""
    return [json.loads(line) for line in content.splitlines()]


def refused(*arguments: str | Path, expect: int = 1, **how: Any) -> str:
    """Return the sentence that a command fails with; it must be the only line on stderr."""
    done = call(*arguments, expect=expect, **how)
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("ottla: "), line
    return line.removeprefix("ottla: ")
